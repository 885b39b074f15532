"""Kernels: scikit-learn's objects, evaluated fast and with their gradients pulled back.

`bind` turns a scikit-learn kernel and inducing points into a `BoundKernel`; `register` adds a
kernel type to those it knows, and `check_kernel` verifies one.
"""

from sklearn.gaussian_process import kernels as _sklearn

from cavity.kernels.algebra import BoundPower, BoundSum, bind_product
from cavity.kernels.binding import bind, register
from cavity.kernels.checking import check_kernel
from cavity.kernels.constant import BoundConstant
from cavity.kernels.dot_product import BoundDotProduct
from cavity.kernels.matern import bind_matern
from cavity.kernels.protocol import BoundKernel
from cavity.kernels.rational_quadratic import bind_rational_quadratic
from cavity.kernels.rbf import bind_rbf
from cavity.kernels.white import BoundWhite, noise_free

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
