"""Pictures of fitted classifiers, in scikit-learn's Display convention; needs `cavity[plot]`.

Every class has `from_estimator`, which computes and draws, and `plot`, which draws again; after either,
`ax_` and `figure_` are matplotlib's own objects, to be changed at will. Colours are those of Okabe and
Ito, which colour-blind readers can tell apart.
"""

from cavity.plot.partial_dependence import PartialDependenceDisplay
from cavity.plot.plane import DecisionBoundaryDisplay, InducingPointsDisplay
from cavity.plot.relevance import RelevanceDisplay
from cavity.plot.reliability import ReliabilityDisplay
from cavity.plot.training_curve import TrainingCurveDisplay

__all__ = [
    "DecisionBoundaryDisplay",
    "InducingPointsDisplay",
    "PartialDependenceDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "TrainingCurveDisplay",
]
