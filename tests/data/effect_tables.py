"""Tables with value effects, for tests."""

import numpy as np
import pandas as pd
import pyarrow as pa

from cavity.data.effect_counts import TableSummariser
from cavity.data.effect_learning import learn_effects
from cavity.data.labelled import labelled_rows
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import open_table

NONE = np.zeros(0, dtype=np.int64)


def learned(data, mode=True, held_out=NONE, weight=None, factors=None, target="y"):
    """The effects of a table, and the features [n, k] that its training rows see."""
    table = open_table(data)
    preprocessor = TablePreprocessor()
    classes = preprocessor.learn(table, target, weight).finish()
    n_classes = len(classes.values)

    found = learn_effects(
        TableSummariser(table, preprocessor.typed, classes, weight),
        preprocessor.encoders_,
        int(classes.counts.sum()),
        np.ones(n_classes) if factors is None else factors,
        [str(value) for value in classes.values],
        held_out,
        mode,
    )
    if found is None:
        return None, None
    rows = labelled_rows(table, preprocessor.columns_, preprocessor.typed, classes, weight)
    return found, np.concatenate([seen(found, some) for some in rows])


def seen(found, rows):
    """The effects [t, k] that training rows see."""
    out = np.empty((len(rows.codes), len(found.features)))
    found.encode(rows, out)
    return out


def new_effects(found, frame):
    """The effects [n, k] that new rows see."""
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    columns = []
    for encoder in found.chosen(None):
        out = np.empty((len(frame), len(encoder.features)))
        encoder.encode(batch, out)
        columns.append(out)
    return np.hstack(columns)


def frame(n=600, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    code, word = rng.integers(0, 40, n), rng.choice(list("abcde"), n)
    size = np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 12, n) / 4)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 20, n), "D")
    score = np.sin(7.0 * code) + (word == "b") - (size == 0.5) + rng.normal(size=n)
    score += 3.0 * ((code % 2 == 0) ^ np.isin(word, ["a", "b"]))
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    return pd.DataFrame({"code": code, "word": word, "size": size, "day": day, "y": y})


def flights(n=6_000, seed=0):
    """Planes are late by route and time of day, by route and duration, and by route, day and side.

    The minutes of departure and arrival have the same unit, and only their difference means something.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([31, 44, 60, 75, 99])
    route, day = rng.choice(list("pqrst"), n), rng.integers(1, 9, n)
    at = np.searchsorted(list("pqrst"), route)
    left = rng.integers(0, 300, n)
    landed = (left + lengths[at] + rng.integers(-9, 10, n)) % 300
    size = rng.normal(size=n)
    of_day = 2.0 * np.random.default_rng(1).normal(size=(5, 9, 2))
    score = 1.5 * np.sign((landed - left) % 300 - lengths[at]) + of_day[at, day, (size > 0).astype(int)]
    y = (score + rng.logistic(size=n) > 0.0).astype(int)
    size = np.round(size, 2)
    return pd.DataFrame(
        {"route": route, "day": day, "left": left, "landed": landed, "size": size, "y": y}
    )
