"""Kernels that every general test runs over, for data with three columns."""

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

ARD = [0.7, 1.5, 3.0]

LEAVES = {
    "constant": ConstantKernel(2.5),
    "constant-fixed": ConstantKernel(2.5, "fixed"),
    "white": WhiteKernel(0.3),
    "white-fixed": WhiteKernel(0.3, "fixed"),
    "rbf": RBF(1.3),
    "rbf-one-in-array": RBF([1.3]),
    "rbf-ard": RBF(ARD),
    "rbf-fixed": RBF(1.3, "fixed"),
    "rbf-ard-fixed": RBF(ARD, "fixed"),
    **{f"matern-{nu}": Matern(1.3, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)},
    **{f"matern-ard-{nu}": Matern(ARD, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)},
    "rq": RationalQuadratic(1.3, alpha=0.8),
    "rq-large-alpha": RationalQuadratic(1.3, alpha=100.0),
    "rq-alpha-fixed": RationalQuadratic(1.3, alpha=0.8, alpha_bounds="fixed"),
    "rq-length-fixed": RationalQuadratic(1.3, alpha=0.8, length_scale_bounds="fixed"),
    "dot": DotProduct(0.6),
    "dot-fixed": DotProduct(0.6, "fixed"),
}

COMPOSITIONS = {
    "scaled-rbf": 2.5 * RBF(ARD),
    "rbf-scaled": RBF(ARD) * ConstantKernel(2.5),
    "scaled-fixed": ConstantKernel(2.5, "fixed") * RBF(ARD, "fixed"),
    "scaled-matern": 0.4 * Matern(ARD, nu=0.5),
    "scaled-rq": RationalQuadratic(1.3, alpha=0.8) * 3.0,
    "scaled-twice": 2.0 * (3.0 * RBF(ARD)),
    "zero": ConstantKernel(0.0, "fixed") * RBF(ARD),
    "scaled-dot": 0.5 * DotProduct(0.6),
    "scaled-sum": 0.5 * (RBF(ARD) + Matern(1.2, nu=1.5)),
    "noisy": 2.0 * RBF(ARD) + WhiteKernel(0.1),
    "noise-first": WhiteKernel(0.1) + 2.0 * RBF(ARD),
    "noise-inside": (RBF(ARD) + WhiteKernel(0.1)) * DotProduct(0.6),
    "noise-times": WhiteKernel(0.1) * RBF(ARD),
    "product": RBF(ARD) * Matern(2.0, nu=2.5),
    "square": (RBF(ARD) + 1.0) ** 2,
    "root": Exponentiation(2.0 * RBF(ARD), 0.5),
    "cubed-dot": DotProduct(0.6) ** 3,
    "noise-squared": (WhiteKernel(0.2) + RBF(1.1)) ** 2,
    "noise-root": Exponentiation(WhiteKernel(0.2), 0.5),
    "nested": 2.0 * RBF(ARD) * (DotProduct(0.4) + 0.3 * RationalQuadratic(0.9)) ** 2
    + WhiteKernel(0.2, "fixed")
    + ConstantKernel(0.7),
}

KERNELS = {**LEAVES, **COMPOSITIONS}
