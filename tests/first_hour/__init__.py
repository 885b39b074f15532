"""What a stranger does in the first hour, with nothing but the built wheel: `make first-hour`."""
