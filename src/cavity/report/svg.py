"""Figures as SVG inside a page: its fonts, its ink in light and dark, and nothing from elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from cavity.plot.canvas import PALETTE

_INK, _RULE = "#010203", "#040506"
"""Stand for the page's own colours, which are known only when it is shown."""

_OWN = {_INK: "currentColor", _RULE: "var(--rule)", PALETTE[0].lower(): "var(--accent)"}

_STYLE: dict[Any, Any] = {
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.labelsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.facecolor": "none",
    "svg.fonttype": "none",
    "path.simplify": True,
}


def drawn(
    name: str,
    draw: Callable[..., Any],
    description: str,
    *,
    width: float = 4.4,
    height: float = 3.3,
    columns: int = 1,
) -> str:
    """What `draw(ax, …)` draws on one or more axes side by side, as an SVG element.

    name: unlike that of any other figure of the page; description: for readers who do not see it.

    >>> svg = drawn("demo", lambda ax: ax.plot([0, 1], [0, 1]), "a rising line")
    >>> svg.startswith('<svg role="img" aria-label="a rising line"'), "http" in svg
    (True, False)
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(*figure.subplots(1, columns, squeeze=False)[0])
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _inlined(file.getvalue(), description)


def _inlined(svg: str, description: str) -> str:
    """An SVG document as an element of an HTML page."""
    body = svg[svg.index("<svg") :]
    view = re.search(r'viewBox="([^"]+)"', body)
    assert view is not None
    body = body[body.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # the same in every figure, and not referred to
    body = body.replace("xlink:href", "href")
    for stand_in, own in _OWN.items():
        body = body.replace(stand_in, own)
    # The font is the page's own; matplotlib before 3.10 writes size and family in one.
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r"font: (?:\w+ )*([\d.]+px) [^;\"]*;", r"font-size: \1;", body)
    return f'<svg role="img" aria-label="{escape(description)}" viewBox="{view[1]}">{body}'
