"""What only the paper's experiments need: its numbers and its training schemes."""
