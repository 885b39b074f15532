"""Tiny files with the layout of the real datasets."""

import numpy as np


def write(folder):
    """Fill a new folder with them."""
    folder.mkdir()
    rng = np.random.default_rng(0)

    def labels(n):
        return np.where(np.arange(n) % 2, 1, -1).astype(np.int8)

    X = rng.standard_normal((50, 3)) * 7 + 3
    X[:, 1] = 4.0  # a constant column
    np.savez(folder / "heart.npz", X=X, y=labels(50))
    np.savez(folder / "covtype.npz", X=np.arange(60, dtype=np.int16).reshape(20, 3), y=labels(20))
    mnist = {}
    for part, n in (("train", 30), ("test", 10)):
        digit = np.arange(n, dtype=np.uint8) % 10
        mnist[f"X_{part}"] = rng.integers(0, 256, (n, 4), dtype=np.uint8)
        mnist[f"y_{part}"] = np.where(digit % 2, 1, -1).astype(np.int8)
        mnist[f"digit_{part}"] = digit
    np.savez(folder / "mnist.npz", **mnist)
    np.savez(
        folder / "airline_2008.npz",
        X=np.ones((6, 8), np.int16),
        y=labels(6),
        issue_days=np.array([13879, 13514, -1, 13879, 13879, 13879]),
        X_extra=np.ones((2, 8), np.int16),
        y_extra=labels(2),
        issue_days_extra=np.array([13879, -1]),
    )
