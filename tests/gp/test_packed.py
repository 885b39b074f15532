"""Half of a matrix, and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cavity.gp.linalg import lower, symmetric, triangle


@given(m=st.integers(1, 30), dtype=st.sampled_from([np.float32, np.float64]))
def test_triangles_are_half_of_a_matrix_and_all_of_it(m, dtype):
    M = np.random.default_rng(m).standard_normal((m, m)).astype(dtype)
    half = triangle(M)
    assert half.dtype == dtype
    assert_array_equal(half, M[np.tril_indices(m)])
    assert_array_equal(lower(half), np.tril(M))
    assert_array_equal(symmetric(half), np.tril(M) + np.tril(M, -1).T)
