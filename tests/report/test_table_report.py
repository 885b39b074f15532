"""The report on a table classifier: by column, with ids, notes and the positive class."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

from cavity import SEPClassifier, TableClassifier
from cavity.data.table import open_table
from cavity.estimators.table_prediction import LabelledTableRows
from cavity.plot.canvas import number
from cavity.report import write_report
from cavity.report.target import given_rows, report_target, rows_at, view_of
from flights_table import flights


def with_ids(n, seed):
    frame = flights(n, seed)
    frame.insert(0, "flight_id", [f"F-{seed}-{i:04d}" for i in range(n)])
    frame["year"] = 2013
    return frame


NEW = with_ids(80, 1)


@pytest.fixture(scope="module")
def model():
    small = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2})
    return TableClassifier(small).fit(with_ids(300, 0), "delayed")


def report(model, folder, *args, **options):
    path = write_report(model, folder / "r.html", *args, **{"n_effects": 0, **options})
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    return report(model, tmp_path_factory.mktemp("report"), NEW, "delayed", n_effects=5)


def part(page, name):
    return page[
        page.index(f'<section id="{name}"') : page.index("</section>", page.index(f'id="{name}"'))
    ]


def test_relevance_and_effects_are_by_column(model, page):
    for name in ("relevance", "dependence"):
        words = part(page, name)
        assert ">carrier<" in words
        assert "carrier=" not in words
        assert "(missing)" not in words or name == "dependence"
    order = np.argsort(-model.relevance_.value)
    first = model.columns_[order[0]]
    assert f"the largest first: {first} {model.relevance_.value[order[0]]:.0%}" in part(
        page, "relevance"
    )
    assert re.search(r"Partial dependence on carrier: the mean probability of yes is from", page)
    assert ">AA<" in part(page, "dependence")


def test_the_hardest_rows_have_their_ids_and_the_columns_of_the_user(model, page):
    surprises = part(page, "surprising")
    assert "Held-out rows whose label" in surprises
    assert '<th scope="col">flight_id</th>' in surprises
    log_proba = model.predict_log_proba(NEW)
    of_label = log_proba[np.arange(80), np.searchsorted(model.classes_, NEW["delayed"])]
    worst = NEW["flight_id"].to_numpy()[np.argsort(of_label)[:3]]
    assert re.findall(r"<td>(F-1-\d+)</td>", surprises)[:3] == worst.tolist()


def test_notes_and_the_positive_class_are_told(model, page):
    for note in model.notes_:
        assert note.replace("'", "&#39;") in part(page, "data")
    assert "is always 2013" in part(page, "data")
    assert "Positive class: <strong>yes</strong>" in page
    assert "about the positive class, yes" in page


def test_held_out_figures_come_first(page):
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections[:2] == ["performance", "threshold"]
    assert page.index("Main scores on held-out rows") < page.index("<nav")


def test_columns_are_summarised_by_what_they_hold(page):
    table = part(page, "data")
    table = table[table.index('class="columns"') :]
    rows = {
        re.search(r'scope="row">(\w+)<', line)[1]: re.findall(r"<td[^>]*>([^<]*)</td>", line)
        for line in table.split("\n")
        if '<tr><th scope="row"' in line
    }
    low, middle, high = (number(NEW["distance"].quantile(q)) for q in (0.0, 0.5, 1.0))
    assert rows["distance"] == [middle, f"{low} – {high}", ""]
    top = NEW["carrier"].value_counts()
    assert rows["carrier"][:2] == [f"{top.index[0]} ({top.iloc[0] / 80:.0%})", "3 values"]
    assert rows["carrier"][2] == f"{NEW['carrier'].isna().mean():.1%}"
    assert rows["date"][1] == f"{NEW['date'].min():%Y-%m-%d} – {NEW['date'].max():%Y-%m-%d}"
    assert rows["weekend"][1] == "2 values"


@pytest.mark.parametrize("kind", ["arrow", "dictionary", "path", "index"])
def test_rows_of_every_kind(model, kind, tmp_path):
    """An Arrow table, a dictionary, a file, and a frame whose index names the rows."""
    table = pa.Table.from_pandas(NEW, preserve_index=False)
    if kind == "path":
        pyarrow.csv.write_csv(table, tmp_path / "new.csv")
        page = report(model, tmp_path, tmp_path / "new.csv")
        assert "Rows are counted from 0 in" in page
    elif kind == "index":
        named = NEW.drop(columns="flight_id").set_index(NEW["flight_id"].rename("key"))
        page = report(model, tmp_path, named)
        assert "names that the index of their data frame gives them" in page
        assert re.search(r'<th scope="row" class="number">F-1-\d+</th>', part(page, "surprising"))
        return
    else:
        page = report(model, tmp_path, table if kind == "arrow" else table.to_pydict(), "delayed")
    assert re.search(r"<td>F-1-\d+</td>", part(page, "surprising"))
    assert "Judged on 80" in page


def test_a_report_on_one_row_and_on_rows_without_cells_of_a_column(model, tmp_path):
    page = report(model, tmp_path, NEW[:1], "delayed", n_effects=5)
    assert f">{NEW['date'][0].date()}</text>" in page
    page = report(model, tmp_path, NEW.assign(hour=np.nan, date=pd.NaT), "delayed", n_effects=5)
    assert "Partial dependence on distance" in page
    assert "Partial dependence on hour" not in page


def test_rows_without_a_label_are_left_out(model, tmp_path):
    frame = NEW.copy()
    frame.loc[3:9, "delayed"] = None
    assert "Judged on 73" in report(model, tmp_path, frame)


def test_blanks_at_the_ends_of_labels_do_not_count(model, tmp_path):
    rows, labels = NEW.drop(columns="delayed"), NEW["delayed"]
    pages = [report(model, tmp_path, rows, y) for y in (labels + " ", labels)]
    first, second = (re.sub(r"[\d-]+ [\d:]+ UTC", "", page) for page in pages)
    assert first == second


def test_ids_may_be_chosen(model, tmp_path):
    page = report(model, tmp_path, NEW, ids=["date", "flight_id"])
    header = re.search(r"<thead>.*?</thead>", part(page, "surprising"))[0]
    assert header.index(">date<") < header.index(">flight_id<") < header.index(">Label<")
    with pytest.raises(ValueError, match=r"ids has 'flight'.*did you mean 'flight_id'"):
        report(model, tmp_path, NEW, ids="flight")


def test_rows_of_a_table_are_read_with_their_ids(model, tmp_path):
    NEW.to_parquet(tmp_path / "new.parquet")
    rows = LabelledTableRows(model, open_table(str(tmp_path / "new.parquet")))
    assert rows.ids == ["flight_id"]
    assert rows.take(np.array([5, 2]))["flight_id"].tolist() == ["F-1-0005", "F-1-0002"]


def test_training_rows_of_a_table_are_shown_by_feature_only_without_its_rows(model, tmp_path):
    """A table classifier holds its training rows as features; rows of the user are better."""
    page = report(model, tmp_path)
    assert "carrier=UA" in part(page, "data")
    assert ">carrier<" in part(page, "relevance"), "relevance is by column without any rows"
    whole = report(model, tmp_path, X_train=with_ids(300, 0))
    assert "Training rows whose label" in whole
    assert "F-0-" in part(whole, "surprising")


def test_a_view_of_a_table_is_its_columns(model):
    target = report_target(model)
    rows = rows_at(given_rows(target, NEW, None, None), np.arange(10))
    view = view_of(target, rows)
    assert view.estimator is model
    assert view.names == model.columns_
    assert rows.ids == ("flight_id",)


def test_the_positive_class_may_be_chosen_and_is_the_rarer_one_of_plain_words(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"x": x, "kind": np.where(x + 0.3 * rng.normal(size=200) > 1, "bolt", "screw")})
    model = TableClassifier(SEPClassifier(n_inducing=5, random_state=0, config={"tol": 1e-2}))
    model.fit(frame, "kind")
    page = report(model, tmp_path, frame)
    assert "Positive class: <strong>bolt</strong>" in page
    assert "predicted probability of bolt" in page
    other = report(model, tmp_path, frame, pos_label="screw")
    assert "Positive class: <strong>screw</strong>" in other
    assert "Threshold for screw" in other
    with pytest.raises(ValueError, match="pos_label='nut'"):
        report(model, tmp_path, frame, pos_label="nut")
