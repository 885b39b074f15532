"""The normal distribution's functions against fifty digits."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cavity.gp.likelihoods.normal import density_ratio, log_cdf


@given(st.floats(-1e3, 1e3))
@example(-40.0)
@example(38.0)
@example(0.0)
def test_log_cdf_and_density_ratio(z):
    with mp.workdps(50):
        cdf = mp.erfc(-mp.mpf(z) / mp.sqrt(2)) / 2
        upper = mp.erfc(mp.mpf(z) / mp.sqrt(2)) / 2
        log_truth = float(mp.log(cdf) if z < 0 else mp.log1p(-upper))
        ratio_truth = float(mp.npdf(mp.mpf(z)) / cdf)
    # exp(−z²/2) magnifies the last digit of z² by z².
    rtol = 1e-13 * max(1, z * z)
    assert abs(log_cdf(np.array(z)) - log_truth) <= rtol * abs(log_truth) + 1e-300
    assert abs(density_ratio(np.array(z)) - ratio_truth) <= rtol * ratio_truth + 1e-300


def test_limits_beyond_any_data():
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert density_ratio(np.array(-1e12)) == pytest.approx(1e12, rel=1e-15)
        assert density_ratio(np.array(1e12)) == 0.0
        assert log_cdf(np.array(1e12)) == 0.0
