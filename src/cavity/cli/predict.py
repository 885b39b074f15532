"""The command `cavity predict`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cavity.cli.guard import CommandError, Settings
from cavity.cli.io import STDOUT, checked_output, loaded_model, output_stream, print_json
from cavity.cli.progress import progress_shown

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PARQUET = {".parquet", ".parq", ".pq"}
_JSON_LINES = {".jsonl", ".ndjson"}


def run_predict(
    model_path: str,
    data: str,
    output: str,
    keep: tuple[str, ...],
    level: float | None,
    jobs: int | None,
    settings: Settings,
) -> None:
    """Predict all rows of a table, chunk by chunk; with a `level`, say how uncertain each is."""
    if level is not None and not 0.0 < level < 1.0:
        raise CommandError(f"--level {level:g} is not between 0 and 1; give a number such as 0.9")
    suffix = _checked_suffix(output, settings.json)
    if output != STDOUT:
        checked_output(output, settings.force)
    from cavity.data.table import open_table
    from cavity.estimators.table_prediction import predictions
    from cavity.text import suggestion

    model = loaded_model(model_path, jobs)
    table = open_table(data)
    for name in keep:
        if name not in table.columns:
            raise CommandError(
                f"{data}: has no column {name!r} to keep{suggestion(name, table.columns)}"
            )
    started, n_rows, writer = time.perf_counter(), 0, None
    with progress_shown(settings.quiet) as watcher, output_stream(output, settings.force) as stream:
        watcher.stage(f"predicting {data}")
        try:
            for batch in predictions(model, table, keep, level):
                writer = _writer(stream, suffix, batch.schema) if writer is None else writer
                writer.write_batch(batch)
                n_rows += batch.num_rows
                watcher.rows(n_rows, table.n_rows)
        finally:
            if writer is not None:
                writer.close()
    seconds = time.perf_counter() - started
    if settings.json:
        rate = n_rows / seconds
        print_json({"output": output, "rows": n_rows, "seconds": seconds, "rows_per_second": rate})


def _checked_suffix(output: str, prints_json: bool) -> str:
    """The suffix of an output that can be written."""
    if output == STDOUT:
        if prints_json:
            raise CommandError(
                "--json and the predictions cannot both go to standard output; give -o a file name"
            )
        return ".csv"
    suffix = Path(output).suffix.lower()
    if (
        output
        and not Path(output).is_dir()
        and suffix
        not in (
            *_DELIMITERS,
            *_PARQUET,
            *_JSON_LINES,
        )
    ):
        raise CommandError(
            f"{output}: predictions are written as .parquet, .csv, .tsv or .jsonl; give -o such a file "
            "name"
        )
    return suffix


class _JsonLinesWriter:
    """Writes Arrow record batches as one JSON object a row."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write_batch(self, batch: RecordBatch) -> None:
        """Write the rows."""
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in batch.to_pylist())
        self._stream.write("".join(f"{line}\n" for line in lines).encode("utf-8"))

    def close(self) -> None:
        """Nothing is left to write."""


def _writer(
    stream: IO[bytes], suffix: str, schema: Schema
) -> CSVWriter | ParquetWriter | _JsonLinesWriter:
    """A writer of Arrow record batches in the format of the suffix."""
    if suffix in _JSON_LINES:
        return _JsonLinesWriter(stream)
    if suffix in _PARQUET:
        from pyarrow import parquet

        # A dictionary of the numbers, which hardly repeat, would take longer than all the rest.
        return parquet.ParquetWriter(stream, schema, use_dictionary=["label"])
    from pyarrow import csv

    options = csv.WriteOptions(delimiter=_DELIMITERS[suffix], quoting_style="needed")
    return csv.CSVWriter(stream, schema, write_options=options)
