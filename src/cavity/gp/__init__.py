"""Gaussian processes: kernels, likelihoods, prior, posterior and predictions."""
