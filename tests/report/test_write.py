"""The report as a file: its parts, its safety, and what it says when something is missing."""

import pickle
import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import SEPClassifier
from cavity.report import write_report
from cavity.report.target import View
from cavity.report.write import two_features

PARTS = [
    "performance",
    "relevance",
    "dependence",
    "surprising",
    "data",
    "fitted",
    "convergence",
    "inducing",
    "costs",
]
NASTY = "<script>alert(1)</script>&\"'"
NAMES = ["height", NASTY, "a_rather_long_name_of_a_feature", "unit price ($)"]


@pytest.fixture(scope="module")
def fitted():
    X, y = make_classification(
        400, 4, n_informative=2, n_redundant=0, flip_y=0, class_sep=1.5, random_state=0
    )
    y[7] = 1 - y[7]  # a wrong label, for the report to find
    frame = pandas.DataFrame(X, columns=NAMES)
    labels = np.where(y, "<yes>", "no & never")
    model = SEPClassifier(n_inducing=12, random_state=0, config={"tol": 1e-2}).fit(
        frame[:300], labels[:300]
    )
    return model, frame, labels


@pytest.fixture(scope="module")
def page(fitted, tmp_path_factory):
    model, frame, labels = fitted
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert write_report(model, path, frame[300:], labels[300:], title=f"T {NASTY}") == path
    return path.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Collects ids, references and unbalanced tags."""

    VOID = frozenset({"meta", "link", "br", "wbr", "img", "input"})

    def __init__(self, text):
        super().__init__()
        self.ids, self.references, self.images, self.open = [], [], [], []
        self.headings, self.tables, self.captions = [], 0, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.references += [attrs[name] for name in ("href", "src", "xlink:href") if name in attrs]
        if tag == "svg":
            self.images.append(attrs)
        self.headings += [tag] if re.fullmatch("h[1-6]", tag) else []
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_part_is_there_and_the_page_is_well_formed(page):
    outline = Outline(page)
    assert outline.open == []
    assert [part for part in outline.ids if part in PARTS] == PARTS
    assert len(set(outline.ids)) == len(outline.ids), "ids of figures must not collide"
    assert {"reliability", "confusion", "curves", "threshold"} < set(outline.ids)


def test_nothing_comes_from_elsewhere(page):
    outline = Outline(page)
    inside = [f"#{name}" for name in outline.ids]
    for reference in outline.references:
        assert reference in inside or reference.startswith("data:"), reference
    assert re.findall(r"url\((?!#)", page) == []
    assert re.findall(r"https?:", page) == []
    assert "@import" not in page
    scripts = re.findall(r"<script.*?</script>", page, flags=re.DOTALL)
    assert len(scripts) == 2, "the counts of the explorer, and what shows them"
    assert not re.search(r"fetch\(|XMLHttp|import|eval|innerHTML|src=", "".join(scripts))


def test_what_the_user_wrote_is_text(page):
    assert "&lt;script&gt;alert(1)" in page
    assert "alert(1)</script" not in page
    assert "&lt;yes&gt;" in page
    assert "<yes>" not in page


def test_readers_who_do_not_see_it_are_told(page):
    outline = Outline(page)
    assert all(image.get("role") == "img" and image.get("aria-label") for image in outline.images)
    assert outline.headings[0] == "h1"
    assert outline.headings.count("h1") == 1
    levels = [int(heading[1]) for heading in outline.headings]
    assert max(np.diff(levels)) == 1, "no level of headings is left out"
    assert outline.tables == outline.captions
    assert 'lang="en"' in page


def test_a_wrong_label_is_among_the_surprising_rows(page):
    table = page[page.index('class="surprises"') :]
    rows = re.findall(r'<th scope="row" class="number">(\d+)</th>', table)
    assert "7" in rows[:3]
    assert "Training rows whose label" in page


def test_scores_are_those_of_the_held_out_rows(fitted, page):
    model, frame, labels = fitted
    log_proba = model.predict_log_proba(frame[300:])
    truth = np.searchsorted(model.classes_, labels[300:])
    assert f"{-log_proba[np.arange(100), truth].mean():.4f}" in page
    assert f"{1 - model.score(frame[300:], labels[300:]):.1%}" in page
    assert "Judged on 100" in page


def test_without_held_out_rows_it_says_so(fitted, tmp_path):
    model, _, _ = fitted
    page = write_report(model, tmp_path / "r.html", max_rows=250, n_effects=0).read_text("utf-8")
    assert "No held-out rows were given" in page
    assert "250 of 300 training rows" in page
    assert Outline(page).open == []


def test_a_loaded_estimator_has_no_rows_and_may_be_given_them(fitted, tmp_path):
    model, frame, labels = fitted
    loaded = pickle.loads(pickle.dumps(model))
    bare = write_report(loaded, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "not available" in bare
    assert "no rows to judge by" in bare
    assert [part for part in PARTS if part not in Outline(bare).ids] == []
    assert '<th scope="row" class="number">7</th>' in bare
    given = write_report(
        loaded, tmp_path / "r.html", X_train=frame[:300], y_train=labels[:300], n_effects=0
    ).read_text(encoding="utf-8")
    assert "leave-one-out probabilities of" in given
    held_out = write_report(loaded, tmp_path / "r.html", frame[300:], labels[300:], n_effects=0)
    assert "Held-out rows whose label" in held_out.read_text(encoding="utf-8")


def test_pipelines_and_one_feature(fitted, tmp_path):
    _, frame, labels = fitted
    pipeline = make_pipeline(
        StandardScaler(), SEPClassifier(n_inducing=5, scaling=None, random_state=0, config={"tol": 1e-1})
    )
    pipeline.fit(frame[["height"]], labels)
    page = write_report(pipeline, tmp_path / "r.html", frame[["height"]], labels).read_text("utf-8")
    assert "A plane needs two features with numbers" in page
    assert ">height<" in page


class Table(BaseEstimator):
    """Like a table classifier: a classifier behind a transformation of its own."""

    def __init__(self, inner=None):
        self.inner = inner

    def fit(self, X, y):
        self.estimator_ = self.inner.fit(self.transform(X), y)
        return self

    def transform(self, X):
        return X[["height", "unit price ($)"]].to_numpy()

    def get_feature_names_out(self):
        return np.array(["height", "price"])


def test_a_classifier_behind_a_transformation(fitted, tmp_path):
    _, frame, labels = fitted
    table = Table(SEPClassifier(n_inducing=5, random_state=0, config={"tol": 1e-1})).fit(frame, labels)
    page = write_report(table, tmp_path / "r.html", frame, labels, n_effects=1).read_text("utf-8")
    assert ">price<" in page
    surprises = page[page.index('class="surprises"') :]
    assert ">unit price ($)<" in surprises
    assert "Held-out rows whose label" in page, "the training rows are known as features only"
    page = write_report(
        table, tmp_path / "r.html", X_train=frame, y_train=labels, n_effects=0
    ).read_text("utf-8")
    surprises = page[page.index('class="surprises"') :]
    assert ">unit price ($)<" in surprises


def test_rows_of_one_class_and_streams_and_constant_columns(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=80), np.ones(80)])
    y = X[:, 0] > 0
    model = SEPClassifier(n_inducing=4, random_state=0).partial_fit(X, y).partial_fit(X, y)
    page = write_report(model, tmp_path / "r.html", X[y], y[y], n_effects=2).read_text("utf-8")
    assert "all of one class" in page
    assert "Rows of the last chunk" in page


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m, X, y, to: write_report(m, to / "no" / "r.html"), FileNotFoundError, "no"),
        (lambda m, X, y, to: write_report(m, to), IsADirectoryError, "folder"),
        (lambda m, X, y, to: write_report(m, to / "r.pdf"), ValueError, r"r\.html'.*print it to PDF"),
        (lambda m, X, y, to: write_report(m, to / "r.docx"), ValueError, r"write it to '.*r\.html'"),
        (lambda m, X, y, to: write_report(m, to / "r"), ValueError, r"write it to '.*r\.html'"),
        (lambda m, X, y, to: write_report(m, to / "r.html", "rows.csv"), ValueError, "y is missing"),
        (
            lambda m, X, y, to: write_report(m, to / "r.html", "rows.csv", "y"),
            TypeError,
            "X='rows.csv' is a path",
        ),
        (
            lambda m, X, y, to: write_report(m, to / "r.html", X, y, pos_label="maybe"),
            ValueError,
            "pos_label='maybe'",
        ),
        (lambda m, X, y, to: write_report(m, to / "r.html", X), ValueError, "y is missing"),
        (
            lambda m, X, y, to: write_report(m, to / "r.html", y_train=y),
            ValueError,
            "X_train is missing",
        ),
        (lambda m, X, y, to: write_report(m, to / "r.html", max_rows=1), ValueError, "max_rows=1"),
        (
            lambda m, X, y, to: write_report(m, to / "r.html", feature_names=["a"]),
            ValueError,
            "feature_names has 1",
        ),
        (
            lambda m, X, y, to: write_report(m, to / "r.html", X_train=X, y_train=y),
            ValueError,
            "X_train has 400 rows",
        ),
        (
            lambda m, X, y, to: write_report(m, to / "r.html", X[:5], ["maybe"] * 5),
            ValueError,
            "'maybe'",
        ),
        (
            lambda m, X, y, to: write_report(LogisticRegression().fit(X, y), to / "r.html"),
            TypeError,
            "LogisticRegression",
        ),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(fitted, tmp_path, call, error, message):
    with pytest.raises(error, match=message):
        call(*fitted, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_jinja_the_extra_is_named(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"cavity\[report\]"):
        write_report(fitted[0], tmp_path / "r.html")


def pair(columns, order):
    """The columns that a plane of these rows would show; order: their relevance."""
    values = SimpleNamespace(values=lambda j: np.asarray(columns[j]))
    return two_features(View(None, None, values, list("abc"), np.array(order)))


FEW, MANY = [0.0, 1.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0]


def test_a_plane_is_that_of_the_two_most_relevant_columns():
    assert pair([FEW, MANY, FEW], [1, 2, 0]) == (1, 2)
    assert pair([FEW, MANY, FEW], [0, 1, 2]) == (0, 1)


def test_but_needs_numbers_and_room_in_one_direction():
    assert pair([FEW, MANY, FEW], [0, 2, 1]) == (1, 0)
    assert pair([FEW, FEW], [1, 0]) == (1, 0)
    words = np.array(["a", "b", "a", None], dtype=object)
    assert pair([words, MANY, FEW], [0, 1, 2]) == (1, 2)
    assert pair([words, MANY], [0, 1]) is None
