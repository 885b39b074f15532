"""Commands of `cavity` and their options.

Each command imports the module that does its work when it runs, so that `cavity --help` loads no NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cavity.cli.guard import BAD_INPUT, CommandError, Settings, failed, guarded
from cavity.version import __version__


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


def _remember(context: typer.Context, option: typer.CallbackParam, given: bool) -> bool:
    """Note a shared option in the context of the command, which starts with that of `cavity` itself."""
    settings = context.obj or Settings()
    if given:
        settings = replace(settings, **{str(option.name): True})
    context.obj = settings
    return given


# Options that every command shares: they may stand before the command's name or after it.
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", callback=_remember)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.", callback=_remember)]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_remember)
]
Force = Annotated[
    bool, typer.Option("--force", "-f", help="Replace an output file that exists.", callback=_remember)
]

Model = Annotated[str, typer.Argument(help="A model file written by [bold]cavity fit[/bold].")]
Data = Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file, a folder of them, or a URL.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Number of threads; default: all cores.", min=1)
]
Weight = Annotated[
    str | None, typer.Option(help="Column of row weights: 2 counts a row twice, 0 leaves it out.")
]

Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]
ModelOutput = Annotated[str, typer.Option("--output", "-o", help="Where to write the model.")]
FitMethod = Annotated[Method, typer.Option(help="The method of inference.")]
Inducing = Annotated[
    str,
    typer.Option(
        metavar="auto|N",
        help="Number of inducing points; more are more accurate and slower. auto lets held-out rows "
        "choose it.",
    ),
]
BatchSize = Annotated[
    str, typer.Option(metavar="auto|N", help="Rows of a training step; auto depends on their number.")
]
Kernel = Annotated[
    KernelName, typer.Option(help="The kernel; auto lets held-out rows choose a Matérn or RBF kernel.")
]
ClassWeights = Annotated[
    list[str] | None,
    typer.Option(
        metavar="balanced|CLASS=W",
        help="Weight of the rows of a class; may be repeated. balanced makes classes count equally.",
    ),
]
Holdout = Annotated[
    float | None,
    typer.Option(help="Share of the rows, such as 0.2, to leave out of the fit and score it on."),
]
Folds = Annotated[
    int | None,
    typer.Option(
        help="Also fit this many times without one part of the rows each, and score it on that part."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(help="Limit of training: [bold]60s, 5m, 1h, '3 epochs', '100 iterations'[/bold]."),
]
Likelihood = Annotated[LikelihoodName, typer.Option(help="The likelihood of the labels.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="A column of numbers to treat as categories; may be repeated."),
]
Scaling = Annotated[
    ScalingName,
    typer.Option(
        help="How columns are scaled: by their deviation, by quartiles (no outlier decides), by ranks, "
        "decorrelated, or not at all; auto lets held-out rows choose."
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="Train on this many Dask processes of this machine.", min=1)
]
Scheduler = Annotated[
    str | None, typer.Option(help="Train on the Dask cluster at this address (tcp://…).")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the same fit after it was interrupted.")
]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]

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
Level = Annotated[float, typer.Option(help="Probability that an interval holds.")]
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


# typer uses click, or from some version on a copy of its own.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class Commands(TyperGroup):
    """The commands; with `--json`, usage that is not understood is told as JSON too."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and leave with its exit status."""
        words = list(sys.argv[1:] if args is None else args)
        as_json = standalone_mode and "--json" in words
        try:
            status = super().main(
                words,
                prog_name,
                complete_var,
                standalone_mode and not as_json,
                windows_expand_args,
                **extra,
            )
        except _UsageError as error:
            if not as_json:
                raise
            sys.exit(failed(str(error.format_message()), BAD_INPUT, json=True))
        if as_json:
            sys.exit(status if isinstance(status, int) else 0)
        return status


app = typer.Typer(
    name="cavity",
    cls=Commands,
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
def shared(
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Accept the shared options before the name of a command."""


@app.command()
@guarded
def fit(
    context: typer.Context,
    data: Data,
    target: Target,
    output: ModelOutput,
    method: FitMethod = Method.sep,
    n_inducing: Inducing = "auto",
    budget: Budget = None,
    likelihood: Likelihood = LikelihoodName.probit,
    drop: Drop = None,
    categorical: Categorical = None,
    weight: Weight = None,
    scaling: Scaling = ScalingName.auto,
    kernel: Kernel = KernelName.auto,
    batch_size: BatchSize = "auto",
    class_weight: ClassWeights = None,
    holdout: Holdout = None,
    cv: Folds = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    seed: Seed = 0,
    jobs: Jobs = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit a classifier to a table and save it.

    Columns may hold numbers, strings, truth values or dates, with missing cells.
    Files may be larger than memory. [bold]cavity inspect[/bold] shows how each column is used.
    """
    from cavity.cli.fit import FitRequest, run_fit

    if workers is not None and scheduler is not None:
        raise CommandError(
            "--workers starts a cluster and --scheduler uses one that is running; give only one of them"
        )
    request = FitRequest(
        data,
        target,
        output,
        method=method.value,
        n_inducing=n_inducing,
        budget=budget,
        likelihood=likelihood.value,
        drop=tuple(drop or ()),
        categorical=tuple(categorical or ()),
        weight=weight,
        scaling=scaling.value,
        kernel=kernel.value,
        batch_size=batch_size,
        class_weight=tuple(class_weight or ()),
        holdout=holdout,
        cv=cv,
        workers=workers,
        scheduler=scheduler,
        resume=resume,
        seed=seed,
        jobs=jobs,
    )
    run_fit(request, context.obj)


@app.command()
@guarded
def predict(
    context: typer.Context,
    model: Model,
    data: Data,
    output: PredictionOutput = "-",
    keep: Keep = None,
    uncertainty: WithUncertainty = False,
    level: Level = 0.9,
    jobs: Jobs = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict every row of a table: label, probability, latent mean and variance."""
    from cavity.cli.predict import run_predict

    of_interval = level if uncertainty else None
    run_predict(model, data, output, tuple(keep or ()), of_interval, jobs, context.obj)


@app.command()
@guarded
def evaluate(
    context: typer.Context,
    model: Model,
    data: Data,
    weight: Weight = None,
    jobs: Jobs = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score a model on a table that has the target: NLL, error, Brier, calibration, AUC."""
    from cavity.cli.predict import run_evaluate

    run_evaluate(model, data, weight, jobs, context.obj)


@app.command()
@guarded
def report(
    context: typer.Context,
    model: Model,
    data: Data,
    output: ReportOutput,
    training: Training = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a report on a model and a table that has the target, as one HTML file."""
    from cavity.cli.predict import run_report

    run_report(model, data, output, training, context.obj)


@app.command()
@guarded
def inspect(
    context: typer.Context,
    model: Model,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show what a model file holds: columns, kernel, training, versions."""
    from cavity.cli.inspect import run_inspect

    run_inspect(model, context.obj)


@app.command()
@guarded
def explain(
    context: typer.Context,
    model: Model,
    data: EffectData = None,
    top: Top = 10,
    jobs: Jobs = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show which columns matter and, on a table, how the probability depends on each."""
    from cavity.cli.explain import run_explain

    run_explain(model, data, top, jobs, context.obj)


@app.command()
@guarded
def export(
    context: typer.Context,
    model: Model,
    output: OnnxOutput = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a model as an ONNX file, with the preparation of its columns."""
    from cavity.cli.inspect import run_export

    run_export(model, output, context.obj)


@app.command()
@guarded
def serve(
    context: typer.Context,
    model: Model,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    jobs: Jobs = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Answer requests for predictions over HTTP, and show a page to try rows on.

    Only programs on this machine reach the service, unless [bold]--host[/bold] says otherwise.
    """
    from cavity.cli.serve import run_serve

    run_serve(model, host, port, jobs, context.obj)


@app.command()
@guarded
def demo(
    context: typer.Context,
    output: DemoOutput = None,
    seconds: Seconds = 40.0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict which flights out of New York arrive late, compare and explain, in a minute."""
    from cavity.cli.demo import run_demo

    run_demo(output, seconds, context.obj)
