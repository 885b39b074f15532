"""Benchmarks of `cavity` and of its peers: `python -m benchmarks list` names them."""
