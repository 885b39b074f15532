"""Kernels, numbers and methods in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels

from cavity.plot.canvas import number

METHODS = {
    "SEPClassifier": "scalable expectation propagation (SEP)",
    "SVIClassifier": "scalable variational inference (SVI)",
    "GFITCClassifier": "expectation propagation to convergence (GFITC)",
}


def kernel_in_words(kernel: Any) -> str:
    """A scikit-learn kernel as a sentence without its full stop.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    >>> kernel_in_words(ConstantKernel(4.0) * RBF([1.0, 2.0]) + WhiteKernel(0.1))
    'an amplitude (latent standard deviation 2) times a smooth kernel (RBF) with a lengthscale for each \
feature (1 to 2), plus independent noise of variance 0.1'
    """
    if isinstance(kernel, kernels.Sum):
        return f"{kernel_in_words(kernel.k1)}, plus {kernel_in_words(kernel.k2)}"
    if isinstance(kernel, kernels.Product):
        return " times ".join(_factor(part) for part in (kernel.k1, kernel.k2))
    if isinstance(kernel, kernels.Exponentiation):
        return f"{_factor(kernel.kernel)} to the power of {kernel.exponent:g}"
    if isinstance(kernel, kernels.ConstantKernel):
        return f"an amplitude (latent standard deviation {number(np.sqrt(kernel.constant_value))})"
    if isinstance(kernel, kernels.WhiteKernel):
        return f"independent noise of variance {number(kernel.noise_level)}"
    if isinstance(kernel, kernels.DotProduct):
        return f"a linear kernel with offset {number(kernel.sigma_0)}"
    if isinstance(kernel, kernels.RationalQuadratic):
        return (
            f"a rational quadratic kernel (lengthscale {number(kernel.length_scale)}, "
            f"mixture {number(kernel.alpha)})"
        )
    if isinstance(kernel, kernels.Matern):
        return f"a Matérn kernel (ν = {kernel.nu:g}) {_lengthscales(kernel)}"
    if isinstance(kernel, kernels.RBF):
        return f"a smooth kernel (RBF) {_lengthscales(kernel)}"
    return f"a kernel of type {type(kernel).__name__}"


def _factor(kernel: Any) -> str:
    words = kernel_in_words(kernel)
    return f"({words})" if isinstance(kernel, kernels.Sum) else words


def _lengthscales(kernel: Any) -> str:
    scales = np.atleast_1d(kernel.length_scale)
    if len(scales) == 1:
        return f"with the lengthscale {number(scales[0])}"
    return f"with a lengthscale for each feature ({number(scales.min())} to {number(scales.max())})"


def size(n_bytes: float) -> str:
    """Bytes in the unit that suits them.

    >>> size(2_500_000), size(800)
    ('2.5 MB', '800 B')
    """
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(0.52), duration(75), duration(7_300)
    ('0.52 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
