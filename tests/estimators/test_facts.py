"""Facts about a fit, as plain data and as a notebook shows them."""

import json
import pickle
from copy import copy
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.datasets import make_moons
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import SEPClassifier, TableClassifier
from cavity.estimators.facts import fit_facts, fitted_classifier, training_source
from headless_browser import looked_at
from support import recalibrate


@pytest.fixture(scope="module")
def fitted():
    X, y = make_moons(100, noise=0.2, random_state=0)
    return SEPClassifier(n_inducing=5, random_state=0, config={"tol": 1e-2}).fit(
        X, ["<no>" if c else "yes" for c in y]
    )


def test_facts_are_those_of_the_estimator_and_json_holds_them(fitted):
    facts = json.loads(json.dumps(asdict(fit_facts(fitted))))
    assert facts["method"] == "SEPClassifier"
    assert facts["classes"] == ["<no>", "yes"]
    assert (facts["rows"], facts["features"], facts["inducing_points"]) == (100, 2, 5)
    assert facts["loo_log_loss"] == fitted.loo_log_loss_
    assert facts["log_marginal_likelihood"] == fitted.log_marginal_likelihood_value_
    assert facts["iterations"] == fitted.n_iter_
    assert facts["seconds"] == fitted.history_[-1].seconds
    assert facts["peak_memory_bytes"] is None


def test_calibration_is_told_if_there_is_any(fitted):
    assert "Calibration" not in fit_facts(recalibrate(copy(fitted), 1.0, 1.0)).as_words()
    facts = fit_facts(recalibrate(copy(fitted), 1.25, 0.031))
    assert (facts.inverse_temperature, facts.residual_variance_scale) == (1.25, 0.031)
    assert facts.as_words()["Calibration"] == "latent functions × 1.25, residual variance × 0.031"


def test_the_classifier_in_a_pipeline_is_found():
    X, y = make_moons(60, noise=0.2, random_state=0)
    pipeline = make_pipeline(StandardScaler(), SEPClassifier(n_inducing=3, random_state=0))
    assert fitted_classifier(pipeline.fit(X, y)) is pipeline[-1]
    assert fit_facts(pipeline).rows == 60
    with pytest.raises(TypeError, match="estimator is a LogisticRegression"):
        fit_facts(LogisticRegression().fit(X, y))


def test_a_copy_does_not_hold_the_rows(fitted):
    assert training_source(fitted).n_rows == 100
    assert training_source(pickle.loads(pickle.dumps(fitted))) is None


def test_a_notebook_shows_what_was_fitted(fitted):
    html = fitted._repr_html_()
    assert "What was fitted" in fitted._repr_mimebundle_()["text/html"]
    assert "SEPClassifier" in html
    for name in ("Classes", "Inducing points", "Kernel", "Leave-one-out NLL", "Training"):
        assert f">{name}</th>" in html
    assert "&lt;no&gt;, yes" in html
    assert "<no>, yes" not in html


def test_an_unfitted_estimator_has_the_diagram_alone():
    html = SEPClassifier()._repr_html_()
    assert "SEPClassifier" in html
    assert "What was fitted" not in html


def test_the_text_display_stays_text(fitted):
    with config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")
        assert list(fitted._repr_mimebundle_()) == ["text/plain"]


def test_a_classifier_of_tables_shows_the_one_inside():
    frame = pd.DataFrame({"hour": [6, 7, 8, 18, 19, 20] * 5})
    model = TableClassifier(SEPClassifier(n_inducing=3, random_state=0, config={"tol": 1e-2}))
    assert "What was fitted" not in model._repr_html_()
    assert "30</td>" in model.fit(frame, frame["hour"] > 12)._repr_html_()
    assert fit_facts(model).fit_seconds == model.fit_seconds_
    assert fit_facts(model).peak_memory_bytes == model.peak_memory_bytes_


def test_a_stream_says_that_it_counts_its_last_chunk():
    X, y = make_moons(100, noise=0.2, random_state=0)
    stream = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X, y).partial_fit(X[:40], y[:40])
    facts = fit_facts(stream)
    assert facts.as_words()["Rows of the last chunk"] == "40"
    assert facts.log_marginal_likelihood is None
    assert facts.rows_per_second is None


LOOK = """(() => {
  const [cell] = document.getElementsByTagName("main");
  const rows = [...cell.querySelectorAll("table")].filter(table => table.caption).flatMap(
    table => [...table.rows]).filter(row => room(row)[1] > 10);
  const box = node => node.getBoundingClientRect();
  const diagram = cell.querySelector(".sk-top-container");
  return {
    diagram: room(diagram),
    labels: [...diagram.querySelectorAll(".sk-toggleable__label")].filter(label => room(label)[1] > 10)
      .map(label => label.textContent),
    facts: Object.fromEntries(rows.map(row => [...row.cells].map(one => one.innerText))),
    captions: [...cell.querySelectorAll("caption")].map(one => one.innerText)
      .filter(words => words.includes("fitted")),
    below: rows.every(row => box(row).top >= box(diagram).bottom),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
})()"""


@pytest.mark.parametrize("state", ["fitted", "unfitted"])
def test_as_a_browser_shows_it(fitted, state, tmp_path):
    estimator = fitted if state == "fitted" else SEPClassifier()
    html = estimator._repr_mimebundle_()["text/html"]
    page = f"<!doctype html><html><head></head><body><main>{html}</main></body></html>"
    seen = looked_at(page, LOOK, tmp_path)
    assert seen["errors"] == []
    assert seen["requests"] == []
    assert seen["overflow"] <= 0
    assert any("SEPClassifier" in label for label in seen["labels"])
    assert min(seen["diagram"]) > 20
    if state == "unfitted":
        assert seen["facts"] == {}
        assert seen["captions"] == []
        return
    assert seen["captions"] == ["What was fitted"]
    assert seen["facts"] == fit_facts(fitted).as_words()
    assert seen["facts"]["Classes"] == "<no>, yes"
    assert seen["below"]


def test_many_lengthscales_are_told_in_a_line():
    X = np.random.default_rng(0).normal(size=(60, 72))
    model = SEPClassifier(n_inducing=4, random_state=0, config={"tol": 1e-1}).fit(X, X[:, 0] > 0)
    assert len(str(model.kernel_)) < 120
    assert "..." in fit_facts(model).as_words()["Kernel"]
    own = SEPClassifier(
        1.0 * RBF([1.0] * 72), n_inducing=4, random_state=0, optimizer=None, config={"tol": 1e-1}
    )
    assert len(fit_facts(own.fit(X, X[:, 0] > 0)).as_words()["Kernel"]) < 120
    assert len(repr(model.config_).splitlines()) < 20
    assert max(map(len, repr(model.config_).splitlines())) < 80
