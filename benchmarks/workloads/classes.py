"""Many classes: the built-in likelihood against one-vs-rest and GPflow, and what ten classes cost."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Dataset, Split, fixed, holdout, many_classes
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.workloads.large import OPTIONS, QUICK_SEARCH_SECONDS, SEARCH_SECONDS, searched
from cavity.data import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, one_blas_thread, thread_count
from cavity.gp.inducing import default_kernel
from cavity.gp.likelihoods import NoisyArgmax, Probit
from cavity.gp.parameters import ParameterSpace
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import SweepOptions
from cavity.inference.trainer import Batch, Trainer, make_problem
from cavity.inference.updates import NaturalUpdate

OURS = (
    Contender("cavity SEP", "cavity-sep"),
    Contender("cavity SEP, one-vs-rest", "cavity-sep", {"one_vs_rest": "ep"}),
    Contender("cavity SVI", "cavity-svi"),
    Contender("cavity SVI, one-vs-rest", "cavity-svi", {"one_vs_rest": "vi"}),
)
# For two classes GPflow has its Bernoulli likelihood, for more its robust maximum or softmax.
GPFLOW_TWO = OPTIONS["gpflow"]
GPFLOW_MANY = [
    {**option, "likelihood": likelihood}
    for option in OPTIONS["gpflow"]
    if option["minibatch"] == 1000
    for likelihood in ("robust maximum", "softmax")
]

CHOICE_STEPS = 300
"""Minibatch steps of each candidate. They are counted in steps, so that the machine has no influence."""


def _choice_table(repetitions: Sequence[Repetition]) -> str:
    rows = [r for r in repetitions if r.metrics]
    lines = ["| set | method | NLL | error | ECE |", "|---|---|---|---|---|"]
    lines += [
        f"| {r.dataset} | {r.label} | {r.metrics['nll']:.4f} | {100 * r.metrics['error']:.2f} % "
        f"| {r.metrics['ece']:.4f} |"
        for r in rows
    ]
    return "\n".join(lines)


def _cost_table(repetitions: Sequence[Repetition]) -> str:
    found = [r.extra for r in repetitions if "ratio" in r.extra]
    lines = [
        f"two classes {f['two']:.3f} s a step, ten {f['ten']:.3f} s: {f['ratio']:.2f} times"
        for f in found
    ]
    return "\n\n".join(lines)


def _many_table(repetitions: Sequence[Repetition]) -> str:
    """NLL by set, and what the search of the peer chose."""
    words = tables.choices(repetitions)
    table = tables.by_dataset(repetitions) + tables.failures(repetitions)
    return table + ("\n\n" + words if words else "")


@benchmark(
    "classes",
    "many classes: the multinomial probit against one-vs-rest, the same steps",
    table=_choice_table,
    timed=False,
    minutes=4,
)
def run(context: Context) -> None:
    """Short fits of each candidate, scored on rows held out of training."""
    m = 100
    sets: list[tuple[Split, dict[str, Any]]] = [
        (digits(), {"scaling": None, "max_epochs": 10 if context.quick else 100})
    ]
    large: list[tuple[Split, dict[str, Any]]] = []
    if not context.quick:
        large = [(for_choices(holdout("covtype", 10_000), 50_000), {})]
        large += [(for_choices(fixed("mnist"), 60_000), {"scaling": None})]
    for split, parameters in large:
        epochs = CHOICE_STEPS * 5 * m / len(split.train.y)
        sets.append((split, {**parameters, "max_epochs": epochs}))
    context.expect(len(sets) * len(OURS))
    for split, parameters in sets:
        for contender in OURS:
            context.measure(contender, split, {"m": m, "seed": 0, "parameters": parameters})


def step_seconds(n_classes: int, m: int, d: int, repeats: int) -> float:
    """Best of some minibatch steps of 5m rows, everything included, on random rows of d features."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5 * m, d)).astype(np.float32)
    labels = (X[:, :n_classes].argmax(axis=1) if n_classes > 2 else X[:, 0] > 0).astype(np.int8)
    threads = Threads(thread_count(None))
    rule = ExpectationPropagation(Probit() if n_classes == 2 else NoisyArgmax(n_classes))
    engine = LocalEngine(ArraySource(X, labels), Scaling.identity(d), rule.n_latents, threads)
    space = ParameterSpace(default_kernel(d, np.sqrt(2.0 * d)), X[:m].astype(np.float64))
    trainer = Trainer(
        make_problem(engine, rule, space, 1.0),
        Adam(0.02),
        SweepOptions(max_leverage=0.5),
        NaturalUpdate(threads.map),
    )
    batch = Batch(next(iter(engine.source.batches(5 * m, rng))), gain=0.05)
    state, best = trainer.init(), np.inf
    with one_blas_thread, np.errstate(all="ignore"):
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            state, _ = trainer.step(state, batch)
            best = min(best, time.perf_counter() - begin)
    threads.close()
    return best


@benchmark(
    "class-cost",
    "one minibatch step with two and with ten classes: MNIST's shape, m = 500",
    table=_cost_table,
    minutes=1,
)
def cost(context: Context) -> None:
    """Seconds a step, and their ratio: what ten classes cost."""
    m, repeats = (100, 3) if context.quick else (500, 10)

    def measured() -> dict[str, float]:
        two, ten = (step_seconds(n_classes, m, 784, repeats) for n_classes in (2, 10))
        return {"m": m, "two": two, "ten": ten, "ratio": ten / two}

    context.expect(1)
    context.note("ratio", measured)


@benchmark(
    "mnist-classes",
    "MNIST ten classes, m = 500, 600 s: test NLL and error",
    table=tables.by_method,
    minutes=11,
)
def mnist(context: Context) -> None:
    """The goal is an error of at most 2.0 % and an NLL of at most 0.08."""
    settings = {"m": 500, "seed": 0, "parameters": {"scaling": None}}
    split = many_classes(fixed("mnist"))
    context.expect(1)
    context.measure(OURS[0], split, settings, context.seconds(600.0, quick=8.0))


@benchmark(
    "covtype-classes",
    "covertype, two and seven classes, m = 200, 60 s: SEP, SVI and GPflow's SVGP at its best",
    table=_many_table,
    minutes=18,
)
def covtype(context: Context) -> None:
    """All rows but 10,000; the same inducing points to start from, the same time."""
    budget = context.seconds(60.0, quick=3.0)
    split = holdout("covtype", 10_000)
    ours = (OURS[0], OURS[2])
    options, seconds = (GPFLOW_TWO, GPFLOW_MANY), SEARCH_SECONDS
    if context.quick:
        ours, options, seconds = ours[:1], (GPFLOW_TWO[:1], GPFLOW_MANY[1:2]), QUICK_SEARCH_SECONDS
    context.expect(2 * (len(ours) + 1))
    for here, n_classes, own in zip((split, many_classes(split)), (2, 7), options, strict=True):
        settings = {"m": 200, "seed": 0}
        for contender in ours:
            context.measure(contender, here, settings, budget)
        peer = searched("GPflow, searched", "gpflow", own, seconds, classes=n_classes)
        context.measure(peer, here, settings, budget)


def digits() -> Split:
    """scikit-learn's digits, 600 of them held out."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order] / 16.0, y[order].astype(np.int8)
    train, test = Dataset(X[600:], y[600:], "digits"), Dataset(X[:600], y[:600], "digits")
    return Split(train, test, 0)


def for_choices(split: Split, n: int, *, many: bool = True) -> Split:
    """n of the training rows, 5,000 of them in place of the test rows, for choices between methods."""
    train = (many_classes(split) if many else split).train
    order = np.random.default_rng(0).permutation(len(train.y))[:n]
    return Split(train.take(order[5_000:]), train.take(order[:5_000]), 0)
