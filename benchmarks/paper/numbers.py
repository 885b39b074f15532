"""The numbers that the paper prints, as data.

Source: Hernández-Lobato & Hernández-Lobato (2015), Table 1 (mean ± standard deviation over 20 splits of
the test NLL; average training seconds of R code on the authors' machine), and the MNIST results in the
text on distributed training.
"""

from __future__ import annotations

FRACTIONS = (0.15, 0.25, 0.5)
METHODS = ("GFITC", "SEP", "SVI")

Cell = tuple[float, float]
"""Mean and standard deviation."""

# One row a set; m = 15, 25, 50 % one after the other, each with GFITC, SEP and SVI.
_NLL = """
australian  .68 .06  .69 .07  .63 .05   .68 .08  .67 .07  .63 .05   .67 .09  .64 .05  .63 .05
breast      .10 .05  .11 .05  .10 .05   .11 .06  .11 .05  .10 .05   .11 .05  .11 .05  .10 .05
crabs       .07 .07  .06 .06  .07 .06   .06 .07  .06 .06  .07 .07   .06 .07  .06 .06  .09 .06
heart       .43 .12  .40 .13  .39 .11   .42 .12  .41 .12  .40 .11   .42 .13  .41 .11  .40 .10
ionosphere  .30 .22  .26 .19  .26 .14   .29 .23  .27 .20  .27 .18   .30 .24  .27 .19  .26 .16
pima        .54 .08  .52 .07  .49 .05   .53 .07  .51 .06  .50 .05   .53 .07  .50 .05  .49 .05
sonar       .35 .13  .33 .10  .40 .17   .35 .12  .32 .10  .40 .19   .35 .13  .29 .09  .35 .16
seconds     59 4     17 1     40 2      133 6    37 2     65 3      494 29   130 5    195 10
"""


def _parsed() -> dict[tuple[str, float, str], Cell]:
    cells: dict[tuple[str, float, str], Cell] = {}
    for line in _NLL.split("\n")[1:-1]:
        name, *values = line.split()
        pairs = [(float(a), float(b)) for a, b in zip(values[::2], values[1::2], strict=True)]
        columns = [(fraction, method) for fraction in FRACTIONS for method in METHODS]
        for (fraction, method), pair in zip(columns, pairs, strict=True):
            cells[name, fraction, method] = pair
    return cells


TABLE1 = _parsed()
"""(set or "seconds", fraction, method) → mean and standard deviation."""

MNIST = {"SEP": {"error": 0.027, "nll": 0.0694}, "SVI": {"error": 0.022, "nll": 0.0655}}
"""Batch training with m = 200, odd against even digits."""
