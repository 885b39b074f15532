"""Test NLL no worse than scikit-learn's full Gaussian process classifier, with the same kernel."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from cavity import SEPClassifier


def moons():
    X, y = make_moons(1200, noise=0.3, random_state=0)
    return X, y, 200, 1.0


def breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X, y, 250, 5.0


@pytest.mark.parametrize("data", [moons, breast_cancer])
@pytest.mark.parametrize("n_inducing", [50, 100])
def test_no_worse_than_the_full_process(data, n_inducing):
    X, y, n_train, lengthscale = data()
    X, X_star, y, y_star = train_test_split(X, y, train_size=n_train, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_star = scaler.transform(X), scaler.transform(X_star)
    kernel = ConstantKernel(1.0) * RBF(lengthscale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        full = GaussianProcessClassifier(kernel, random_state=0).fit(X, y)
        sparse = SEPClassifier(kernel, n_inducing=n_inducing, random_state=0).fit(X, y)
    nll, reference = (log_loss(y_star, model.predict_proba(X_star)) for model in (sparse, full))
    assert nll <= reference
    assert nll < 0.5 * np.log(2)
