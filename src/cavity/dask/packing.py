"""Half of each matrix travels: triangles, in the precision that the tiles have anyway."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from functools import lru_cache
from typing import Any

import cloudpickle
import numpy as np

from cavity.dask.messages import Message, Packed
from cavity.packed import lower, symmetric, triangle
from cavity.posterior import Naturals, Posterior
from cavity.prior import Prior
from cavity.sums import Sums
from cavity.typing import Array, Dtype


def packed_message(message: Message) -> Packed:
    """A message as bytes, once for whoever it goes to."""
    options, dtype = message.options, message.prior.dtype
    if options is not None and options.exact:
        dtype = np.dtype(np.float64)  # its gradient has terms that are not of the tiles
    small = replace(
        message,
        prior=_halved(message.prior),
        posterior=None if message.posterior is None else _moments_only(message.posterior, dtype),
    )
    return Packed(f"{message.setting.fit}-{message.number}", cloudpickle.dumps(small))


@lru_cache(maxsize=2)
def unpacked(message: Packed) -> Message:
    """The message itself; a worker opens it once for all of its tasks."""
    return opened(message)


def opened(message: Packed) -> Message:
    """The message itself."""
    small: Message = pickle.loads(message.data)
    prior = copy.copy(small.prior)
    for name in ("whitener", "L"):
        if name in vars(prior):
            setattr(prior, name, lower(vars(prior)[name]))
    posterior = small.posterior
    if posterior is not None and posterior.factors is not None:
        posterior = replace(posterior, factors=np.stack([lower(half) for half in posterior.factors]))
    elif posterior is not None:
        posterior = replace(posterior, covariance=_symmetrics(posterior.covariance))
    return replace(small, prior=prior, posterior=posterior)


def for_rows(prior: Prior, *, directions: bool) -> Prior:
    """The prior without what only the driver needs of it.

    The bound kernel goes along: a worker need not know how to bind a kernel that a user has registered.
    """
    prior.rows_kernel, prior.whitener  # noqa: B018  (made here, not by every worker)
    if directions:
        prior.L  # noqa: B018
    slim = copy.copy(prior)
    slim.Z = prior.Z[:, :0]  # the bound kernel has the points; what counts here is how many they are
    unused = ["_K", "_tape", "_factor", "L_inverse"] + ([] if directions else ["L"])
    if prior.dtype != np.float64:
        unused.append("_bound")
    for name in unused:
        slim.__dict__.pop(name, None)
    return slim


def _halved(prior: Prior) -> Prior:
    small = copy.copy(prior)
    for name in ("whitener", "L"):
        if name in vars(small):
            setattr(small, name, triangle(vars(small)[name].astype(prior.dtype, copy=False)))
    return small


def _moments_only(posterior: Posterior, dtype: Dtype) -> Posterior:
    nothing = Naturals.zeros(len(posterior.mean), 0)
    if posterior.factors is not None:
        return replace(posterior, factors=_triangles(posterior.factors))
    halves = _triangles(posterior.covariance.astype(dtype, copy=False))
    return replace(posterior, covariance=halves, naturals=nothing)


def packed_sums(sums: Sums, dtype: Dtype) -> Sums:
    """Sums of a shard for the way: they add up as they are.

    Precisions as triangles; the gradient in the precision of the tiles, which the driver takes it to.
    """
    smaller: dict[str, Any] = {"precision": _triangles(sums.precision)}
    if sums.replaced_precision is not None:
        smaller["replaced_precision"] = _triangles(sums.replaced_precision)
    for name in ("bracket", "Z"):
        if (value := getattr(sums, name)) is not None:
            smaller[name] = value.astype(dtype, copy=False)
    return replace(sums, **smaller)


def unpacked_sums(sums: Sums) -> Sums:
    """The sums themselves."""
    whole: dict[str, Any] = {"precision": _symmetrics(sums.precision)}
    if sums.replaced_precision is not None:
        whole["replaced_precision"] = _symmetrics(sums.replaced_precision)
    if sums.Z is not None:
        whole["Z"] = sums.Z.astype(np.float64, copy=False)
    return replace(sums, **whole)


def packed_naturals(naturals: Naturals) -> Naturals:
    """Naturals with triangles for precisions."""
    return Naturals(_triangles(naturals.precision), naturals.shift)


def unpacked_naturals(naturals: Naturals) -> Naturals:
    """The naturals themselves."""
    return Naturals(_symmetrics(naturals.precision), naturals.shift)


def _triangles(matrices: Array) -> Array:
    return np.stack([triangle(M) for M in matrices])


def _symmetrics(halves: Array) -> Array:
    return np.stack([symmetric(half) for half in halves])
