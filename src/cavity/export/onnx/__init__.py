"""Export fitted classifiers as ONNX models: preprocessing, kernel and probabilities in one file.

`to_onnx` exports a classifier; `register` adds a kernel type. Exporting needs the extra
``cavity[onnx]``; serving the file needs only ONNX Runtime.
"""

from cavity.export.onnx.export import to_onnx
from cavity.export.onnx.graph import Value
from cavity.export.onnx.model import Covariances, register

__all__ = ["Covariances", "Value", "register", "to_onnx"]
