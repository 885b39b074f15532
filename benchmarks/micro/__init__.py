"""Micro-benchmarks: `make bench-micro`, or `make bench-check` to compare two commits."""
