"""Seven small sets, as in the paper's Table 1: which default is the better classifier?

The record file also holds our fits at an earlier commit with other defaults. No run repeats them.
"""

from collections.abc import Sequence
from statistics import fmean

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import UCI, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

INDUCING_FRACTION = 0.15
SPLITS = 5
EARLIER = "5cfd0f9"
LEAST_GAIN, LARGEST_SECONDS = 0.02, 0.5
"""Goals: by how much the mean NLL is lower than at the earlier commit, and the seconds of a fit."""

CONTENDERS = (
    Contender("cavity SEP", "cavity-sep"),
    Contender("cavity SVI", "cavity-svi"),
    Contender("cavity GFITC", "cavity-gfitc"),
    Contender("GPflow SVGP, L-BFGS", "gpflow-lbfgs", {"steps": 250}),
    Contender("GPyTorch SVGP, Adam", "gpytorch-adam", {"steps": 500}),
    Contender("GPyTorch SVGP, NGD", "gpytorch-ngd", {"steps": 500, "gamma": 0.1}),
    Contender("scikit-learn GPC", "sklearn-gpc"),
    Contender("GPBoost, FITC", "gpboost-fitc"),
    Contender("logistic regression", "logistic"),
)


def _table(repetitions: Sequence[Repetition]) -> str:
    """Set by set, then all sets together with steps a second and peak memory."""
    measures = tables.by_method(repetitions) + tables.first_steps(repetitions)
    return tables.by_dataset(repetitions) + _verdict(repetitions) + "\n\n" + measures


def _verdict(repetitions: Sequence[Repetition]) -> str:
    """Our default beside that of the earlier commit, on the splits that both have."""
    label = CONTENDERS[0].label
    now, before = (
        {(r.dataset, r.split): r for r in repetitions if r.label == name and r.failure is None}
        for name in (label, f"{label} at {EARLIER}")
    )
    both = sorted(set(now) & set(before))
    if not both:
        return ""
    (nll, seconds), (nll_before, seconds_before) = (
        (
            fmean(
                fmean(fits[key].metrics["nll"] for key in both if key[0] == dataset)
                for dataset in {dataset for dataset, _ in both}
            ),
            fmean(fits[key].seconds or 0.0 for key in both),
        )
        for fits in (now, before)
    )
    gain = 1.0 - nll / nll_before
    met = gain >= LEAST_GAIN and seconds <= LARGEST_SECONDS
    return (
        f"\n\n{label}, mean NLL and seconds of a fit on {len(both)} splits: {nll_before:.4f} and "
        f"{seconds_before:.2f} s at {EARLIER}, {nll:.4f} and {seconds:.2f} s now: {100 * gain:.1f} % "
        f"lower. At least {100 * LEAST_GAIN:.0f} % in at most {LARGEST_SECONDS:g} s: "
        f"{'met' if met else '**missed**'}."
    )


@benchmark(
    "uci",
    "seven UCI sets, five 90/10 splits, m = 15 % of n: test NLL and seconds a fit",
    table=_table,
)
def run(context: Context) -> None:
    """Every contender on every split, from the same inducing points and lengthscale."""
    names, n_splits = ("heart",) if context.quick else UCI, context.repetitions(SPLITS, quick=1)
    context.expect(len(names) * n_splits * len(CONTENDERS))
    for name in names:
        for split in splits(name, n_splits):
            n = len(split.train.y) + len(split.test.y)
            # One thread: these matrices are small, and a second thread slows every library down.
            settings = {"m": round(INDUCING_FRACTION * n), "seed": split.index, "threads": 1}
            for contender in CONTENDERS:
                context.measure(contender, split, settings, context.budget)
