"""The commands and their options; the work is done elsewhere, and imported when it is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from cavity.cli import options as the
from cavity.cli import settings
from cavity.cli.guard import CommandError, guarded
from cavity.version import __version__

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
    data: the.Data,
    target: the.Target,
    output: the.ModelOutput,
    method: the.FitMethod = the.Method.sep,
    inducing: the.Inducing = 100,
    budget: the.Budget = None,
    likelihood: the.Likelihood = the.LikelihoodName.probit,
    drop: the.Drop = None,
    categorical: the.Categorical = None,
    weight: the.Weight = None,
    whiten: the.Whiten = False,
    workers: the.Workers = None,
    scheduler: the.Scheduler = None,
    resume: the.Resume = False,
    seed: the.Seed = 0,
    jobs: the.Jobs = None,
    force: the.Force = False,
    json: the.Json = False,
) -> None:
    """Fit a classifier to a table and save it.

    Columns may be numbers, strings, truth values or dates, with missing cells; files may be larger than
    memory. What was done with each column is in [bold]cavity inspect[/bold].
    """
    from cavity.cli.fitting import FitRequest, run_fit

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
    model: the.Model,
    data: the.Data,
    output: the.PredictionOutput = "-",
    keep: the.Keep = None,
    jobs: the.Jobs = None,
    force: the.Force = False,
    json: the.Json = False,
) -> None:
    """Predict every row of a table: label, probability, latent mean and variance."""
    from cavity.cli.predicting import run_predict

    run_predict(model, data, output, tuple(keep or ()), jobs, force, json)


@app.command()
@guarded
def evaluate(
    model: the.Model,
    data: the.Data,
    weight: the.Weight = None,
    jobs: the.Jobs = None,
    json: the.Json = False,
) -> None:
    """Score a model on a table that has the target: NLL, error, Brier, calibration, AUC."""
    from cavity.cli.evaluating import run_evaluate

    run_evaluate(model, data, weight, jobs, json)


@app.command()
@guarded
def report(
    model: the.Model,
    data: the.Data,
    output: the.ReportOutput,
    training: the.Training = None,
    force: the.Force = False,
    json: the.Json = False,
) -> None:
    """Write a report on a model and a table with the target: one HTML file, no network needed."""
    from cavity.cli.reporting import run_report

    run_report(model, data, output, training, force, json)


@app.command()
@guarded
def inspect(model: the.Model, json: the.Json = False) -> None:
    """Tell what is in a model file: columns, kernel, training, versions."""
    from cavity.cli.inspecting import run_inspect

    run_inspect(model, json)


@app.command()
@guarded
def demo(
    output: the.DemoOutput = None,
    seconds: the.Seconds = 40.0,
    force: the.Force = False,
    json: the.Json = False,
) -> None:
    """Which flights out of New York arrive late? Train, compare and explain, in a minute."""
    from cavity.cli.demo import run_demo

    run_demo(output, seconds, force, json)


def _benchmark_names() -> list[str]:
    from cavity.cli.reproducing import benchmark_names

    return benchmark_names()


@app.command()
@guarded
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="A benchmark; without it, their names.", autocompletion=_benchmark_names),
    ] = None,
    quick: the.Quick = False,
) -> None:
    """Run one of the project's benchmarks again (in a checkout of the repository)."""
    from cavity.cli.reproducing import run_reproduce

    run_reproduce(name, quick)
