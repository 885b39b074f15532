"""Commands of `cavity`.

Each command imports the module that does its work when it runs, so that `cavity --help` loads no NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cavity.cli.guard import BAD_INPUT, CommandError, OutputSettings, Settings, expanded, failed, guarded
from cavity.cli.options import (
    Data,
    Deciding,
    DemoOutput,
    EffectData,
    FitRequest,
    Host,
    Jobs,
    Keep,
    Level,
    Model,
    OnnxOutput,
    Port,
    Positive,
    PredictionOutput,
    Reading,
    ReportOutput,
    Seconds,
    Top,
    Training,
    Weight,
    WithUncertainty,
)
from cavity.version import __version__

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
        **extra: object,
    ) -> object:
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

    def invoke(self, ctx: Any) -> object:
        """Run the command that the words name; some versions of typer put the type of an error first."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            error.message = str(error.message).removeprefix("Value error, ")
            raise


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
@expanded
def shared(
    context: typer.Context,
    settings: OutputSettings,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Accept the shared options before the name of a command."""
    context.obj = settings


@app.command()
@guarded
def fit(request: FitRequest, reading: Reading, settings: OutputSettings) -> None:
    """Fit a classifier to a table and save it.

    Columns may hold numbers, strings, truth values or dates, with missing cells.
    Files may be larger than memory. [bold]cavity inspect[/bold] shows how each column is used.

    Ctrl-C saves the model as far as it has come; [bold]--resume[/bold] goes on from there.
    """
    if request.continue_from is not None:
        from cavity.cli.continuing import run_continued_fit

        run_continued_fit(request, reading, settings)
        return
    from cavity.cli.fit import run_fit

    run_fit(request, reading, settings)


@app.command()
@guarded
def predict(
    model: Model,
    data: Data,
    reading: Reading,
    deciding: Deciding,
    settings: OutputSettings,
    output: PredictionOutput = "-",
    keep: Keep = None,
    uncertainty: WithUncertainty = False,
    level: Level = None,
    jobs: Jobs = None,
) -> None:
    """Predict every row of a table: label, probability, latent mean and variance."""
    from cavity.cli.predict import run_predict

    if level is not None and not uncertainty:
        raise CommandError(
            f"--level {level:g} sets the intervals of --uncertainty; give --uncertainty, too, or leave "
            "--level out"
        )
    if uncertainty and level is None:
        level = 0.9
    run_predict(model, data, output, tuple(keep or ()), level, jobs, reading, deciding, settings)


@app.command()
@guarded
def evaluate(
    model: Model,
    data: Data,
    reading: Reading,
    deciding: Deciding,
    settings: Settings,
    weight: Weight = None,
    jobs: Jobs = None,
) -> None:
    """Score a model on a table that has the target: NLL, error, Brier, calibration, AUC."""
    from cavity.cli.predict import run_evaluate

    run_evaluate(model, data, weight, jobs, reading, deciding, settings)


@app.command()
@guarded
def report(
    model: Model,
    data: Data,
    output: ReportOutput,
    reading: Reading,
    settings: OutputSettings,
    training: Training = None,
) -> None:
    """Write a report on a model and a table that has the target, as one HTML file."""
    from cavity.cli.predict import run_report

    run_report(model, data, output, training, reading, settings)


@app.command()
@guarded
def inspect(model: Model, settings: Settings) -> None:
    """Show what a model file holds: columns, kernel, training, versions."""
    from cavity.cli.inspect import run_inspect

    run_inspect(model, settings)


@app.command()
@guarded
def explain(
    model: Model,
    reading: Reading,
    settings: Settings,
    data: EffectData = None,
    top: Top = 10,
    positive: Positive = None,
    jobs: Jobs = None,
) -> None:
    """Show which columns matter and, on a table, how the probability depends on each."""
    from cavity.cli.inspect import run_explain

    run_explain(model, data, top, positive, jobs, reading, settings)


@app.command()
@guarded
def export(model: Model, settings: OutputSettings, output: OnnxOutput = None) -> None:
    """Write a model as an ONNX file, with the preparation of its columns."""
    from cavity.cli.inspect import run_export

    run_export(model, output, settings)


@app.command()
@guarded
def serve(
    model: Model,
    settings: Settings,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    jobs: Jobs = None,
) -> None:
    """Answer requests for predictions over HTTP, and show a page to try rows on.

    Only programs on this machine reach the service, unless [bold]--host[/bold] says otherwise.
    """
    from cavity.cli.serve import run_serve

    run_serve(model, host, port, jobs, settings)


@app.command()
@guarded
def demo(settings: OutputSettings, output: DemoOutput = None, seconds: Seconds = 40.0) -> None:
    """Predict which flights out of New York arrive late, compare and explain, in a minute."""
    from cavity.cli.demo import run_demo

    run_demo(output, seconds, settings)
