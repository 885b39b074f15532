"""GPBoost's Gaussian process: FITC with a Laplace approximation, probit, ARD squared exponential.

It chooses its own inducing points (k-means++) and lengthscale start; m is the common one. It refuses
constant inputs, so they are left out, which changes nothing in the model.
"""

import gpboost
import numpy as np
from protocol import Job

CLIP = 1e-12  # the predictions are plain probabilities


def main():
    job = Job()
    X, X_test = job.array("X", np.float64), job.array("X_test", np.float64)
    varies = X.std(axis=0) > 0
    X, X_test = X[:, varies], X_test[:, varies]
    y = (job.array("y") > 0).astype(float)
    job.begin()
    model = gpboost.GPModel(
        likelihood="bernoulli_probit",
        gp_coords=X,
        cov_function="gaussian_ard",
        gp_approx="fitc",
        num_ind_points=job.settings["m"],
        num_parallel_threads=job.threads,
        seed=job.seed,
    )
    model.fit(y=y)

    def log_probabilities():
        p = model.predict(gp_coords_pred=X_test, predict_response=True)["mu"]
        return np.log(np.clip(np.column_stack([1.0 - p, p]), CLIP, 1.0))

    job.finish(log_probabilities)


if __name__ == "__main__":
    main()
