"""Fit and predict hundreds of odd tables and see what comes out.

From the folder `tests`:

    python -m campaign.tables --seed 0 --count 500

Tables are data frames, or CSV, Parquet and Feather files. They go through `TableClassifier` or through
the command line. A table must either be fitted and give finite predictions, or be refused in words: by a
`ValueError` or an error of cavity, or by the exit status 1 or 2 of a command. Any other exception, a
`RuntimeWarning`, a traceback, text that steers a terminal, a number that is not finite, and more than
`SECONDS` are failures. `--only` tries one table alone.
"""

import random
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, feather, parquet

import cavity
from campaign.odd_tables import FILES, NEW, TABLES, TARGET, TEXTS, WEIGHT, honest
from campaign.runner import TooSlowError, at_most, main, unexpected
from cavity.data.table import open_table
from cavity.estimators.table_prediction import predictions
from cli_runs import run as command

SECONDS = 20
"""Longest time that one table may take."""
FITTED, REFUSED = "fitted", "refused"
"""What may come out."""
KINDS = [*TABLES, *TEXTS, *FILES, *NEW]
"""Names of the kinds of odd tables."""
FORMATS = ("csv", "csv.gz", "tsv", "parquet", "feather")


class FailedError(Exception):
    """Something that must not happen."""


def written(rng, data, path):
    """The path of a file with the table, or the table itself if that format cannot hold it."""
    try:
        table = data if isinstance(data, pa.Table) else None
        if path.suffix == ".parquet":
            table = pa.Table.from_pandas(data, preserve_index=False) if table is None else table
            kind = rng.choice(["snappy", "gzip", "zstd", "none"])
            parquet.write_table(table, path, compression=kind, row_group_size=rng.choice([7, 1_000]))
        elif path.suffix == ".feather":
            table = pa.Table.from_pandas(data, preserve_index=False) if table is None else table
            feather.write_feather(table, str(path), rng.choice(["lz4", "zstd", "uncompressed"]))
        elif table is not None:
            with pa.output_stream(path, compression="detect") as stream:
                options = csv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
                csv.write_csv(table, stream, options)
        else:
            data.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    except Exception:
        path.unlink(missing_ok=True)
        return data
    return path


def tables(rng, kind, folder):
    """A training table and one to predict, one of them odd, as data or as paths."""
    train, new = honest(rng), honest(rng, 30)
    format_ = rng.choice(FORMATS)
    if kind in TABLES:
        train = TABLES[kind](rng, train)
        if WEIGHT in getattr(train, "columns", ()) or kind.startswith("weights: a type"):
            new = new.assign(**{WEIGHT: 1})
        if kind.startswith(("cells", "names", "columns")):
            new = train
    elif kind in NEW:
        new = NEW[kind](rng, new)
    elif kind in TEXTS:
        format_ = "csv"
    if kind in TABLES or kind in NEW:
        if rng.random() < 0.4:
            return train, new
        return written(rng, train, folder / f"t.{format_}"), written(rng, new, folder / f"n.{format_}")
    path = written(rng, train, folder / f"t.{format_}")
    path.write_bytes({**TEXTS, **FILES}[kind](rng, path.read_bytes()))
    return path, written(rng, new, folder / "n.csv")


def check_finite(frame):
    """Raise if a prediction is not a finite number."""
    numbers = frame.drop(columns="label").to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise FailedError("predictions are not finite")


def in_python(rng, train, new, folder):
    """Fit and predict in Python."""
    classifier = cavity.SEPClassifier(n_inducing=5, max_epochs=2, random_state=0, n_jobs=1)
    model = cavity.TableClassifier(classifier, max_categories=rng.choice([3, 20]))
    table = open_table(train)
    y, weight = TARGET, WEIGHT if WEIGHT in table.columns else None
    if isinstance(train, pd.DataFrame) and TARGET in train and rng.random() < 0.3:
        y, train = train[TARGET], train.drop(columns=TARGET)
        y = rng.choice([pd.Series, pd.Series.to_numpy, pd.Series.to_list])(y)
    model.fit(train, y, weight)
    model.save(folder / "m.cavity")
    model = cavity.load(folder / "m.cavity")
    if isinstance(new, Path):
        for batch in predictions(model, open_table(new)):
            check_finite(batch.to_pandas())
    elif not np.isfinite(model.predict_proba(new)).all():
        raise FailedError("predictions are not finite")


def said(result, code):
    """The words of a command that should end with one of some exit codes."""
    text = result.stdout + result.stderr
    if result.exit_code not in code or "Traceback" in text or "unexpected" in text:
        raise FailedError(f"exit status {result.exit_code}: {text[-600:]}") from result.exception
    if not all(line.isprintable() for line in text.split("\n")):
        raise FailedError(f"text that is not printable: {text!r:.600}")
    if "encountered in" in text:
        raise FailedError(f"a warning of NumPy: {text[-600:]}")
    if result.exit_code and "cavity: " not in result.stderr:
        raise FailedError(f"no words: {text[-600:]}")
    if result.exit_code:
        raise cavity.SourceError(result.stderr.rpartition("cavity: ")[2])


def in_commands(rng, train, new, folder):
    """Fit and predict with the commands."""
    model, output = folder / "m.cavity", folder / rng.choice(["p.csv", "p.parquet"])
    weight = ["--weight", WEIGHT] if WEIGHT in _names(train) else []
    fit = [
        "-o",
        model,
        "-t",
        TARGET,
        "--inducing",
        "5",
        "--budget",
        "2 epochs",
        "--jobs",
        "1",
        *weight,
    ]
    said(command("fit", train, *fit), (0, 1, 2))
    said(command("inspect", model), (0,))
    said(command("predict", model, new, "-o", output), (0, 1, 2))
    check_finite(pd.read_csv(output) if output.suffix == ".csv" else pd.read_parquet(output))
    said(command("evaluate", model, new), (0, 1, 2))
    if rng.random() < 0.04:
        said(command("report", model, new, "-o", folder / "r.html"), (0, 1, 2))


def _names(path):
    try:
        return open_table(path).columns
    except ValueError:
        return []


def outcome(way, *args):
    """What fitting and predicting does, in a word, and the words of an error."""
    try:
        with at_most(SECONDS):
            way(*args)
    except FailedError as error:
        return "failed", str(error)
    except (ValueError, cavity.NumericalError) as error:
        usual = (
            isinstance(error, (cavity.SourceError, cavity.NumericalError)) or type(error) is ValueError
        )
        if not usual or len(str(error)) < 20 or "Input X contains" in str(error):
            return unexpected(error)
        return REFUSED, str(error)
    except TooSlowError:
        return "too slow", ""
    except BaseException as error:
        return unexpected(error)
    return FITTED, ""


def run(seed, numbers):
    """Try odd tables; yields (kind of table, how it is passed, number, outcome, words)."""
    for number in numbers:
        kind = KINDS[number % len(KINDS)]
        rng = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train, new = tables(rng, kind, Path(folder))
            are_files = isinstance(train, Path) and isinstance(new, Path)
            way = in_commands if are_files and rng.random() < 0.6 else in_python
            detail = (
                f"{way.__name__}, {', '.join(getattr(t, 'name', 'in memory') for t in (train, new))}"
            )
            warnings.simplefilter("error", RuntimeWarning)
            yield (kind, detail, number, *outcome(way, rng, train, new, Path(folder)))


if __name__ == "__main__":
    sys.exit(main(__doc__, KINDS, run, allowed=(FITTED, REFUSED), count=500))
