"""The arguments and options of the commands: their names, types and words."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Method(str, Enum):
    """The classifiers."""

    sep = "sep"
    svi = "svi"
    gfitc = "gfitc"


class LikelihoodName(str, Enum):
    """The likelihoods."""

    probit = "probit"
    logit = "logit"


Model = Annotated[str, typer.Argument(help="A model that [bold]cavity fit[/bold] has written.")]
Data = Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file, a folder of them, or a URL.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for machines.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace an output that exists.")]
Jobs = Annotated[int | None, typer.Option(help="Threads; all cores by default.", min=1)]

Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]
ModelOutput = Annotated[str, typer.Option("--output", "-o", help="Where to write the model.")]
FitMethod = Annotated[Method, typer.Option(help="How to fit.")]
Inducing = Annotated[int, typer.Option(help="Inducing points: more are better and slower.", min=1)]
Budget = Annotated[
    str | None,
    typer.Option(help="Training at most: [bold]60s, 5m, 1h, '3 epochs', '100 iterations'[/bold]."),
]
Likelihood = Annotated[LikelihoodName, typer.Option(help="Link of latent function and label.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="A column of numbers that are codes; may be repeated.")
]
Weight = Annotated[
    str | None, typer.Option(help="A column that says how much each row counts: 2 is two copies.")
]
Whiten = Annotated[
    bool,
    typer.Option("--whiten", help="Tell apart columns that go together, as a distance and its time do."),
]
Workers = Annotated[
    int | None, typer.Option(help="Train on so many Dask processes of this machine.", min=1)
]
Scheduler = Annotated[
    str | None, typer.Option(help="Train on the Dask cluster at this address (tcp://…).")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from where the same fit was stopped.")]
Seed = Annotated[int, typer.Option(help="Of all random choices.", min=0)]

PredictionOutput = Annotated[
    str,
    typer.Option("--output", "-o", help="A .parquet, .csv or .tsv file; - is CSV on standard output."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="A column to copy to the output, such as an identifier; may be repeated."),
]
ReportOutput = Annotated[str, typer.Option("--output", "-o", help="Where to write the HTML file.")]
Training = Annotated[
    str | None,
    typer.Option(help="The table of the fit: its most surprising rows are shown too."),
]
DemoOutput = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Where to write the report; cavity-demo.html by default."),
]
Seconds = Annotated[float, typer.Option(help="Training at most.", min=1.0)]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke test.")]
