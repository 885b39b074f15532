"""Plots of fitted classifiers, as scikit-learn's Display classes; needs `cavity[plot]`.

Every class has `from_estimator`, which computes and draws, and `plot`, which draws again. Afterwards
`ax_` and `figure_` are the matplotlib objects. The colours are those of Okabe and Ito, which
colour-blind readers can tell apart.
"""

from cavity.plot.calibration import CalibrationDisplay
from cavity.plot.partial_dependence import PartialDependenceDisplay
from cavity.plot.plane import DecisionBoundaryDisplay, InducingPointsDisplay
from cavity.plot.relevance import RelevanceDisplay
from cavity.plot.training_curve import TrainingCurveDisplay

__all__ = [
    "CalibrationDisplay",
    "DecisionBoundaryDisplay",
    "InducingPointsDisplay",
    "PartialDependenceDisplay",
    "RelevanceDisplay",
    "TrainingCurveDisplay",
]
