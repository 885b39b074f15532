"""The types that a user's own mypy sees, with the package as it is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from doc_blocks import program

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"

# scikit-learn and pandas have no types of their own; everything else must be known.
SETTINGS = """
[mypy]
strict = true
[mypy-sklearn.*,pandas.*]
ignore_missing_imports = true
"""
LEARNED = """
model = TableClassifier()
reveal_type(model.fit(frame, "diagnosis"))
reveal_type(model.predict(frame))
reveal_type(model.predict_proba(frame))
reveal_type(model.predict_uncertainty(frame).epistemic)
reveal_type(model.relevance_.ranked()[0].value)
reveal_type(model.loo_log_loss_)
reveal_type(model.validation_log_loss_)
reveal_type(model.history_[-1].seconds)
reveal_type(model.config_.n_inducing)
reveal_type(model.classes_)
reveal_type(SEPClassifier().fit(frame, frame).predict_proba(frame))
reveal_type(to_onnx)
reveal_type(write_report(model, "report.html"))
"""
WRONG = """
TableClassifier(max_categories="many")
SEPClassifier(inducing=10)
model.predict_proba()
write_report(model)
"""
HEADER = """
from sklearn.datasets import load_breast_cancer
from cavity import SEPClassifier, TableClassifier, to_onnx
from cavity.report import write_report
frame = load_breast_cancer(as_frame=True).frame
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Lines of mypy by file, for the tutorial and for programs with reveals and mistakes; slow."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    (folder / "tutorial.py").write_text(program(TUTORIAL), encoding="utf-8")
    (folder / "learned.py").write_text(HEADER + LEARNED, encoding="utf-8")
    (folder / "wrong.py").write_text(HEADER + "model = TableClassifier()" + WRONG, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "tutorial.py",
        "learned.py",
        "wrong.py",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    return {name: [line for line in lines if line.startswith(name)] for name in command[-3:]}


pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_tutorial_is_strictly_typed(found):
    assert found["tutorial.py"] == []


def test_nothing_that_a_user_gets_is_any(found):
    revealed = [line for line in found["learned.py"] if "Revealed type is" in line]
    assert len(revealed) == LEARNED.count("reveal_type")
    assert revealed == found["learned.py"]
    assert [line for line in revealed if line.endswith('"Any"')] == []


def test_mistakes_are_found(found):
    assert len([line for line in found["wrong.py"] if ": error: " in line]) == WRONG.count("\n") - 1
