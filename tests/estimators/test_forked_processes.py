"""A process that was forked after a fit can fit too."""

import multiprocessing
import os
import subprocess
import sys

import pytest

FITS_IN_A_CHILD = """
import multiprocessing, sys, warnings
from numpy.testing import assert_array_equal
from sklearn.cluster import KMeans
from cavity import SEPClassifier
from support import table

warnings.simplefilter("ignore")
X, y = table(700)

def fitted():
    return SEPClassifier(n_inducing=5, max_epochs=2, random_state=0).fit(X, y)

def fit_again():
    assert_array_equal(fitted().predict_proba(X), model.predict_proba(X))

model = fitted()
KMeans(5, n_init=1).fit(X)  # two threads of OpenMP, which a fit of ours does not start
child = multiprocessing.get_context("fork").Process(target=fit_again, daemon=True)
child.start()
child.join(60)
sys.exit("the child hangs" if child.exitcode is None else child.exitcode)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_child_fits_after_its_parent():
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FITS_IN_A_CHILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
