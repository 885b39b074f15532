import pytest
from sklearn import config_context
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.estimators.notebook import fitted_facts


@pytest.fixture(scope="module")
def fitted():
    X, y = make_moons(100, noise=0.2, random_state=0)
    return SEPClassifier(n_inducing=5, tol=1e-2, random_state=0).fit(
        X, ["<no>" if c else "yes" for c in y]
    )


def test_a_notebook_shows_what_was_fitted(fitted):
    html = fitted._repr_html_()
    assert "What was fitted" in fitted._repr_mimebundle_()["text/html"]
    assert "SEPClassifier" in html
    for name in ("classes", "inducing points", "kernel", "leave-one-out NLL", "training"):
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


def test_a_stream_says_that_it_counts_its_last_chunk():
    X, y = make_moons(100, noise=0.2, random_state=0)
    stream = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X, y).partial_fit(X[:40], y[:40])
    assert fitted_facts(stream)["rows of the last chunk"] == "40"
