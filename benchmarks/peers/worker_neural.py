"""xRFM and RealMLP on tables, from their PyPI packages, on the CPU, at the defaults of their authors.

Both hold a tenth of the training rows out for early stopping. Numbers have their medians for missing
values; RealMLP sees categories as such, xRFM one column a category.
"""

import numpy as np
import pandas
from sklearn.impute import SimpleImputer
from worker_tables import as_numbers, categories, run, stopping_rows


def xrfm(job, X, y):
    """Recursive feature machines in a tree; the l2 kernel and bandwidth of the package's example."""
    import torch
    from xrfm import xRFM

    torch.set_num_threads(job.threads)
    train, valid = stopping_rows(job, y)
    columns = as_numbers(X, dense=True).fit(X.iloc[train])
    classes, codes = np.unique(y, return_inverse=True)

    def tensor(frame):
        return torch.as_tensor(columns.transform(frame), dtype=torch.float32)

    labels = torch.as_tensor(codes if len(classes) == 2 else np.eye(len(classes))[codes])
    labels = labels.to(torch.float32).reshape(len(y), -1)
    parameters = {
        "model": {"kernel": "l2", "bandwidth": 10.0, "exponent": 1.0, "diag": False},
        "fit": {"reg": 1e-3, "iters": 5, "verbose": False, "early_stop_rfm": True},
    }
    model = xRFM(parameters, device=torch.device("cpu"), tuning_metric="brier", random_state=job.seed)
    model.fit(tensor(X.iloc[train]), labels[train], tensor(X.iloc[valid]), labels[valid])

    def probabilities(T):
        p = np.asarray(model.predict_proba(tensor(T)), dtype=np.float64)
        return p / p.sum(axis=1, keepdims=True)

    return probabilities


def realmlp(job, X, y):
    """RealMLP-TD, stopped by cross entropy and without smoothed labels, as probabilities are scored."""
    import torch
    from pytabkit import RealMLP_TD_Classifier

    torch.set_num_threads(job.threads)
    strings = categories(X)
    numbers = [name for name in X.columns if name not in strings]
    impute = SimpleImputer(strategy="median", add_indicator=True).set_output(transform="pandas")
    impute.fit(X[numbers])

    def complete(frame):
        filled = impute.transform(frame[numbers]).astype(np.float32)
        return pandas.concat([filled, frame[strings]], axis=1)

    train, valid = stopping_rows(job, y)
    rows = np.concatenate([train, valid])
    model = RealMLP_TD_Classifier(
        device="cpu",
        random_state=job.seed,
        n_threads=job.threads,
        val_metric_name="cross_entropy",
        use_ls=False,
        verbosity=0,
    )
    at = np.arange(len(train), len(rows))
    model.fit(complete(X.iloc[rows]), y[rows], val_idxs=at, cat_col_names=strings)
    return lambda T: model.predict_proba(complete(T))


if __name__ == "__main__":
    run({"xrfm": xrfm, "realmlp": realmlp})
