import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern

from cavity.gp.kernels import bind


def test_other_smoothness_is_refused_with_the_options():
    with pytest.raises(ValueError, match=r"nu=0\.7 .* must be one of 0\.5, 1\.5, 2\.5, inf"):
        bind(2.0 * Matern(nu=0.7), np.zeros((3, 2)))
