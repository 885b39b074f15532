"""Training: EP and VI, full batch, minibatch and streams."""
