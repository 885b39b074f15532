"""Data that installs with a package: loaders that return plain arrays."""
