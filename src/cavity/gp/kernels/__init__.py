"""Kernels: scikit-learn's objects, evaluated fast and with their gradients pulled back.

`bind` turns a scikit-learn kernel and inducing points into a `BoundKernel`; `register` adds a
kernel type to those it knows, and `check_kernel` verifies one.
"""

from sklearn.gaussian_process import kernels as _sklearn

from cavity.gp.kernels.base import BoundKernel, bind, noise_free, register
from cavity.gp.kernels.basic import (
    BoundConstant,
    BoundDotProduct,
    BoundPower,
    BoundSum,
    BoundWhite,
    bind_product,
)
from cavity.gp.kernels.check import check_kernel
from cavity.gp.kernels.stationary import bind_matern, bind_rational_quadratic, bind_rbf

__all__ = ["BoundKernel", "bind", "check_kernel", "noise_free", "register"]

register(_sklearn.ConstantKernel, BoundConstant)
register(_sklearn.WhiteKernel, BoundWhite)
register(_sklearn.RBF, bind_rbf)
register(_sklearn.Matern, bind_matern)
register(_sklearn.RationalQuadratic, bind_rational_quadratic)
register(_sklearn.DotProduct, BoundDotProduct)
register(_sklearn.Sum, BoundSum)
register(_sklearn.Product, bind_product)
register(_sklearn.Exponentiation, BoundPower)
