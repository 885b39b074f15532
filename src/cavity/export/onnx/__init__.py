"""Fitted classifiers as ONNX models: preprocessing, kernel and probabilities in one file.

`to_onnx` exports; `register` teaches it another kernel. Needs the extra ``cavity[onnx]``; serving the
file needs ONNX Runtime and nothing of this package.
"""

from cavity.export.onnx.export import to_onnx
from cavity.export.onnx.graph import Value
from cavity.export.onnx.kernels import Covariances, register

__all__ = ["Covariances", "Value", "register", "to_onnx"]
