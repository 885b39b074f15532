"""The generalised FITC approximation as a scikit-learn classifier."""

from __future__ import annotations

from typing import ClassVar

from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel

from cavity.estimators.base import SparseGPClassifier
from cavity.inference.config import ConfigFields, TrainingConfig
from cavity.inference.config_checks import check_value, one_of
from cavity.typing import ClassWeight, RandomSeed


class GFITCClassifier(SparseGPClassifier):
    """Gaussian process classifier by the generalised FITC approximation (GFITC).

    Naish-Guzman & Holden (2008): EP runs to convergence on all rows, and L-BFGS takes a step along the
    gradient of its evidence. At the same kernel and inducing points the posterior is that of
    `SEPClassifier`, but training takes longer. Every evaluation is O(n m²), and no n×n matrix is formed.
    Each evaluation starts from the sites of the one before.

    Parameters
    ----------
    optimizer : {"lbfgs"} or None
        None keeps kernel and inducing points and runs EP to convergence.
    max_iter : int
        Iterations of L-BFGS at most, or sweeps with optimizer=None.
    max_seconds : float or None
        After that many seconds no further evaluation begins, and EP takes one more sweep at the best
        parameters.
    tol : float
        Relative rise of the evidence at which L-BFGS stops, or site change with optimizer=None.

    Notes
    -----
    All other parameters and all attributes are those of `SEPClassifier`. There is no race: "auto" means
    100 inducing points and robust scaling, or the standard one with a kernel object. There is no
    batch_size, max_epochs, validation_fraction, window_size or checkpoint, and no `partial_fit`: each
    iteration needs EP converged on all rows. For streams use `SEPClassifier`, which has the same fixed
    point. Nor are there leaves or a mean_function; `fit` takes an `offset`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import GFITCClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = GFITCClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.1f}")
    1.0
    """

    _method_in_words: ClassVar[str] = "expectation propagation to convergence (GFITC)"
    _config_fields: ClassVar[tuple[str, ...]] = (
        "likelihood", "scaling", "optimizer", "max_seconds", "tol",
    )  # fmt: skip

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str = "probit",
        n_inducing: int | str = "auto",
        inducing_points: str | ArrayLike = "kmeans",
        scaling: str | None = "auto",
        optimizer: str | None = "lbfgs",
        max_iter: int = 250,
        max_seconds: float | None = None,
        tol: float = 1e-6,
        class_weight: ClassWeight = None,
        config: TrainingConfig | ConfigFields | None = None,
        warm_start: bool = False,
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.n_inducing = n_inducing
        self.inducing_points = inducing_points
        self.scaling = scaling
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.tol = tol
        self.class_weight = class_weight
        self.config = config
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_value("optimizer", self.optimizer, (one_of("lbfgs", None), '"lbfgs" or None'))
        super()._check_parameters()

    def _fields(self) -> ConfigFields:
        # One iteration goes over all rows; there are no minibatches, and no rows are held out.
        return {
            **super()._fields(),
            "max_epochs": self.max_iter,
            "batch_size": None,
            "validation_fraction": None,
        }
