"""Small fitted models for the tests of model files."""

import warnings

from sklearn.exceptions import ConvergenceWarning

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from support import make, table

X, LABELS = table(60)
X_STAR = table(40, seed=9)[0]
CLASSIFIERS = {"sep": SEPClassifier, "svi": SVIClassifier, "gfitc": GFITCClassifier}


def fitted(method="sep", y=LABELS, **options):
    """A classifier after four iterations."""
    given = {"n_inducing": 5, "max_epochs": 4, "random_state": 0, **options}
    model = make(CLASSIFIERS[method], **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
