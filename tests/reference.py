"""Slow, obviously correct truth in plain NumPy. Nothing here is imported from the package.

Labels y are −1 or +1 here. `jitter` is relative to the mean of K_mm's diagonal: pass the one that the
package used, and both speak of the same model.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import multivariate_normal, norm


class EP(NamedTuple):
    """Where expectation propagation on n latent values ended."""

    log_evidence: float
    precision: np.ndarray
    """τ̃ [n]: precision of the site on fᵢ."""
    shift: np.ndarray
    """[n]: precision times mean of the site."""
    log_predictive: np.ndarray
    """[n]: log normaliser of each tilted distribution."""


def expectation_propagation(K, y, tol=1e-13, max_sweeps=500, prior_mean=0.0):
    """Sequential EP for f ~ N(m, K), p(y | f) = Φ(yf): Rasmussen & Williams, algorithm 3.5.

    prior_mean: m, a number or [n]. Sites are those of f, whatever its mean.
    """
    n = len(y)
    prior_mean = np.broadcast_to(prior_mean, n)
    tau, shift = np.zeros(n), np.zeros(n)
    for _ in range(max_sweeps):
        before = np.concatenate([tau, shift])
        for i in range(n):
            cavity_mean, cavity_variance = cavities(K, tau, shift, prior_mean)
            e, v = cavity_mean[i], cavity_variance[i]
            z = y[i] * e / np.sqrt(1 + v)
            ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
            mean = e + y[i] * v * ratio / np.sqrt(1 + v)  # eq. 3.58
            variance = v - v**2 * ratio / (1 + v) * (z + ratio)
            tau[i] = 1 / variance - 1 / v
            shift[i] = mean / variance - e / v
        if np.abs(np.concatenate([tau, shift]) - before).max() < tol:
            break
    else:
        raise AssertionError("the oracle did not converge")
    e, v = cavities(K, tau, shift, prior_mean)
    log_z = norm.logcdf(y * e / np.sqrt(1 + v))
    means = shift / tau
    # log Z_EP = log N(μ̃ | m, K + Σ̃) + Σ log Z̃ᵢ, eqs. 3.51, 3.59 and 3.65
    log_evidence = multivariate_normal(prior_mean, K + np.diag(1 / tau)).logpdf(means)
    log_evidence += np.sum(log_z - norm.logpdf(means, e, np.sqrt(v + 1 / tau)))
    return EP(float(log_evidence), tau, shift, log_z)


def cavities(K, tau, shift, prior_mean):
    """Mean and variance [n] of each fᵢ with its own site taken out of the posterior."""
    covariance = np.linalg.solve(np.eye(len(K)) + K * tau, K)
    mean = prior_mean + covariance @ (shift - tau * prior_mean)  # K⁻¹ = covariance⁻¹ − diag(τ̃)
    variance = np.diag(covariance)
    cavity_variance = 1 / (1 / variance - tau)
    return cavity_variance * (mean / variance - shift), cavity_variance


def predict(ep, K, K_star, k_star_star, prior_mean=0.0, prior_mean_star=0.0):
    """Mean, variance [t] and log Φ [t] at test points, from covariances K_star [t, n] and variances.

    prior_mean [n] and prior_mean_star [t] are those of f.
    """
    noisy = K + np.diag(1 / ep.precision)
    residual = ep.shift / ep.precision - prior_mean
    mean = prior_mean_star + K_star @ np.linalg.solve(noisy, residual)
    variance = k_star_star - np.sum(K_star * np.linalg.solve(noisy, K_star.T).T, axis=1)
    return mean, variance, norm.logcdf(mean / np.sqrt(1 + variance))


def inducing_covariance(kernel, Z, jitter):
    """K_mm, noise free, plus the jitter."""
    K = kernel(Z, Z)
    return K + jitter * np.mean(np.diag(K)) * np.eye(len(Z))


def fitc_covariance(kernel, X, Z, jitter):
    """Q_nn + diag(K_nn − Q_nn), and the residuals s = k(x, x) − q(x, x)."""
    K_nm = kernel(X, Z)
    Q = K_nm @ np.linalg.solve(inducing_covariance(kernel, Z, jitter), K_nm.T)
    residual = kernel.diag(X) - np.diag(Q)
    return Q + np.diag(residual), residual


def fitc_cross_covariance(kernel, X_star, X, Z, jitter):
    """Q_*n: test and training values meet through the inducing values only."""
    return kernel(X_star, Z) @ np.linalg.solve(inducing_covariance(kernel, Z, jitter), kernel(X, Z).T)


def exact_log_evidence(K, y, error=1e-6):
    """log p(y) as the probability that y∘(f + ε) is positive: an orthant of N(0, D(K + I)D).

    error: about how far it may be off; 1e-8 takes a hundred times as long.
    """
    D = np.diag(y)
    covariance = D @ (K + np.eye(len(y))) @ D
    zeros = np.zeros(len(y))
    return float(multivariate_normal.logcdf(zeros, zeros, covariance, abseps=error, releps=error))


def log_normaliser(precision, shift):
    """g of N(V h, V) with V = precision⁻¹ and shift h, up to the constant of the dimension."""
    sign, log_determinant = np.linalg.slogdet(precision)
    assert sign > 0
    return 0.5 * shift @ np.linalg.solve(precision, shift) - 0.5 * log_determinant


def projections(kernel, X, Z, jitter):
    """υᵢ = K_mm⁻¹ kᵢ as rows [n, m], and the residuals s [n]."""
    K_nm = kernel(X, Z)
    U = np.linalg.solve(inducing_covariance(kernel, Z, jitter), K_nm.T).T
    return U, kernel.diag(X) - np.sum(U * K_nm, axis=1)


def log_evidence_of_factors(kernel, X, y, Z, jitter, directions, precision, shift):
    """The paper's log Z_q = g(θ) − g(θ_prior) + Σ [log Zᵢ + g(θ\\i) − g(θ)], converged or not.

    The approximate factors exp(μ̃ᵢ υᵢᵀf̄ − ½ ν̃ᵢ (υᵢᵀf̄)²) are given by their directions υ [n, m] and are
    the same whatever the kernel; the true factors Φ(yᵢ υᵢᵀf̄/√(1 + sᵢ)) follow the kernel and Z.
    """
    prior = np.linalg.inv(inducing_covariance(kernel, Z, jitter))
    U, residual = projections(kernel, X, Z, jitter)
    P = prior + directions.T @ (precision[:, None] * directions)
    h = directions.T @ shift
    value = log_normaliser(P, h) - log_normaliser(prior, np.zeros(len(Z)))
    for i, y_i in enumerate(y):
        P_i = P - precision[i] * np.outer(directions[i], directions[i])
        h_i = h - shift[i] * directions[i]
        mean, variance = U[i] @ np.linalg.solve(P_i, h_i), U[i] @ np.linalg.solve(P_i, U[i])
        log_z = norm.logcdf(y_i * mean / np.sqrt(1 + residual[i] + variance))
        value += log_z + log_normaliser(P_i, h_i) - log_normaliser(P, h)
    return value


def central_differences(function, at, step=1e-5):
    """Derivative of a scalar function by every entry of its argument."""
    at = np.asarray(at, dtype=float)
    slopes = np.empty_like(at)
    for index in np.ndindex(at.shape):
        move = np.zeros_like(at)
        move[index] = step
        slopes[index] = (function(at + move) - function(at - move)) / (2 * step)
    return slopes
