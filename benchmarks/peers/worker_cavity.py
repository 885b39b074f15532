"""Our own classifiers, timed exactly as the peers are.

A budget is the estimator's `max_seconds`, everything included: standardisation, the choice of
inducing points and the final sweeps.
"""

import warnings

from one_vs_rest import one_vs_rest_rule
from protocol import Job

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier

KINDS = {"sep": SEPClassifier, "svi": SVIClassifier, "gfitc": GFITCClassifier}


def one_vs_rest(kind, rule):
    """The estimator with C independent binary probits in place of the multinomial one."""

    class OneVsRest(kind):
        def _rule(self):
            return one_vs_rest_rule(rule, len(self.classes_))

    return OneVsRest


def main():
    job = Job()
    X, y, X_test = job.array("X"), job.array("y"), job.array("X_test")
    parameters = dict(job.settings.get("parameters", {}))
    if job.budget and job.mode != "gfitc":
        parameters["max_seconds"] = job.budget
    if "m" in job.settings:
        parameters.setdefault("n_inducing", job.settings["m"])
    kind = KINDS[job.mode]
    if "one_vs_rest" in job.settings:
        kind = one_vs_rest(kind, job.settings["one_vs_rest"])
    model = kind(
        random_state=job.seed,
        n_jobs=job.settings.get("threads"),
        **parameters,
    )
    warnings.simplefilter("ignore")  # a fit that ends with its budget says so
    job.begin()
    model.fit(X, y)
    job.finish(
        lambda: model.predict_log_proba(X_test),
        n_iter=model.n_iter_,
        m=len(model.inducing_points_),
        stretch=model.inverse_temperature_,
    )


if __name__ == "__main__":
    main()
