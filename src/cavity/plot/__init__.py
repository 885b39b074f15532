"""Plots of fitted classifiers, as scikit-learn's Display classes; needs `cavity[plot]`.

Every class has `from_estimator`, which computes and draws, and `plot`, which draws again. Afterwards
`ax_` and `figure_` are the matplotlib objects. The colours are those of Okabe and Ito, which
colour-blind readers can tell apart.
"""

from cavity.plot.curves import CalibrationDisplay, TrainingCurveDisplay
from cavity.plot.features import PartialDependenceDisplay, RelevanceDisplay
from cavity.plot.plane import DecisionBoundaryDisplay, InducingPointsDisplay

__all__ = [
    "CalibrationDisplay",
    "DecisionBoundaryDisplay",
    "InducingPointsDisplay",
    "PartialDependenceDisplay",
    "RelevanceDisplay",
    "TrainingCurveDisplay",
]
