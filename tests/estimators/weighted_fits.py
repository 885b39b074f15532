"""Some rows, a small fit to them, and what two fits must share to be the same."""

from numpy.testing import assert_allclose

from cavity import SEPClassifier
from support import make, table

N = 40
X, LABELS = table(N)
X_STAR, _ = table(15, seed=9)


def quick(kind=SEPClassifier, **options):
    return make(kind, **{"n_inducing": 6, "max_epochs": 25, "random_state": 0, "n_jobs": 1, **options})


def assert_same_fit(one, other, *, rtol=1e-5):
    assert_allclose(one.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, rtol=rtol)
    assert_allclose(one.kernel_.theta, other.kernel_.theta, rtol=rtol, atol=rtol)
    assert_allclose(one.inducing_points_, other.inducing_points_, rtol=rtol, atol=rtol)
    one_p, other_p = (fit.predict_proba(X_STAR) for fit in (one, other))
    assert_allclose(one_p, other_p, rtol=rtol, atol=rtol)
    assert_allclose(one.loo_log_loss_, other.loo_log_loss_, rtol=rtol)
