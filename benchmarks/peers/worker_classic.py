"""The yardsticks: scikit-learn's GPC (Laplace), logistic regression and LightGBM."""

import lightgbm
import numpy as np
from protocol import Job
from scipy.special import log_expit
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

CLIP = 1e-12  # the GPC gives plain probabilities


def gpc(job, X, y):
    """Full GPC with a Laplace approximation, the common kernel and start."""
    kernel = ConstantKernel(job.amplitude) * RBF(np.full(X.shape[1], job.lengthscale))
    model = GaussianProcessClassifier(kernel, random_state=job.seed).fit(X, y)
    return lambda T: np.log(np.clip(model.predict_proba(T), CLIP, 1.0))


def logistic(job, X, y):
    """Logistic regression at its defaults, with iterations enough to converge."""
    model = LogisticRegression(max_iter=1000).fit(X, y)
    return lambda T: from_score(model.decision_function(T))


def from_score(score):
    """Log p(−1), log p(+1) from the log-odds: probabilities would round to 0 and 1."""
    return np.column_stack([log_expit(-score), log_expit(score)])


def lightgbm_early(job, X, y):
    """LightGBM at its defaults; the number of trees by early stopping on a tenth of the rows."""
    train, valid, y_train, y_valid = train_test_split(X, y, test_size=0.1, random_state=job.seed)

    def watch(environment):
        if job.budget and job.seconds() > job.budget:
            raise lightgbm.callback.EarlyStopException(
                environment.iteration, environment.evaluation_result_list
            )

    model = lightgbm.LGBMClassifier(
        n_estimators=5000, n_jobs=job.threads, random_state=job.seed, verbosity=-1
    )
    stop = lightgbm.early_stopping(50, verbose=False)
    model.fit(train, y_train, eval_set=[(valid, y_valid)], callbacks=[stop, watch])

    return lambda T: from_score(model.predict(T, raw_score=True))


def main():
    job = Job()
    X, y, X_test = job.array("X"), job.array("y"), job.array("X_test")
    fit = {"gpc": gpc, "logistic": logistic, "lightgbm": lightgbm_early}[job.mode]
    job.begin()
    predict = fit(job, X, y)
    job.finish(lambda: predict(X_test))


if __name__ == "__main__":
    main()
