"""Fitted models as files: no pickle, nothing executed on load."""

from cavity.persistence.model_file import ModelFile, describe, load, save

__all__ = ["ModelFile", "describe", "load", "save"]
