"""What only the paper's experiments need: its numbers, and its way of outer updates."""
