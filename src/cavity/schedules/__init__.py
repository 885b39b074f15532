"""Who consumes the sums of the passes, and what moves when."""
