"""Tables as people have them: named columns of any kind, some of them missing, in files of any size."""

from cavity.tables.classifier import TableClassifier
from cavity.tables.opening import open_table
from cavity.tables.preprocessor import TablePreprocessor

__all__ = ["TableClassifier", "TablePreprocessor", "open_table"]
