"""The pass over one tile of rows: refined sites and sums. The time of training is spent here.

For a tile with kernel rows K [t, m], in whitened coordinates (`docs/engine.md`):

    A = K L⁻ᵀ,  s = k(x, x) − |A|²,  Q_c = A B_c⁻¹,  v_c = Σ A∘Q_c,  e_c = A μ_c
    rule: (labels, e, v, s, sites) → refined sites and the scalars α, h, γ
    Λ_c = Aᵀ diag(w ν̃_c) A,   η_c = Aᵀ(w μ̃_c)
    P = Σ_c (α_c μ_cᵀ + h_c Q_c) + ½ γ A     →  −Lᵀ(∂/∂K_mm)L = PᵀA, or ∂/∂μ_c = Aᵀα_c (see below)
    G = P + ½ γ A                            →  ∂/∂K = G L⁻¹,   ∂/∂k(x, x) = −½ γ

that is, per row and latent function, one m×m product each for Q and Λ, and per row three more for all
of them together (A, PᵀA, ∂/∂K), two of them triangular.
`SweepOptions.whitened_gradient` says which of PᵀA and Aᵀα_c is formed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from cavity.engines.protocol import Pass
from cavity.gp.arrowhead import LocalSums, PosteriorViews
from cavity.gp.leaves import LocalPrior, PriorViews
from cavity.gp.linalg import (
    add_outer,
    lower,
    row_dots,
    stacked,
    symmetric,
    times_lower,
    times_transposed_lower,
    triangle,
)
from cavity.gp.posterior import (
    Marginals,
    NaturalParameters,
    Posterior,
    marginals_from_whitened,
    whitened,
)
from cavity.gp.prior import PackedPrior, Prior, RowPrior
from cavity.gp.tiles import KernelRows, RefinedRows, Rows, Sites, Sums
from cavity.inference.rule import RowTerms, Rule, limit_leverage
from cavity.typing import FLOAT64, Array, Dtype

EXACT_LEVERAGE = 1.0 - 1e-9
"""Bound on ν̃v when q is made of just the rows' sites: only rounding could bring it to 1."""
LAGGING_LEVERAGE = 0.5
"""Bound on ν̃v when q was made of older sites, or under another kernel."""


@dataclass(frozen=True)
class SweepOptions:
    """How a `Sweep` refines sites, and what it sums up."""

    damping: float = 1.0
    """ρ: the new site is ρ·refined + (1 − ρ)·old; 1 is undamped."""
    max_leverage: float = EXACT_LEVERAGE
    """Bound on ν̃v, the share of a row in q, for its cavity; it matters when q lags behind the kernel."""
    gradient: bool = True
    """Whether to form the gradient by theta and Z."""
    whitened_gradient: bool = True
    """Whether to form its part through K_mm from the rows, in whitened coordinates. If not, the caller
    forms that part from the summed sites, and h is −ν̃ in all of the gradient, as it is in VI and at the
    fixed point of EP."""
    exact: bool = False
    """Whether the gradient includes the terms that vanish at EP's fixed point (sites held fixed)."""
    inverse_temperature: float = 1.0
    """c: the rule is applied to c·f instead of f, whose moments, offsets and sites are scaled alike."""
    residual_scale: float = 1.0
    """κ: the variance of f given u in a row's likelihood is κs instead of s; 1 is FITC, 0 is DTC.

    Rows that are hard to fit have the largest s, the variance that the inducing points leave
    unexplained. With all of s their labels count least, most of all with many classes. Predictions use
    b·s, where b is calibrated on held-out rows; without any, b is κ.
    """
    trace_penalty: float = 0.0
    """c: if positive, ½ c Σ ν̃ s is subtracted from the objective, as in Titsias' variational bound.

    In FITC's evidence s acts as noise wherever a row is hard to fit: with few rows the inducing points
    overfit, with many rows amplitudes grow without end. With the penalty the gradient takes the s inside
    EP's own integrals as constant. Sites and q do not depend on the penalty.
    """


def site_gamma(rule: Rule, options: SweepOptions) -> float | None:
    """The ratio γ/ν̃ in a pass if it is the same in all rows, else None."""
    if options.trace_penalty:
        return options.trace_penalty
    if options.residual_scale == 0.0:
        return 0.0
    return None if rule.site_gamma is None else rule.site_gamma * options.residual_scale


@dataclass(frozen=True)
class _PriorPass(Pass):
    """A pass under a prior: what both passes have in common."""

    prior: Prior | RowPrior | PriorViews

    @property
    def n_inducing(self) -> int:
        """Number of global inducing points, plus those of the row's leaf if there are leaves."""
        return self.prior.width

    @property
    def dtype(self) -> Dtype:
        """Precision of the tiles."""
        return self.prior.dtype

    def joined(self, parts: Mapping[int, Sums], shares: Mapping[int, float]) -> LocalSums:
        """The sums of passes over rows of several leaves, by leaf."""
        assert isinstance(self.prior, (LocalPrior, PriorViews))
        return LocalSums.of(parts, shares, self.prior.m, self.prior.sizes)


@dataclass(frozen=True)
class Sweep(_PriorPass):
    """The pass that refines the sites of rows and sums their parts of q and of the gradient."""

    posterior: Posterior
    rule: Rule
    options: SweepOptions = field(default_factory=SweepOptions)

    @property
    def scores(self) -> bool:
        """True: every row is given its leave-one-out probability."""
        return True

    @property
    def refines(self) -> bool:
        """Whether the rows are given new sites: not with a damping of 0."""
        return self.options.damping != 0.0

    def of_leaf(self, leaf: int) -> Sweep:
        """The pass over rows of one leaf, whose inducing points are those of the leaf's view."""
        assert isinstance(self.prior, (LocalPrior, PriorViews))
        return replace(self, prior=self.prior.view(leaf), posterior=self.posterior.view(leaf))

    def finding_sites(self) -> Sweep:
        """The pass that gives rows without sites those that this q implies."""
        options = replace(
            self.options, damping=1.0, gradient=False, trace_penalty=0.0, inverse_temperature=1.0
        )
        return replace(self, options=options)

    def packed(
        self, *, has_directions: bool, leaves: Iterable[int] | None = None
    ) -> Callable[[], Sweep]:
        """A function that makes this pass again; see `Pass.packed`."""
        assert isinstance(self.prior, Prior)
        # The exact gradient has terms that are computed in float64, whatever the tiles have.
        dtype = FLOAT64 if self.options.exact else self.prior.dtype
        if isinstance(self.prior, LocalPrior):
            views = _packed_views(self.prior, leaves)
            marginals = {k: _packed_posterior(self.posterior.view(k), dtype) for k in views.views}
            return partial(_unpacked_local_sweep, views, marginals, self.rule, self.options)
        posterior = _packed_posterior(self.posterior, dtype)
        prior = self.prior.packed(has_directions=has_directions)
        return partial(_unpacked_sweep, prior, posterior, self.rule, self.options)

    def __call__(self, rows: Rows, sites: Sites) -> tuple[RefinedRows, Sums]:
        """Refined sites and sums of some rows."""
        prior, posterior, options = self.prior, self.posterior, self.options
        assert not isinstance(prior, PriorViews)
        kernel = prior.rows_kernel
        A, residual, cross_tape, diagonal_tape = _kernel_rows(rows, prior, once=options.gradient)
        at = marginals_from_whitened(A, residual, posterior)
        weight, directions = rows.weights, _whitened_directions(sites, prior)
        own = (
            sites if directions is None else _equivalent_sites(sites, directions, at, posterior, options)
        )
        terms = self._terms(rows, own, at)
        if rows.importance_weight is not None:
            weight = weight * rows.importance_weight
        # A row without weight is not part of q, so it must not have a site to divide out of q.
        step = options.damping * (weight > 0)
        refined = Sites(
            sites.precision + step * (terms.precision - sites.precision),
            sites.shift + step * (terms.shift - sites.shift),
            None if directions is None else times_lower(at.A, prior.whitener),
        )
        sums = _site_sums(at, sites, refined, terms, weight)
        if directions is not None:
            sums.replaced_precision, sums.replaced_shift = _naturals(directions, sites, weight).parts
        if options.trace_penalty:
            # −½ cν̃s has the form of the row's own dependence on s, with cν̃ in the place of γ.
            charge = options.trace_penalty * terms.precision
            sums.objective -= 0.5 * float(weight @ (charge.sum(axis=0) * at.residual))
            terms = terms._replace(gamma=charge)
        if options.gradient:
            if not options.whitened_gradient:
                terms = terms._replace(h=-terms.precision)
                by_mean = np.matmul((weight * terms.alpha).astype(at.A.dtype), at.A)
                sums.mean_gradient = by_mean.astype(np.float64)
            P = _row_gradient(at, terms, weight, posterior)
            half_gamma = 0.5 * weight * terms.gamma.sum(axis=0)
            correction = None
            if half_gamma.any():  # it is zero if the likelihood does not use the residual
                correction = half_gamma.astype(at.A.dtype)[:, None] * at.A
                P += correction
            if options.whitened_gradient:
                sums.whitened_gradient = P.T @ at.A
                if options.exact:
                    sums.whitened_gradient -= 0.5 * _moment_mismatch(at, terms, weight, posterior)
            if correction is not None:
                P += correction
            by_rows = times_lower(P, prior.whitener, overwrite=True)
            theta, sums.Z = kernel.pull_back(cross_tape, by_rows)
            sums.theta = theta + kernel.pull_back_diagonal(diagonal_tape, -half_gamma)
        return RefinedRows(refined if self.refines else None, terms.log_predictive), sums

    def _terms(self, rows: Rows, own: Sites, at: Marginals) -> RowTerms:
        """The terms of rows whose sites in q are `own`."""
        options, c = self.options, self.options.inverse_temperature
        offset = None if rows.offset is None else c * rows.offset

        def terms_without(share: Array | float) -> RowTerms:
            return self.rule(
                rows.labels,
                c * at.mean,
                c**2 * at.variance,
                c**2 * options.residual_scale * at.residual,
                share / c**2 * own.precision,
                share / c * own.shift,
                options.max_leverage,
                offset,
            )

        if rows.weight is None:
            terms = terms_without(1.0)
        else:
            # One copy of a row is taken out of q, also if its weight is below 1: only then do the
            # moments match as the gradient assumes.
            terms = terms_without(np.sign(rows.weight))
            if (rows.weight < 1.0).any():
                # For the leave-one-out probability, a row of weight w < 1 is divided out w times.
                left_out = terms_without(np.minimum(rows.weight, 1.0)).log_predictive
                terms = terms._replace(log_predictive=left_out)
        if options.residual_scale != 1.0:  # γ is minus twice the derivative by s, of which κs is a part
            terms = terms._replace(gamma=options.residual_scale * terms.gamma)
        return terms


@dataclass(frozen=True)
class SiteSum(_PriorPass):
    """The pass that sums up the sites of rows as they are, and changes nothing."""

    def of_leaf(self, leaf: int) -> SiteSum:
        """The pass over rows of one leaf."""
        assert isinstance(self.prior, (LocalPrior, PriorViews))
        return SiteSum(self.prior.view(leaf))

    def packed(
        self, *, has_directions: bool, leaves: Iterable[int] | None = None
    ) -> Callable[[], SiteSum]:
        """A function that makes this pass again; see `Pass.packed`."""
        assert isinstance(self.prior, Prior)
        if isinstance(self.prior, LocalPrior):
            return partial(_unpacked_site_sum, _packed_views(self.prior, leaves))
        return partial(_unpacked_site_sum, self.prior.packed(has_directions=False))

    def __call__(self, rows: Rows, sites: Sites) -> tuple[None, Sums]:
        """The summed sites, with number and weight of the rows; all other sums are 0."""
        assert not isinstance(self.prior, PriorViews)
        if rows.cache is not None:
            A = _kernel_rows(rows, self.prior).A
        else:
            K, _ = self.prior.rows_kernel.cross(rows.X)
            A = times_transposed_lower(K, self.prior.whitener)
        n, naturals = len(rows.labels), _naturals(A, sites, rows.weights)
        return None, Sums(
            n_rows=n,
            n_visited=n,
            weight=float(rows.weights.sum()),
            precision=naturals.precision,
            shift=naturals.shift,
            objective=0.0,
            log_predictive=0.0,
            site_change=0.0,
        )


def _kernel_rows(rows: Rows, prior: Prior | RowPrior, *, once: bool = False) -> KernelRows:
    """The kernel rows under a prior: those that the last pass has left, or else computed.

    once: whether the tapes will be used for a gradient. Then the rows are not left for another pass:
    a kernel may reuse their memory.
    """
    cache, found = rows.cache, None
    if cache is not None and cache.prior is prior:
        found = cache.kernel_rows
    if found is None:
        K, cross_tape = prior.rows_kernel.cross(rows.X)
        diagonal, diagonal_tape = prior.rows_kernel.diagonal(rows.X)
        found = KernelRows(*whitened(K, diagonal, prior), cross_tape, diagonal_tape)
    if cache is not None:
        cache.prior, cache.kernel_rows = (None, None) if once else (prior, found)
    return found


def _packed_posterior(posterior: Posterior, dtype: Dtype) -> Posterior:
    """The moments of q with one triangle of each matrix, its covariance in `dtype`."""
    if posterior.factors is not None:
        return replace(posterior, factors=stacked([triangle(R) for R in posterior.factors]))
    covariance = posterior.covariance.astype(dtype, copy=False)
    halves = stacked([triangle(S) for S in covariance])
    return replace(
        posterior, covariance=halves, naturals=NaturalParameters.zeros(len(posterior.mean), 0)
    )


def _unpacked_posterior(packed: Posterior) -> Posterior:
    if packed.factors is not None:
        return replace(packed, factors=stacked([lower(R) for R in packed.factors]))
    return replace(packed, covariance=stacked([symmetric(S) for S in packed.covariance]))


def _unpacked_sweep(prior: PackedPrior, packed: Posterior, rule: Rule, options: SweepOptions) -> Sweep:
    return Sweep(prior.unpacked(), _unpacked_posterior(packed), rule, options)


class _PackedViews(NamedTuple):
    """The views of some leaves as they are sent."""

    views: dict[int, PackedPrior]
    m: int
    sizes: tuple[int, ...]
    dtype: Dtype

    def unpacked(self) -> PriorViews:
        """The views."""
        views = {leaf: view.unpacked() for leaf, view in self.views.items()}
        return PriorViews(views, self.m, self.sizes, self.dtype)


def _packed_views(prior: LocalPrior, leaves: Iterable[int] | None) -> _PackedViews:
    """The views of some leaves, all by default."""
    whole = triangle(prior.whitener)  # pickled once
    views = {
        leaf: PackedPrior(
            prior.view(leaf).rows_kernel, (whole, triangle(prior.leaf(leaf).whitener)), None
        )
        for leaf in (range(len(prior.leaves)) if leaves is None else leaves)
    }
    return _PackedViews(views, prior.m, prior.sizes, prior.dtype)


def _unpacked_local_sweep(
    prior: _PackedViews, marginals: dict[int, Posterior], rule: Rule, options: SweepOptions
) -> Sweep:
    views = {leaf: _unpacked_posterior(packed) for leaf, packed in marginals.items()}
    return Sweep(prior.unpacked(), PosteriorViews.of(views), rule, options)


def _unpacked_site_sum(prior: PackedPrior | _PackedViews) -> SiteSum:
    return SiteSum(prior.unpacked())


def _whitened_directions(sites: Sites, prior: Prior | RowPrior) -> Array | None:
    """The stored directions of the rows in the current whitened coordinates [t, m]: υᵀf̄ = (Lᵀυ)ᵀu."""
    if sites.directions is None:
        return None
    return np.asarray(sites.directions @ prior.L.astype(prior.dtype), dtype=prior.dtype)


def _equivalent_sites(
    sites: Sites, directions: Array, at: Marginals, posterior: Posterior, options: SweepOptions
) -> Sites:
    """Sites along the current directions with the same cavities as the stored factors.

    Taking exp(μ̃ a − ½ν̃ a²), a = A₀ᵀu along the stored direction A₀, out of q changes the moments of
    f = Aᵀu to v\\ = v + ν̃c²/(1 − ν̃v₀), e\\ = e + c(ν̃e₀ − μ̃)/(1 − ν̃v₀) with c = cov(f, a).
    """
    precisions, shifts = [], []
    for c, (nu, mu) in enumerate(zip(sites.precision, sites.shift, strict=True)):
        product = directions @ posterior.covariance[c].astype(directions.dtype)
        own_variance = row_dots(directions, product)
        own_mean = (directions @ posterior.mean[c].astype(directions.dtype)).astype(np.float64)
        covariance = row_dots(at.A, product)
        nu, mu = limit_leverage(nu, mu, own_variance, options.max_leverage)
        kept = 1.0 - nu * own_variance
        variance = np.maximum(at.variance[c], 1e-12)
        cavity_variance = variance + nu * covariance**2 / kept
        cavity_mean = at.mean[c] + covariance * (nu * own_mean - mu) / kept
        precisions.append(1.0 / variance - 1.0 / cavity_variance)
        shifts.append(at.mean[c] / variance - cavity_mean / cavity_variance)
    return Sites(np.stack(precisions), np.stack(shifts))


def _naturals(A: Array, sites: Sites, weight: Array) -> NaturalParameters:
    precisions, shifts = [], []
    for nu, mu in zip(sites.precision, sites.shift, strict=True):
        scaled = np.sqrt(weight * nu).astype(A.dtype)[:, None] * A
        precisions.append((scaled.T @ scaled).astype(np.float64, copy=False))  # NumPy calls syrk here
        shifts.append(((weight * mu).astype(A.dtype, copy=False) @ A).astype(np.float64, copy=False))
    return NaturalParameters(stacked(precisions), stacked(shifts))


def _site_sums(at: Marginals, old: Sites, new: Sites, terms: RowTerms, weight: Array) -> Sums:
    naturals = _naturals(at.A, new, weight)
    # ν̃v and μ̃√v are the site's parameters in units of the marginal: comparable between rows.
    change = ((new.precision - old.precision) * at.variance) ** 2
    change += (new.shift - old.shift) ** 2 * at.variance
    return Sums(
        n_rows=len(weight),
        n_visited=len(weight),
        weight=float(weight.sum()),
        precision=naturals.precision,
        shift=naturals.shift,
        objective=float(weight @ terms.objective),
        log_predictive=float(weight @ terms.log_predictive),
        site_change=float(weight @ change.sum(axis=0)),
    )


def _row_gradient(at: Marginals, terms: RowTerms, weight: Array, posterior: Posterior) -> Array:
    """Σ_c (w α_c μ_cᵀ + w h_c Q_c) [t, m]; reuses the memory of Q."""
    dtype = at.A.dtype
    means = posterior.mean_in(dtype)
    for Q, h, alpha, mean in zip(at.Q, terms.h, terms.alpha, means, strict=True):
        Q *= (weight * h).astype(dtype)[:, None]
        add_outer(Q, (weight * alpha).astype(dtype), mean)
    return reduce(np.add, at.Q)


def _moment_mismatch(at: Marginals, terms: RowTerms, weight: Array, posterior: Posterior) -> Array:
    """D_w = Σ rows (tilted − current second moment of u), as weighted Grams of A [m, m]."""
    total = np.zeros((at.A.shape[1],) * 2)
    A = at.A.astype(np.float64)
    for c, (mean, covariance) in enumerate(zip(posterior.mean, posterior.covariance, strict=True)):
        gram = A.T @ (A * (weight * terms.mismatch_square[c])[:, None])
        total += covariance @ gram @ covariance
        drift = covariance @ (A.T @ (weight * terms.mismatch_mean[c]))
        total += np.outer(drift, mean) + np.outer(mean, drift)
    return total
