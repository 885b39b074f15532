"""Makes `support` and `reference` importable from every test; keeps clocks and cores out of the way."""

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

# No doctests in these, and two modules of one name cannot both be imported for them.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

settings.register_profile("cavity", deadline=None)
settings.load_profile("cavity")


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread():
    """On matrices as small as these, more threads only get in each other's way."""
    with threadpool_limits(1, user_api="blas"):
        yield
