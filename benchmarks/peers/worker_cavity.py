"""Our own classifiers, timed exactly as the peers are.

A budget is the estimator's `max_seconds`, everything included: scaling, the choice of inducing points
and the final sweeps.
"""

import warnings

from one_vs_rest import OneVsRestClassifier
from protocol import Job

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.inference import Adam

KINDS = {"sep": SEPClassifier, "svi": SVIClassifier, "gfitc": GFITCClassifier}


def parameters_of(job):
    """Constructor arguments; in JSON an optimiser is a dictionary, the arguments of `Adam`."""
    parameters = dict(job.settings.get("parameters", {}))
    if job.budget:
        parameters["max_seconds"] = job.budget
    if "m" in job.settings:
        parameters.setdefault("n_inducing", job.settings["m"])
    if "optimizer" in parameters:
        parameters["optimizer"] = Adam(**parameters["optimizer"])
    return {**parameters, "random_state": job.seed, "n_jobs": job.settings.get("threads")}


def main():
    job = Job()
    X, y, X_test = job.array("X"), job.array("y"), job.array("X_test")
    parameters = parameters_of(job)
    if "one_vs_rest" in job.settings:
        model = OneVsRestClassifier(job.settings["one_vs_rest"], **parameters)
    else:
        model = KINDS[job.mode](**parameters)
    warnings.simplefilter("ignore")  # a fit that ends with its budget says so
    job.begin()
    model.fit(X, y)
    job.finish(
        lambda: model.predict_log_proba(X_test),
        n_iter=model.n_iter_,
        m=len(model.inducing_points_),
        inverse_temperature=model.inverse_temperature_,
    )


if __name__ == "__main__":
    main()
