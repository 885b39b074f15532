"""`make picture`: draws docs/images/moons.png, the picture of the README."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.plot import DecisionBoundaryDisplay
from cavity.plot.inducing_points import draw_rows

TARGET = Path(__file__).with_name("moons.png")


def main() -> None:
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
    file = io.BytesIO()
    figure.savefig(file, dpi=110)
    # 128 colours are plenty, and a quarter of the bytes.
    Image.open(file).convert("RGB").quantize(128).save(TARGET, optimize=True)


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
