"""`make pictures`: draws the pictures of the README and the documentation."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.model_selection import train_test_split

from cavity import SEPClassifier, SVIClassifier
from cavity.plot import (
    CalibrationDisplay,
    DecisionBoundaryDisplay,
    InducingPointsDisplay,
    PartialDependenceDisplay,
    RelevanceDisplay,
    TrainingCurveDisplay,
)
from cavity.plot.plane import draw_rows

HERE = Path(__file__).parent


def main() -> None:
    """Draw both."""
    save(moons(), "moons.png")
    save(displays(), "displays.png")


def moons() -> Figure:
    """Fit to two moons; draw what the model says and where it does not know."""
    X, y = make_moons(300, noise=0.25, random_state=1)
    model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    display = DecisionBoundaryDisplay.from_estimator(
        model, X, y, grid_resolution=120, margin=0.5, ax=left
    )
    left.set_title("what it says", loc="right", fontsize=10)
    unknown(right, model, display)
    draw_rows(right, X, y, model.classes_)
    right.set_title("how much it does not know", loc="right", fontsize=10)
    for ax in (left, right):
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    return figure


def displays() -> Figure:
    """Every display, of a classifier of breast cancers."""
    data = load_breast_cancer(as_frame=True)
    labels = data.target.map({0: "malignant", 1: "benign"}).to_numpy()
    X, X_test, y, y_test = train_test_split(data.data, labels, test_size=0.5, random_state=0)
    sep = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
    svi = SVIClassifier(n_inducing=20, random_state=0).fit(X, y)
    figure = pyplot.figure(figsize=(12.0, 6.8), layout="constrained")
    # A part of the figure each, so that long names in one do not squeeze the others.
    parts = figure.subfigures(2, 3)
    axes = np.array([[part.subplots() for part in row] for row in parts])
    top = [int(i) for i in np.argsort(-sep.relevance_.value)[:2]]
    DecisionBoundaryDisplay.from_estimator(sep, X, y, features=top, ax=axes[0, 0])
    CalibrationDisplay.from_estimator(sep, X_test, y_test, n_bins=5, ax=axes[0, 1])
    RelevanceDisplay.from_estimator(sep, max_features=8, ax=axes[0, 2])
    PartialDependenceDisplay.from_estimator(sep, X, top[1], ax=axes[1, 0])
    TrainingCurveDisplay.from_estimators([sep, svi], x="epochs", ax=axes[1, 1])
    InducingPointsDisplay.from_estimator(sep, X, y, features=top, ax=axes[1, 2])
    return figure


def save(figure: Figure, name: str) -> None:
    """Write a picture next to this file; 256 colours are plenty, and a third of the bytes."""
    file = io.BytesIO()
    figure.savefig(file, dpi=100)
    Image.open(file).convert("RGB").quantize(256).save(HERE / name, optimize=True)


def unknown(ax: object, model: SEPClassifier, display: DecisionBoundaryDisplay) -> None:
    """Shade the share of the prior's variance that the data have not taken away."""
    xs, ys = np.meshgrid(display.x, display.y)
    score = model.ood_score(np.column_stack([xs.ravel(), ys.ravel()])).reshape(xs.shape)
    greys = LinearSegmentedColormap.from_list("unknown", ["#ffffff", "#7a7a7a"])
    extent = (display.x[0], display.x[-1], display.y[0], display.y[-1])
    ground = ax.imshow(  # type: ignore[attr-defined]
        score, origin="lower", extent=extent, aspect="auto", cmap=greys, vmin=0, vmax=1
    )
    bar = ax.figure.colorbar(ground, ax=ax, pad=0.02)  # type: ignore[attr-defined]
    bar.set_label("share of the prior variance left")


if __name__ == "__main__":
    main()
