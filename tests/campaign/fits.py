"""Fit small random problems, many of them extreme, and see whether every number is finite.

From the folder `tests`:

    python -m campaign.fits --seed 0 --count 10000
    python -m campaign.fits --seed 0 --only 4711

A fit must either end with attributes and predictions that are all finite, in probabilities that sum to
one, or be refused in words by a ValueError or an error of `cavity.errors`. Any other exception, a number
that is not finite, a RuntimeWarning and more than `SECONDS` are failures. Predictions are made at
training rows, at rows as far away as their type allows, and at rows next to zero.
"""

import sys
import warnings

import numpy as np
from scipy import sparse
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

import cavity
from campaign.runner import TooSlowError, at_most, main, unexpected
from cavity.errors import NumericalError
from cavity.inference import Adadelta, Adam
from support import make

SECONDS = 10
"""Longest time that one fit and its predictions may take."""
FITTED, REFUSED = "fitted", "refused"
"""What may come out."""
KINDS = ["SEP", "SVI", "stream", "GFITC"]
"""Kinds of fits."""


def number(rng, low, high):
    """A number between powers of ten."""
    return float(10.0 ** rng.uniform(low, high))


# Rows.

COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "integers": lambda rng, n: rng.integers(-3, 9, n).astype(float),
    "flags": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.05, rng.normal(size=n), 0.0),
    "constant": lambda rng, n: np.full(n, rng.choice([0.0, 1.0, -1e300, 5e-324, 0.1])),
    "scaled": lambda rng, n: number(rng, -30, 30) * rng.normal(size=n),
    "offset": lambda rng, n: number(rng, 3, 17) + rng.normal(size=n),
    "denormal": lambda rng, n: 5e-324 * rng.integers(-9, 10, n),
    "nearly denormal": lambda rng, n: 1e-307 * rng.normal(size=n),
    "tiny": lambda rng, n: 1e-300 * rng.normal(size=n),
    "huge": lambda rng, n: 1e300 * rng.normal(size=n),
    "largest": lambda rng, n: np.finfo(float).max * rng.uniform(-1, 1, n).round(3),
    "outlier": lambda rng, n: np.where(
        np.arange(n) == rng.integers(n), number(rng, 0, 308), rng.normal(size=n)
    ),
    "all sizes": lambda rng, n: rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-320, 308, n),
}
"""Ways to make a column of n rows."""
USUAL = ("normal", "integers", "flags", "mostly zero")


def table(rng):
    """Rows [n, d], and the names of their columns."""
    n, d = int(rng.integers(20, 301)), int(rng.integers(1, 9))
    names = USUAL if rng.random() < 0.3 else tuple(COLUMNS)
    chosen = [str(rng.choice(names)) for _ in range(d)]
    X = np.column_stack([COLUMNS[name](rng, n) for name in chosen])
    if d > 1 and rng.random() < 0.3:
        chosen[-1] = f"copy of {chosen[0]}"
        X[:, -1] = X[:, 0]
    if rng.random() < 0.2:
        X = X[rng.integers(0, 1 + n // 4, n)]  # many equal rows
    return X, chosen


def stored(X, dtype):
    """X in a type that a user may have it in, as far as its range allows."""
    if dtype in ("float64", "csr"):
        return sparse.csr_matrix(X) if dtype == "csr" else X
    if dtype == "float32":
        most = np.finfo(np.float32).max
        return np.clip(X, -most, most).astype(np.float32)
    if dtype == "bool":
        return X > 0
    info = np.iinfo(dtype)
    return np.clip(np.round(X), info.min / 2, info.max / 2).astype(dtype)


DTYPES = ("float64", "float64", "float64", "float32", "float32", "csr", "int64", "uint8", "bool")


def far_rows(X, rng):
    """Some of the rows, and rows far away, at the ends of the type, and next to zero."""
    some = X[: min(12, X.shape[0])]
    if sparse.issparse(X):
        some = some.toarray()
    d = some.shape[1]
    if some.dtype.kind == "f":
        most = np.finfo(some.dtype).max
        ends = [1e10, -1e10, most, -most, np.finfo(some.dtype).smallest_subnormal, 0.0]
    elif some.dtype.kind == "b":
        ends = [False, True]
    else:
        ends = [np.iinfo(some.dtype).min, np.iinfo(some.dtype).max, 0]
    corners = np.array([[end] * d for end in ends], dtype=some.dtype)
    mixed = rng.choice(np.asarray(ends, dtype=some.dtype), (6, d))
    rows = np.vstack([some, corners, mixed])
    return sparse.csr_matrix(rows) if sparse.issparse(X) else rows


def labels(X, rng):
    """Class codes [n] of two to five classes."""
    n, n_classes = len(X), int(rng.choice([2, 2, 2, 3, 4, 5]))
    how = rng.choice(["random", "by column", "blocks", "rare"])
    if how == "by column":
        order = np.argsort(np.argsort(X[:, 0], kind="stable"))
        y = order * n_classes // n
    elif how == "blocks":
        y = np.arange(n) * n_classes // n
    else:
        y = rng.integers(0, n_classes, n)
    if how == "rare":
        y[:] = 0
    y[rng.choice(n, n_classes, replace=False)] = np.arange(n_classes)
    return y


WEIGHTS = {
    "none": lambda rng, n: None,
    "counts": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "large": lambda rng, n: np.full(n, 1e20),
    "small": lambda rng, n: np.full(n, 1e-20),
    "mixed": lambda rng, n: 10.0 ** rng.uniform(-20, 20, n),
    "one large": lambda rng, n: np.where(np.arange(n) == rng.integers(n), 1e20, 1.0),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.1, 1.0, 0.0),
    "smallest": lambda rng, n: np.full(n, 5e-324),
    "largest": lambda rng, n: np.full(n, 1e300),
}
"""Ways to weigh n rows."""


# Kernels.


def leaf(rng, d):
    """One kernel, its parameters within the usual bounds."""
    usual = rng.random() < 0.6
    scale = number(rng, -1, 1) if usual else number(rng, -5, 5)
    ard = [scale * number(rng, -0.5, 0.5) for _ in range(d)] if rng.random() < 0.5 else scale
    ard = np.clip(ard, 1e-5, 1e5)
    bounds = "fixed" if rng.random() < 0.1 else (1e-5, 1e5)
    kinds = [
        lambda: RBF(ard, bounds),
        lambda: Matern(ard, bounds, nu=float(rng.choice([0.5, 1.5, 2.5, np.inf]))),
        lambda: RationalQuadratic(scale, number(rng, -2, 2), bounds),
        lambda: DotProduct(scale, bounds),
        lambda: ConstantKernel(scale, bounds),
        lambda: WhiteKernel(scale, bounds),
    ]
    return kinds[int(rng.integers(len(kinds)))]()


def random_kernel(rng, d):
    """A composition of kernels, or None for the default."""
    if rng.random() < 0.3:
        return None
    kernel = leaf(rng, d)
    for _ in range(int(rng.integers(0, 4))):
        how = rng.choice(["sum", "product", "power"])
        if how == "power":
            # The root of a linear kernel is no kernel.
            powers = [2, 3, 1] if "DotProduct" in str(kernel) else [2, 3, 1, 0.5]
            kernel = kernel ** float(rng.choice(powers))
        else:
            kernel = kernel + leaf(rng, d) if how == "sum" else kernel * leaf(rng, d)
    return kernel


# Estimators.


def common_options(rng, X, n_classes, kind):
    """Parameters that every classifier has."""
    n, d = X.shape
    logit = rng.random() < 0.4 and (n_classes == 2 or rng.random() < 0.05)
    m = int(rng.integers(1, 31))
    options = {
        "kernel": random_kernel(rng, d),
        "n_inducing": m,
        "inducing_points": str(rng.choice(["kmeans", "random", "greedy"])),
        "scaling": rng.choice(["standard", "robust", "quantile", "whiten", None]),
        "likelihood": "logit" if logit else "probit",
        "random_state": int(rng.integers(1000)),
        "n_jobs": int(rng.integers(1, 3)),
    }
    if rng.random() < 0.1:
        options["inducing_points"] = X[rng.integers(0, n, m)]
    if rng.random() < 0.2:
        balanced = kind != "stream" and rng.random() < 0.5
        options["class_weight"] = "balanced" if balanced else {0: number(rng, -20, 20)}
    if rng.random() < 0.2:
        options["hyperprior_scale"] = rng.choice([None, 0.1, 10.0])
    if rng.random() < 0.2:
        options["calibration"] = rng.choice([None, "temperature"])
    if rng.random() < 0.2:
        options["learn_inducing"] = False
    return options


def trained_options(rng, n, kind):
    """Parameters of classifiers that are trained step by step."""
    options = {
        "max_epochs": float(rng.choice([0.3, 1, 2, 4, 6])),
        "batch_size": rng.choice([None, None, 1 if n < 50 else 20, 7 if n < 100 else 50, 64, n]),
        "optimizer": rng.choice(["adam", "adam", "adam", None, Adam(number(rng, -4, 1)), Adadelta()]),
    }
    if options["optimizer"] is not None and rng.random() < 0.15:
        options["early_stopping"] = str(rng.choice(["validation", "loo"]))
    if kind == "SVI":
        if rng.random() < 0.25:
            options["posterior_update"] = "gradient"
    else:
        for name, values in (
            ("residual_scale", [0.0, 0.5, 1.0]),
            ("trace_penalty", [0.0, 1.0, 10.0]),
            ("exact_gradient", [True]),
            ("site_storage", ["factors"]),
        ):
            if rng.random() < 0.12:
                options[name] = values[int(rng.integers(len(values)))]
    if "posterior_update" not in options and rng.random() < 0.2:
        options["damping"] = float(rng.choice([0.1, 0.5, 1.0]))
    return options


def problem(seed, index):
    """The trial of that number: estimator, rows, labels, weights, random generator and its words."""
    rng, kind = np.random.default_rng([seed, index]), KINDS[index % len(KINDS)]
    X, columns = table(rng)
    y = labels(X, rng)
    name = str(rng.choice(list(WEIGHTS))) if rng.random() < 0.4 else "none"
    weight = WEIGHTS[name](rng, len(X))
    dtype = str(rng.choice(DTYPES))
    with np.errstate(all="ignore"):
        X = stored(X, dtype)
    given = common_options(rng, X.toarray() if dtype == "csr" else X, len(np.unique(y)), kind)
    if kind == "GFITC":
        given["max_iter"] = int(rng.integers(1, 5))
        given["optimizer"] = rng.choice(["lbfgs", "lbfgs", None])
        estimator = make(cavity.GFITCClassifier, **given)
    else:
        given |= trained_options(rng, X.shape[0], kind)
        if kind == "stream" and rng.random() < 0.3:
            given["window_size"] = number(rng, 0, 4)
        of = cavity.SVIClassifier if kind == "SVI" else cavity.SEPClassifier
        estimator = make(of, **given)
    shown = {name: value for name, value in given.items() if name != "inducing_points"}
    words = f"{X.shape} {dtype}, {columns}, {len(np.unique(y))} classes, weights {name}, {shown}"
    return estimator, X, y, weight, rng, words


def fit(estimator, X, y, weight, kind, rng):
    """Fit to all rows, or to one chunk after the other."""
    if kind != "stream":
        return estimator.fit(X, y, sample_weight=weight)
    first, n = int(rng.integers(1, len(y))), len(y)
    if rng.random() < 0.2:
        estimator.fit(X, y, sample_weight=weight)
    for rows in (slice(0, first), slice(first, n)):
        chunk_weight = None if weight is None else weight[rows]
        estimator.partial_fit(X[rows], y[rows], classes=np.unique(y), sample_weight=chunk_weight)
    return estimator


def attributes(model, kind):
    """The learned numbers that must be finite, by name."""
    numbers = {
        "theta": model.kernel_.theta,
        "inducing_points_": model.inducing_points_,
        "inverse_temperature_": model.inverse_temperature_,
        "loo_log_loss_": model.loo_log_loss_,
        "relevance_": model.relevance_.value,
        "relevance_.lower": model.relevance_.lower,
        "relevance_.upper": model.relevance_.upper,
        "history_": [(one.objective, one.leave_one_out) for one in model.history_],
    }
    one_sweep = model.config_.schedule == "converge" and model.config_.max_epochs < 2
    if kind != "stream" and not one_sweep:  # there it is NaN, as its documentation says
        numbers["log_marginal_likelihood_value_"] = model.log_marginal_likelihood_value_
    return numbers


def predictions(model, rows):
    """What a model says about rows, by name; all of it must be finite."""
    mean, variance = model.latent_mean_and_variance(rows)
    return {
        "latent mean": mean,
        "latent variance": variance,
        "log probabilities": model.predict_log_proba(rows),
        "probabilities": model.predict_proba(rows),
        "decision_function": model.decision_function(rows),
        **model.predict_uncertainty(rows)._asdict(),
        "ood_score": model.ood_score(rows),
        "sample_latent": model.sample_latent(rows, 2, random_state=0),
    }


def wrong(found):
    """The names of numbers that are not finite or not possible."""
    names = [name for name, value in found.items() if not np.isfinite(value).all()]
    if names or "probabilities" not in found:
        return names
    bounds = {
        "probabilities that do not sum to one": np.abs(found["probabilities"].sum(axis=1) - 1) < 1e-6,
        "negative variance": found["latent variance"] >= 0,
        "ood_score out of range": np.abs(found["ood_score"] - 0.5) <= 0.5,
        "negative entropy": np.minimum(found["aleatoric"], found["epistemic"]) >= -1e-12,
    }
    return [name for name, holds in bounds.items() if not np.all(holds)]


def outcome(estimator, X, y, weight, kind, rng):
    """What a fit and its predictions do, in a word, and the words of an error."""
    rows = far_rows(X, rng)
    try:
        with at_most(SECONDS):
            try:
                model = fit(estimator, X, y, weight, kind, rng)
            except (ValueError, NumericalError) as error:
                if isinstance(error, np.linalg.LinAlgError) or len(str(error)) < 40:
                    return unexpected(error)
                return REFUSED, str(error)
            not_finite = wrong(attributes(model, kind)) + wrong(predictions(model, rows))
    except TooSlowError:
        return "too slow", ""
    except Exception as error:
        return unexpected(error)
    return ("not finite", ", ".join(not_finite)) if not_finite else (FITTED, "")


def run(seed, numbers):
    """Try random fits; yields (kind of fit, words about it, number, outcome, words of an error)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=RuntimeWarning)
        for index in numbers:
            kind = KINDS[index % len(KINDS)]
            estimator, X, y, weight, rng, words = problem(seed, index)
            yield kind, words, index, *outcome(estimator, X, y, weight, kind, rng)


if __name__ == "__main__":
    sys.exit(main(__doc__, KINDS, run, allowed=(FITTED, REFUSED), count=10_000))
