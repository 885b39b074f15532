"""Micro-benchmarks: `python -m pytest benchmarks/micro`, or `make bench-check` to compare two commits."""
