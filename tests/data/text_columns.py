"""Columns of text that several tests read."""

import pyarrow as pa

from cavity.data.preprocess import TablePreprocessor

N = 40
NUMBERS = [f"{(7 * i) % 31 + 0.5}" for i in range(N)]


def read_column(table, column="x"):
    """The kind of a column, its values and the notes of it."""
    preprocessor = TablePreprocessor()
    preprocessor.learn(table, None)
    encoder = next(e for e in preprocessor.encoders_ if e.column == column)
    chunks = [encoder.form.read(chunk.column(0), column) for chunk in table.chunks([column])]
    notes = [note for note in preprocessor.notes_ if note.startswith(f"{column!r} ")]
    return encoder.kind, pa.chunked_array(chunks).to_pylist(), notes
