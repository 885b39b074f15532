"""Rivals on tables: boosted trees with early stopping and native categories, logistic regression.

The trees see strings as categories and dates as seconds; a tenth of the training rows stops them. They
may use all the time they need: their seconds are recorded. LightGBM tries several numbers of leaves.
"""

import numpy as np
import pandas
from protocol import Job
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

CLIP = 1e-12
LEAVES = (15, 31, 63, 255)
MOST_CATEGORIES = 255  # that scikit-learn's trees take in a column


def frames(job):
    """Training and test frames: numbers as float64, strings as categories of both."""
    X, T = (pandas.read_parquet(job.folder / f"{name}.parquet") for name in ("X", "X_test"))
    for name in X.columns:
        both = pandas.concat([X[name], T[name]], ignore_index=True)
        if pandas.api.types.is_datetime64_any_dtype(both):
            seconds = both.astype("datetime64[s]").astype("int64").astype(float)
            both = seconds.where(both.notna())
        elif pandas.api.types.is_bool_dtype(both) or pandas.api.types.is_numeric_dtype(both):
            both = both.astype(float)
        else:
            both = both.astype(str).where(both.notna()).astype("category")
        X[name], T[name] = both[: len(X)].to_numpy(), both[len(X) :].to_numpy()
        if both.dtype == "category":
            X[name] = pandas.Categorical(X[name], categories=both.cat.categories)
            T[name] = pandas.Categorical(T[name], categories=both.cat.categories)
    return X, T


def categories(X):
    return [name for name in X.columns if X[name].dtype == "category"]


def stopping_rows(job, y):
    """Numbers of the rows that are trained on and of those that stop training."""
    return train_test_split(np.arange(len(y)), test_size=0.1, random_state=job.seed)


def lightgbm(job, X, y):
    """The best of several numbers of leaves by the rows that stop training."""
    import lightgbm as lgb

    train, valid = stopping_rows(job, y)
    best, best_loss = None, np.inf
    for leaves in LEAVES:
        model = lgb.LGBMClassifier(
            n_estimators=5000,
            learning_rate=0.05,
            num_leaves=leaves,
            n_jobs=job.threads,
            random_state=job.seed,
            verbosity=-1,
        )
        stop = lgb.early_stopping(50, verbose=False)
        model.fit(X.iloc[train], y[train], eval_set=[(X.iloc[valid], y[valid])], callbacks=[stop])
        (loss,) = model.best_score_["valid_0"].values()
        if loss < best_loss:
            best, best_loss = model, loss
    return best.predict_proba


def lightgbm_ensemble(job, X, y):
    """LightGBM on bootstraps of the rows, and what its members do not agree on."""
    from ensemble import Ensemble, members_of, uncertainty

    model = Ensemble(lambda rows: X.iloc[rows], y, job.threads, job.seed, members_of(job))
    predict = lambda T: model.probabilities(T).mean(axis=0)  # noqa: E731
    predict.scores = lambda T: uncertainty(model.probabilities(T))
    return predict


def hist_gradient_boosting(job, X, y):
    """scikit-learn's boosted trees; columns of too many categories by the mean of their labels."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.preprocessing import TargetEncoder

    many = [name for name in categories(X) if X[name].nunique() > MOST_CATEGORIES]
    encode = ColumnTransformer(
        [("many", TargetEncoder(random_state=job.seed), many)],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    trees = HistGradientBoostingClassifier(
        max_iter=1500,
        early_stopping=True,
        n_iter_no_change=50,
        categorical_features="from_dtype",
        random_state=job.seed,
    )
    return make_pipeline(encode, trees).fit(X, y).predict_proba


def catboost(job, X, y):
    """CatBoost with a rate of .1; the number of trees by early stopping."""
    import catboost as cb

    def plain(frame):
        frame = frame.copy()
        for name in categories(frame):
            frame[name] = frame[name].astype(object).where(frame[name].notna(), "(missing)")
        return frame

    train, valid = stopping_rows(job, y)
    model = cb.CatBoostClassifier(
        iterations=5000,
        learning_rate=0.1,
        early_stopping_rounds=50,
        cat_features=categories(X),
        thread_count=job.threads,
        random_seed=job.seed,
        verbose=False,
        allow_writing_files=False,
    )
    whole = plain(X)
    model.fit(whole.iloc[train], y[train], eval_set=(whole.iloc[valid], y[valid]))
    return lambda T: model.predict_proba(plain(T))


def as_numbers(X, dense=False):
    """A transformer: medians for missing numbers, marks for missing, one column a category."""
    strings = categories(X)
    numbers = [name for name in X.columns if name not in strings]
    numeric = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    encode = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=10, sparse_output=not dense
    )
    return ColumnTransformer([("numbers", numeric, numbers), ("strings", encode, strings)])


def logistic(job, X, y):
    """Logistic regression on the columns as numbers."""
    return make_pipeline(as_numbers(X), LogisticRegression(max_iter=2000)).fit(X, y).predict_proba


MODES = {
    "lightgbm": lightgbm,
    "lightgbm-ensemble": lightgbm_ensemble,
    "catboost": catboost,
    "hgb": hist_gradient_boosting,
    "logistic": logistic,
}


def run(modes):
    """Fit and score the job in one of the modes."""
    job = Job()
    X, T = frames(job)
    y = job.array("y")
    job.begin()
    predict = modes[job.mode](job, X, y)
    scores = getattr(predict, "scores", None)
    job.finish(
        lambda: np.log(np.clip(predict(T), CLIP, 1.0)),
        scores=None if scores is None else lambda: scores(T),
    )


if __name__ == "__main__":
    run(MODES)
