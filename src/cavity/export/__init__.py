"""Fitted models as files: model files without pickle, and ONNX."""

from cavity.export.model_file import ModelFile, describe, load, save

__all__ = ["ModelFile", "describe", "load", "save"]
