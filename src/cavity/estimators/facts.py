"""What a notebook shows of a fitted classifier: scikit-learn's diagram, and what was fitted."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils import estimator_html_repr

_TABLE = "border-collapse:collapse;margin:.4em 0;font-size:.9em"
_NAME = "text-align:left;padding:.1em 1.2em .1em 0;font-weight:normal;opacity:.7"
_VALUE = "text-align:left;padding:.1em 0"


class NotebookRepr:
    """Adds a small table of what was fitted to scikit-learn's HTML representation."""

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = html_of(self)
        return bundle


def html_of(estimator: Any) -> str:
    """The diagram and, of a fitted estimator, the table under it."""
    diagram: str = estimator_html_repr(estimator)
    fitted = getattr(estimator, "classifier_", estimator)  # that of a table is inside
    if not hasattr(fitted, "model_"):
        return diagram
    cells = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(name)}</th>'
        f'<td style="{_VALUE}">{escape(value)}</td></tr>'
        for name, value in fitted_facts(fitted).items()
    )
    caption = '<caption style="text-align:left;font-weight:bold">What was fitted</caption>'
    return f'{diagram}<table style="{_TABLE}">{caption}<tbody>{cells}</tbody></table>'


def fitted_facts(estimator: Any) -> dict[str, str]:
    """Names and values of what a fit came to.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(100, noise=0.2, random_state=0)
    >>> facts = fitted_facts(SEPClassifier(n_inducing=5, random_state=0).fit(X, y))
    >>> facts["classes"], facts["rows"], facts["inducing points"]
    ('0, 1', '100', '5')
    """
    loo = np.asarray(estimator.loo_log_proba_, dtype=np.float64)
    seen = loo[np.isfinite(loo)]
    streamed = getattr(estimator, "_stream", None) is not None
    facts = {
        "classes": ", ".join(str(value) for value in estimator.classes_),
        "rows of the last chunk" if streamed else "rows": f"{len(loo):,}",
        "inducing points": f"{len(estimator.inducing_points_):,}",
        "kernel": str(estimator.kernel_),
    }
    if np.isfinite(evidence := estimator.log_marginal_likelihood_value_):
        facts["log marginal likelihood"] = f"{evidence:,.2f}"
    if (inverse_temperature := estimator.model_.inverse_temperature) != 1.0:
        facts["calibration"] = f"latent means × {inverse_temperature:.2f}"
    if len(seen):
        facts["leave-one-out NLL"] = f"{-seen.mean():.4f}"
    if estimator.history_:
        last = estimator.history_[-1]
        facts["training"] = f"{estimator.n_iter_:,} iterations in {last.seconds:.2f} s"
    return facts
