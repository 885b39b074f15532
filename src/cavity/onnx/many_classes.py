"""The multinomial probit of C ≥ 3 classes: the largest of C latent values seen through unit noise.

    p_y = ∫ N(t | m_y, b_y) ∏_{c≠y} Φ((t − m_c)/√b_c) dt,      b_c = 1 + variance_c

All classes share the nodes of one trapezoidal rule. Below the largest m_c − r√b_c some factor is under
Φ(−r), and above the largest m_c + r√b_c every density is nothing. Between, an equidistant sum converges
faster than any power of the spacing; products of more factors bend more sharply and need a closer one.
With the spacing used, in units of the narrowest √b that can occur, the rule errs by less than 2e-7 for
up to a hundred classes; Φ itself is the runtime's float32 function, which is as good as that.

The graph has one number of nodes for all rows, 1,025 at most: enough for latent variances up to 30,000
(the default kernel has 30 at most). Beyond that the error grows, to 3e-4 at 1e5, where some classes are
known far better than others; `NoisyArgmax`, which takes as many nodes as a row needs, has no such limit.
"""

from __future__ import annotations

from math import ceil, log, pi, sqrt

import numpy as np

from cavity.onnx.graph import Value

_REACH = 6.0
_MOST_NODES = 1024


def noisy_argmax(mean: Value, variance: Value, n_classes: int, largest_variance: float) -> Value:
    """Probabilities [N, C] from latent moments mean, variance [N, C].

    largest_variance: what no variance exceeds; it decides the number of nodes.
    """
    spacing = 0.75 / (1.0 + 0.27 * log(n_classes))
    n_intervals = min(ceil(2.0 * _REACH * sqrt(1.0 + largest_variance) / spacing), _MOST_NODES)
    root = (1.0 + variance).sqrt()
    low = _largest(mean - _REACH * root)
    width = _largest(mean + _REACH * root) - low
    t = _deep(low) + _deep(width) * np.linspace(0.0, 1.0, n_intervals + 1)[None, None]  # [N, 1, J]
    z = (t - _deep(mean)) / _deep(root)  # [N, C, J]
    # The floor keeps 0/0 away; a class's own factor cancels whatever its rounding.
    cdf = (0.5 + 0.5 * (z * sqrt(0.5)).cast(np.float32).op("Erf").cast(np.float64)).at_least(1e-9)
    product = cdf.op("ReduceProd", axes=[1], keepdims=1)
    density = (-0.5 * z * z).exp() / (_deep(root) * sqrt(2.0 * pi))
    mass = (density * product / cdf).op("ReduceSum", np.array([2], dtype=np.int64), keepdims=0)
    p = mass * (width / float(n_intervals))
    return p / p.sum()


def _largest(value: Value) -> Value:
    """The largest of each row, [N, 1]."""
    return value.op("ReduceMax", axes=[1], keepdims=1)


def _deep(value: Value) -> Value:
    """[N, k] as [N, k, 1]."""
    return value.op("Unsqueeze", np.array([2], dtype=np.int64))
