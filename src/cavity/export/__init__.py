"""Save fitted models: as model files without pickle, and as ONNX (`cavity.export.onnx`)."""

from cavity.export.model_file import ModelFile, describe, load, save

__all__ = ["ModelFile", "describe", "load", "save"]
