"""The yardsticks: scikit-learn's GPC (Laplace), logistic regression and boosted trees, and LightGBM."""

import lightgbm
import numpy as np
from ensemble import Ensemble, members_of, uncertainty
from protocol import Job
from scipy.special import log_expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

CLIP = 1e-12  # the GPC gives plain probabilities
LEAVES = (31, 255)
ROUNDS, PATIENCE = 1500, 50
"""The most trees, and the rounds without a gain after which no more are added."""


def gpc(job, X, y):
    """Full GPC with a Laplace approximation, the common kernel and start."""
    lengthscale = job.lengthscale or np.sqrt(X.shape[1])
    kernel = ConstantKernel(job.amplitude) * RBF(np.full(X.shape[1], lengthscale))
    model = GaussianProcessClassifier(kernel, random_state=job.seed).fit(X, y)
    return model, lambda T: np.log(np.clip(model.predict_proba(T), CLIP, 1.0))


def logistic(job, X, y):
    """Logistic regression at its defaults, with iterations enough to converge."""
    model = LogisticRegression(max_iter=1000).fit(X, y)
    return model, lambda T: from_score(model.decision_function(T))


def from_score(score):
    """Log probabilities from the log-odds (two classes): probabilities would round to 0 and 1."""
    if score.ndim == 2:
        return score - np.logaddexp.reduce(score, axis=1, keepdims=True)
    return np.column_stack([log_expit(-score), log_expit(score)])


def lightgbm_searched(job, X, y):
    """The better of two numbers of leaves; a tenth of the rows stops the adding of trees."""
    train, valid, y_train, y_valid = train_test_split(X, y, test_size=0.1, random_state=job.seed)
    best, best_loss = None, np.inf
    for leaves in LEAVES:
        model = lightgbm.LGBMClassifier(
            n_estimators=ROUNDS,
            num_leaves=leaves,
            n_jobs=job.threads,
            random_state=job.seed,
            verbosity=-1,
        )
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        model.fit(train, y_train, eval_set=[(valid, y_valid)], callbacks=[stop])
        (loss,) = model.best_score_["valid_0"].values()
        if loss < best_loss:
            best, best_loss = model, loss
    return best, lambda T: from_score(best.predict(T, raw_score=True))


def hist_gradient_boosting(job, X, y):
    """scikit-learn's boosted trees with early stopping on a tenth of the rows."""
    model = HistGradientBoostingClassifier(
        max_iter=ROUNDS, early_stopping=True, n_iter_no_change=PATIENCE, random_state=job.seed
    ).fit(X, y)
    return model, lambda T: from_score(model.decision_function(T))


class Averaged:
    """An ensemble with the methods of a classifier."""

    def __init__(self, job, X, y):
        self.ensemble = Ensemble(lambda rows: X[rows], y, job.threads, job.seed, members_of(job))

    def predict_proba(self, T):
        """The mean of the members [t, C]."""
        return self.ensemble.probabilities(T).mean(axis=0)


def averaged(job, X, y):
    """An ensemble of LightGBM on bootstraps."""
    model = Averaged(job, X, y)
    return model, lambda T: np.log(np.clip(model.predict_proba(T), CLIP, 1.0))


MODES = {
    "gpc": gpc,
    "logistic": logistic,
    "lightgbm": lightgbm_searched,
    "hgb": hist_gradient_boosting,
    "lightgbm-ensemble": averaged,
}


def main():
    job = Job()
    X, y, X_test = job.array("X"), job.array("y"), job.array("X_test")
    job.begin()
    model, predict = MODES[job.mode](job, X, y)
    job.finish(
        lambda: predict(X_test),
        one_row=model.predict_proba,
        scores=lambda: (
            uncertainty(model.ensemble.probabilities(X_test)) if isinstance(model, Averaged) else {}
        ),
    )


if __name__ == "__main__":
    main()
