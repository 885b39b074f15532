"""Errors with a name, so that a caller can tell them apart."""


class NumericalError(ArithmeticError):
    """A computation failed numerically and no damping, retry or jitter could mend it."""
