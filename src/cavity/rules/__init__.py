"""What one row says, given its scalar marginal under q."""
