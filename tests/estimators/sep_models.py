"""Small problems for the tests of SEPClassifier."""

from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity import SEPClassifier
from support import make, points, table

X, LABELS = table(100)
X_STAR, LABELS_STAR = table(40, seed=9)
KERNEL = ConstantKernel(1.5) * RBF([0.8, 1.2])


def model(**options):
    """A classifier with ten inducing points on one thread."""
    return make(SEPClassifier, **{"n_inducing": 10, "random_state": 0, "n_jobs": 1, **options})


def at_fixed_kernel(**options):
    """A classifier that only finds q, to many digits."""
    options = {"kernel": KERNEL, "inducing_points": points(8), "scaling": None, **options}
    return model(**{"optimizer": None, "tol": 1e-10, "max_epochs": 500, **options})
