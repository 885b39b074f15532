"""The other libraries: each runs in its own virtual environment, spoken to by files and JSON."""
