"""Fitted classifiers as ONNX models: preprocessing, kernel and probabilities in one file.

`to_onnx` exports; `register` teaches it another kernel. Needs the extra ``cavity[onnx]``; serving the
file needs ONNX Runtime and nothing of this package.
"""

from cavity.onnx.export import to_onnx
from cavity.onnx.graph import Value
from cavity.onnx.kernels import Covariances, register

__all__ = ["Covariances", "Value", "register", "to_onnx"]
