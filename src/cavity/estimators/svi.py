"""Scalable variational inference as a scikit-learn classifier."""

from __future__ import annotations

from typing import ClassVar

from cavity.estimators.trained import TrainedGPClassifier


class SVIClassifier(TrainedGPClassifier):
    """Gaussian process classifier by scalable variational inference (SVI).

    Hensman, Matthews & Ghahramani (2015): maximises the bound Σ E_q[log p(y | f)] − KL[q ‖ prior] over
    q, kernel and inducing points. The same model and engine as `SEPClassifier`; only what a row
    contributes differs. All parameters and attributes are those of `SEPClassifier`, with these
    differences: on all rows there are at most 250 steps, `log_marginal_likelihood_value_` is the bound
    (ELBO), and the fields residual_scale, trace_penalty, exact_gradient and site_storage of the
    configuration belong to EP only.

    ``config={"posterior_update": "gradient"}`` moves mean and covariance of q by plain gradients, as in
    the paper: L-BFGS-B over all rows, or ADADELTA over minibatches. The default, "natural", takes
    natural-gradient steps, which in this engine are site updates.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SVIClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SVIClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.1f}")
    1.0
    """

    _method: ClassVar[str] = "vi"
    _method_in_words: ClassVar[str] = "scalable variational inference (SVI)"
