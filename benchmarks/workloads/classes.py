"""Many classes: the built-in likelihood against one-vs-rest and GPflow, and what ten classes cost."""

import numpy as np
from sklearn.datasets import load_digits

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Dataset, Split, fixed, holdout, many_classes
from benchmarks.methods import Contender
from benchmarks.registry import benchmark

OURS = (
    Contender("cavity SEP", "cavity-sep"),
    Contender("cavity SEP, one-vs-rest", "cavity-sep", {"one_vs_rest": "ep"}),
    Contender("cavity SVI", "cavity-svi"),
    Contender("cavity SVI, one-vs-rest", "cavity-svi", {"one_vs_rest": "vi"}),
)
GPFLOW = (
    Contender("GPflow Adam, robust max", "gpflow-adam", {"minibatch": 1000}),
    Contender("GPflow NatGrad, robust max", "gpflow-natgrad", {"minibatch": 1000, "gamma": 0.02}),
    Contender("GPflow Adam, softmax", "gpflow-adam", {"minibatch": 1000, "likelihood": "softmax"}),
)
COST_STEPS = 30


CHOICE_STEPS = 300
"""Minibatch steps of each candidate: steps, not seconds, so that a busy machine changes nothing."""


@benchmark("classes", "many classes: the multinomial probit against one-vs-rest, the same steps")
def run(context: Context) -> None:
    """Short fits of each candidate, scored on rows held out of training: a basis for the choice."""
    m, steps = 100, 20 if context.quick else CHOICE_STEPS
    sets = [(_digits(), {"standardize": False, "max_iter": 10 if context.quick else 100})]
    large = [(_choice(holdout("covtype", 5_000), 50_000), {})]
    large += [(_choice(fixed("mnist"), 60_000), {"standardize": False})]
    for split, parameters in large:
        epochs = steps * 5 * m / len(split.train.y)
        sets.append((split, {**parameters, "max_epochs": epochs}))
    for split, parameters in sets:
        for contender in OURS:
            context.measure(contender, split, {"m": m, "seed": 0, "parameters": parameters})
    print(_choice_table(context))


@benchmark("class_cost", "one binary fit and one of ten classes, MNIST, m = 500, the same steps")
def cost(context: Context) -> None:
    """Training seconds of the same number of minibatch steps; the ratio is what ten classes cost."""
    m = 100 if context.quick else 500
    binary = fixed("mnist")
    share = COST_STEPS * 5 * m / len(binary.train.y)
    settings = {
        "m": m,
        "seed": 0,
        "parameters": {"standardize": False, "batch_size": 5 * m, "max_epochs": share},
    }
    for split in (binary, many_classes(binary)):
        context.measure(Contender("cavity SEP", "cavity-sep"), split, settings)
    seconds = {r.dataset: r.seconds for r in context.recorded() if r.settings == settings}
    ratio = seconds["mnist-classes"] / seconds["mnist"]
    print(f"ten classes cost {ratio:.2f} times one binary fit, {ratio / 10:.2f} a class")
    context.note("ratio", {"ratio": ratio, "m": m})


@benchmark("mnist_classes", "MNIST ten classes, m = 500, 600 s: test NLL and error")
def mnist(context: Context) -> None:
    """The figure to reach: error at most 2.0 %, NLL at most 0.08."""
    settings = {"m": 500, "seed": 0, "parameters": {"standardize": False}}
    split = many_classes(fixed("mnist"))
    context.measure(OURS[0], split, settings, context.seconds(600.0, quick=30.0))
    print(tables.by_method(context.recorded()))


@benchmark("covtype_classes", "covertype, two and seven classes, m = 200, 120 s: SEP and GPflow's SVGP")
def covtype(context: Context) -> None:
    """All rows but 10,000; the same inducing points to start from, the same time."""
    budget = context.seconds(120.0, quick=10.0)
    split = holdout("covtype", 10_000)
    for here, n_classes in ((split, 2), (many_classes(split), 7)):
        settings = {"m": 200, "seed": 0}
        for contender in (OURS[0], OURS[2]):
            context.measure(contender, here, settings, budget)
        for contender in GPFLOW if n_classes > 2 else GPFLOW[:2]:
            context.measure(contender, here, {**settings, "classes": n_classes}, budget)
    print(tables.by_dataset(context.recorded()))


def _digits() -> Split:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order] / 16.0, y[order].astype(np.int8)
    train, test = Dataset(X[600:], y[600:], "digits"), Dataset(X[:600], y[:600], "digits")
    return Split(train, test, 0)


def _choice(split: Split, n: int) -> Split:
    """n of the training rows, 5,000 of them in place of the test rows: for choices, not for results."""
    train = many_classes(split).train
    order = np.random.default_rng(0).permutation(len(train.y))[:n]
    return Split(train.take(order[5_000:]), train.take(order[:5_000]), 0)


def _choice_table(context: Context) -> str:
    rows = [r for r in context.recorded() if r.metrics]
    lines = ["| set | method | NLL | error | ECE |", "|---|---|---|---|---|"]
    lines += [
        f"| {r.dataset} | {r.label} | {r.metrics['nll']:.4f} | {100 * r.metrics['error']:.2f} % "
        f"| {r.metrics['ece']:.4f} |"
        for r in rows
    ]
    return "\n".join(lines)
