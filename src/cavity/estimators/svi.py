"""Scalable variational inference as a scikit-learn classifier."""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from cavity.estimators.base import Offered
from cavity.estimators.config import most_iterations, resolved_batch_size, variational_rule
from cavity.estimators.streaming import SteppedGPClassifier
from cavity.inference.history import Progress
from cavity.inference.lbfgs import fit_gradient_batch
from cavity.inference.optimizers import Adadelta
from cavity.inference.rule import Rule
from cavity.inference.sweep import LAGGING_LEVERAGE, SweepOptions
from cavity.inference.train import Outcome
from cavity.inference.trainer import Problem, Trainer
from cavity.inference.updates import GaussianSpace, GradientUpdate, NaturalUpdate, PosteriorUpdate


def _why_no_stream(estimator: SVIClassifier) -> str | None:
    if estimator.posterior_update == "natural":
        return None
    return (
        f"SVIClassifier(posterior_update={estimator.posterior_update!r}) has no partial_fit: its "
        "gradient steps need to see rows many times, and a stream shows them once; use "
        'posterior_update="natural"'
    )


class SVIClassifier(SteppedGPClassifier):
    """Gaussian process classifier by scalable variational inference (SVI).

    Hensman, Matthews & Ghahramani (2015): the bound Σ E_q[log p(y | f)] − KL[q ‖ prior] is climbed over
    q, kernel and inducing points. The same model and engine as `SEPClassifier`; only what a row says
    differs.

    Parameters
    ----------
    posterior_update : {"natural", "gradient"}
        How q moves. "natural" takes natural-gradient steps, which in this engine are site updates, and
        lets the optimiser move kernel and inducing points. "gradient" moves mean and covariance factor
        of q by plain gradients with everything else: L-BFGS-B over all rows (max_iter iterations), or
        the optimiser ("auto" is then ADADELTA) over minibatches, as in the paper.
    optimizer : {"auto", "adam", "rprop", "adadelta"} or None
        As in `SEPClassifier`; ignored by posterior_update="gradient" over all rows, except that None
        keeps kernel and inducing points.
    damping : float in (0, 1] or "auto"
        Share of a natural-gradient step that is taken. "auto" is 1, a whole step, or 0.5 on all rows
        with three classes or more. posterior_update="gradient" has none.

    Notes
    -----
    All other parameters and all attributes are those of `SEPClassifier`, but max_iter is 250 by default,
    as in the paper's L-BFGS. Four of its parameters are missing: trace_penalty and residual_scale,
    because the bound has its own way with the residual; gradient and site_storage, because they choose
    between forms of EP.
    `log_marginal_likelihood_value_` is the bound (ELBO).

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SVIClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SVIClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.1f}")
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SteppedGPClassifier._parameter_constraints,
        "posterior_update": [StrOptions({"natural", "gradient"})],
    }

    def __init__(
        self,
        kernel: Any = None,
        *,
        likelihood: str = "probit",
        posterior_update: str = "natural",
        n_inducing: int | str = 100,
        inducing_points: Any = None,
        init_inducing: str = "kmeans",
        learn_inducing: bool = True,
        optimizer: str | None = "auto",
        learning_rate: float | None = None,
        batch_size: int | str | None = "auto",
        max_iter: int = 250,
        max_epochs: float | None = None,
        max_seconds: float | None = None,
        early_stopping: str | None = None,
        validation_fraction: float = 0.1,
        damping: float | str = "auto",
        tol: float = 1e-4,
        calibration: str | None = "auto",
        class_weight: Any = None,
        hyperprior: float | None = 1.0,
        standardize: bool | str = True,
        warm_start: bool = False,
        window_size: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval: float = 60.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            kernel,
            likelihood=likelihood,
            n_inducing=n_inducing,
            inducing_points=inducing_points,
            init_inducing=init_inducing,
            learn_inducing=learn_inducing,
            optimizer=optimizer,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_iter=max_iter,
            max_epochs=max_epochs,
            max_seconds=max_seconds,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            damping=damping,
            tol=tol,
            calibration=calibration,
            class_weight=class_weight,
            hyperprior=hyperprior,
            standardize=standardize,
            warm_start=warm_start,
            window_size=window_size,
            checkpoint=checkpoint,
            checkpoint_interval=checkpoint_interval,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.posterior_update = posterior_update

    partial_fit = Offered(SteppedGPClassifier.partial_fit, _why_no_stream)

    def _rule(self) -> Rule:
        natural = self.posterior_update == "natural"
        return variational_rule(self.likelihood, len(self.classes_), natural=natural)

    def _site_rule(self) -> Rule:
        return variational_rule(self.likelihood, len(self.classes_))

    def _options(self, batch_size: int | None) -> SweepOptions:
        if self.damping != "auto":
            return SweepOptions(damping=float(self.damping))
        # A whole natural-gradient step solves a concave problem at once. The steps of many classes are
        # taken side by side, each as if the others stood still, and whole ones would overshoot twofold.
        coupled = len(self.classes_) > 2 and batch_size is None
        return SweepOptions(damping=0.5 if coupled else 1.0)

    def _update(self, problem: Problem) -> PosteriorUpdate:
        if self.posterior_update == "natural":
            return NaturalUpdate(problem.engine.threads.map)
        return GradientUpdate(GaussianSpace(problem.rule.n_latents, len(problem.space.Z)))

    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        if not self._climbs(problem.engine.n_rows):
            return super()._train(problem, progress, seed)
        # On its way q is not what the rows' sites would make it.
        options = SweepOptions(max_leverage=LAGGING_LEVERAGE)
        trainer = Trainer(problem, Adadelta(), options, self._update(problem))
        outcome = fit_gradient_batch(
            trainer,
            progress,
            max_iter=most_iterations(self),
            tol=self.tol,
            max_seconds=np.inf if self.max_seconds is None else self.max_seconds,
        )
        return self._calibrated(problem, outcome, seed, progress)

    def _optimizer_name(self) -> str | None:
        if self.posterior_update == "gradient" and self.optimizer == "auto":
            return "adadelta"
        return self.optimizer

    def _climbs(self, n_rows: int) -> bool:
        """Whether this is a run of L-BFGS over all rows."""
        # To keep the parameters is a matter of all rows, whatever the minibatches would be.
        whole = not self._learns or resolved_batch_size(self.batch_size, n_rows, m=1) is None
        return self.posterior_update == "gradient" and whole

    def _refuse_what_does_not_suit(self, n_rows: int) -> None:
        if self.posterior_update == "gradient" and self.damping != "auto":
            raise ValueError(
                f'damping={self.damping!r} does not go with posterior_update="gradient", whose q is not '
                'made of sites; leave it out, or use posterior_update="natural"'
            )
        if not self._climbs(n_rows):
            super()._refuse_what_does_not_suit(n_rows)
            return
        unused = {"checkpoint": None, "early_stopping": None, "learning_rate": None}
        for name, default in unused.items():
            value = getattr(self, name)
            if value != default:
                raise ValueError(
                    f'{name}={value!r} does not go with posterior_update="gradient" over all rows, '
                    'which is a run of L-BFGS; use batch_size, or posterior_update="natural"'
                )
