"""The arguments and options of the commands: their names, types and words.

The commands and their options; the work is done elsewhere, and imported when it is asked for.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from cavity.cli import settings
from cavity.cli.guard import CommandError, guarded
from cavity.version import __version__


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


app = typer.Typer(
    name="cavity",
    help="Gaussian process classification of tables of any size, with calibrated probabilities.",
    epilog="Exit status: 0 done, 1 failed, 2 bad usage or input, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"cavity {__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """What every command understands."""
    settings.debug, settings.quiet = debug, quiet


@app.command()
@guarded
def fit(
    data: Data,
    target: Target,
    output: ModelOutput,
    method: FitMethod = Method.sep,
    inducing: Inducing = 100,
    budget: Budget = None,
    likelihood: Likelihood = LikelihoodName.probit,
    drop: Drop = None,
    categorical: Categorical = None,
    weight: Weight = None,
    whiten: Whiten = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    seed: Seed = 0,
    jobs: Jobs = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fit a classifier to a table and save it.

    Columns may be numbers, strings, truth values or dates, with missing cells; files may be larger than
    memory. What was done with each column is in [bold]cavity inspect[/bold].
    """
    from cavity.cli.fit import FitRequest, run_fit

    if workers is not None and scheduler is not None:
        raise CommandError("--workers makes a cluster and --scheduler names one; give one of them")
    run_fit(
        FitRequest(
            data,
            target,
            output,
            method=method.value,
            inducing=inducing,
            budget=budget,
            likelihood=likelihood.value,
            drop=tuple(drop or ()),
            categorical=tuple(categorical or ()),
            weight=weight,
            whiten=whiten,
            workers=workers,
            scheduler=scheduler,
            resume=resume,
            seed=seed,
            jobs=jobs,
            force=force,
        ),
        json,
    )


@app.command()
@guarded
def predict(
    model: Model,
    data: Data,
    output: PredictionOutput = "-",
    keep: Keep = None,
    jobs: Jobs = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict every row of a table: label, probability, latent mean and variance."""
    from cavity.cli.predict import run_predict

    run_predict(model, data, output, tuple(keep or ()), jobs, force, json)


@app.command()
@guarded
def evaluate(
    model: Model,
    data: Data,
    weight: Weight = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Score a model on a table that has the target: NLL, error, Brier, calibration, AUC."""
    from cavity.cli.evaluate import run_evaluate

    run_evaluate(model, data, weight, jobs, json)


@app.command()
@guarded
def report(
    model: Model,
    data: Data,
    output: ReportOutput,
    training: Training = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a report on a model and a table with the target: one HTML file, no network needed."""
    from cavity.cli.evaluate import run_report

    run_report(model, data, output, training, force, json)


@app.command()
@guarded
def inspect(model: Model, json: Json = False) -> None:
    """Tell what is in a model file: columns, kernel, training, versions."""
    from cavity.cli.inspect import run_inspect

    run_inspect(model, json)


@app.command()
@guarded
def demo(
    output: DemoOutput = None,
    seconds: Seconds = 40.0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Which flights out of New York arrive late? Train, compare and explain, in a minute."""
    from cavity.cli.demo import run_demo

    run_demo(output, seconds, force, json)


def _benchmark_names() -> list[str]:
    from cavity.cli.demo import benchmark_names

    return benchmark_names()


@app.command()
@guarded
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="A benchmark; without it, their names.", autocompletion=_benchmark_names),
    ] = None,
    quick: Quick = False,
) -> None:
    """Run one of the project's benchmarks again (in a checkout of the repository)."""
    from cavity.cli.demo import run_reproduce

    run_reproduce(name, quick)
