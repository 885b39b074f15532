"""Options of the commands, each said once, and groups of options that several commands share.

A group is a data class whose fields are options. A command with a parameter of that type has all of
them; see `cavity.cli.guard.guarded`. This module loads no NumPy, so that `cavity --help` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Annotated

import typer

from cavity.cli.guard import CommandError


class Method(str, Enum):
    """Names of the classifiers."""

    sep = "sep"
    svi = "svi"
    gfitc = "gfitc"


class LikelihoodName(str, Enum):
    """Names of the likelihoods."""

    probit = "probit"
    logit = "logit"


class KernelName(str, Enum):
    """Names of the kernels."""

    auto = "auto"
    matern12 = "matern12"
    matern32 = "matern32"
    rbf = "rbf"


class ScalingName(str, Enum):
    """Names of the scalings."""

    auto = "auto"
    standard = "standard"
    robust = "robust"
    quantile = "quantile"
    whiten = "whiten"
    none = "none"


_TEXT, _DECISIONS = "Text files", "Decisions"
"""Titles of groups of options in the help."""

Model = Annotated[str, typer.Argument(help="A model file written by [bold]cavity fit[/bold].")]
Data = Annotated[
    str,
    typer.Argument(
        help="A CSV, TSV, JSON lines, Parquet, Feather or Excel file, a folder or pattern of them, a "
        "URL, or - for standard input."
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Number of threads; default: all cores.", min=1)
]
Weight = Annotated[
    str | None, typer.Option(help="Column of row weights: 2 counts a row twice, 0 leaves it out.")
]
Positive = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        rich_help_panel=_DECISIONS,
        help="The positive one of two classes; default: yes, true or 1, else the rarer one in training.",
    ),
]
PredictionOutput = Annotated[
    str,
    typer.Option("--output", "-o", help="A .parquet, .csv, .tsv or .jsonl file; - prints CSV."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="A column to copy to the output, such as an identifier; may be repeated."),
]
WithUncertainty = Annotated[
    bool,
    typer.Option(
        "--uncertainty",
        help="Add an interval of the probability, aleatoric and epistemic uncertainty, and how unlike "
        "the training rows a row is.",
    ),
]
Level = Annotated[
    float | None,
    typer.Option(help="Probability that an interval of --uncertainty holds; default: 0.9."),
]
ReportOutput = Annotated[str, typer.Option("--output", "-o", help="Where to write the HTML file.")]
Training = Annotated[
    str | None,
    typer.Option(help="The table of the fit: the report then shows its most surprising rows."),
]
DemoOutput = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Where to write the report; default: cavity-demo.html."),
]
EffectData = Annotated[
    str | None, typer.Argument(help="A table without need of a target, to average over its rows.")
]
Top = Annotated[int, typer.Option(help="Number of columns to show.", min=1)]
OnnxOutput = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Where to write; default: the model's name with .onnx."),
]
Host = Annotated[
    str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in, without passwords.")
]
Port = Annotated[
    int, typer.Option(help="Port to listen at; 0 takes one that is free.", min=0, max=65_535)
]
Seconds = Annotated[float, typer.Option(help="Limit of training, in seconds.", min=1.0)]


@dataclass(frozen=True)
class Reading:
    """How a text file is written, where its beginning does not tell."""

    sep: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_TEXT,
            help="Separator of the cells of a text file, such as ; or tab; default: found.",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_TEXT, help="Decimal sign of a text file, . or , ; default: found."
        ),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_TEXT, help="Encoding of a text file, such as cp1252; default: found."
        ),
    ] = None
    na: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_TEXT, help="A word for missing cells of a text file; may be repeated."
        ),
    ] = None


@dataclass(frozen=True)
class Deciding:
    """Which class is predicted, if it is not the likeliest one."""

    positive: Positive = None
    threshold: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_DECISIONS,
            help="Predict the positive class from this probability on, instead of 0.5.",
        ),
    ] = None
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRUE:PREDICTED=COST",
            rich_help_panel=_DECISIONS,
            help="Cost of a mistake, as in yes:no=5, where others cost 1; the label is the one of least "
            "expected cost. May be repeated.",
        ),
    ] = None


@dataclass(frozen=True)
class FitRequest:
    """Argument and options of `cavity fit`."""

    data: Data
    output_path: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Where to write the model; default: the table's name with .cavity."
        ),
    ] = None
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="The column to predict.", show_default=False)
    ] = None
    continue_from: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Add the rows of the table to what this model knows, instead of a new fit: every row "
            "counts alike, the old ones are not forgotten, and the model keeps its settings.",
        ),
    ] = None
    method: Annotated[Method, typer.Option(help="The method of inference.")] = Method.sep
    inducing: Annotated[
        str,
        typer.Option(
            metavar="auto|N",
            help="Number of inducing points; more are more accurate and slower. auto lets held-out rows "
            "choose it.",
        ),
    ] = "auto"
    leaves: Annotated[
        str,
        typer.Option(
            metavar="auto|none|N",
            help="Divide large tables into N parts with inducing points of their own; auto lets "
            "held-out rows choose.",
        ),
    ] = "auto"
    budget: Annotated[
        str | None,
        typer.Option(help="Limit of training: [bold]60s, 5m, 1h, '3 epochs', '100 iterations'[/bold]."),
    ] = None
    likelihood: Annotated[LikelihoodName, typer.Option(help="The likelihood of the labels.")] = (
        LikelihoodName.probit
    )
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = (
        None
    )
    categorical: Annotated[
        list[str] | None,
        typer.Option(help="A column of numbers to treat as categories; may be repeated."),
    ] = None
    weight: Weight = None
    scaling: Annotated[
        ScalingName,
        typer.Option(
            help="How columns are scaled: by their deviation, by quartiles (no outlier decides), by "
            "ranks, decorrelated, or not at all; auto lets held-out rows choose."
        ),
    ] = ScalingName.auto
    kernel: Annotated[
        KernelName,
        typer.Option(help="The kernel; auto lets held-out rows choose a Matérn or RBF kernel."),
    ] = KernelName.auto
    batch_size: Annotated[
        str,
        typer.Option(metavar="auto|N", help="Rows of a training step; auto depends on their number."),
    ] = "auto"
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="balanced|CLASS=W",
            help="Weight of the rows of a class; may be repeated. balanced makes classes count equally.",
        ),
    ] = None
    holdout: Annotated[
        float | None,
        typer.Option(help="Share of the rows, such as 0.2, to leave out of the fit and score it on."),
    ] = None
    cv: Annotated[
        int | None,
        typer.Option(
            help="Also fit this many times without one part of the rows each, and score it on that part."
        ),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="Train on this many Dask processes of this machine.", min=1)
    ] = None
    scheduler: Annotated[
        str | None, typer.Option(help="Train on the Dask cluster at this address (tcp://…).")
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the same fit after it was interrupted, also with another budget."
        ),
    ] = False
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0
    jobs: Jobs = None

    @property
    def output(self) -> str:
        """Where the model is written.

        >>> FitRequest("data/flights.csv.gz").output, FitRequest("flights.csv", "late.cavity").output
        ('flights.cavity', 'late.cavity')
        """
        if self.output_path is not None:
            return self.output_path
        stem = PurePath(self.data).name.partition(".")[0]
        if not stem.strip("-") or any(mark in stem for mark in "*?["):
            raise CommandError(f"{self.data} gives the model no name; name its file with -o")
        return f"{stem}.cavity"

    @property
    def distributed(self) -> bool:
        """Whether the fit runs on a Dask cluster."""
        return self.workers is not None or self.scheduler is not None
