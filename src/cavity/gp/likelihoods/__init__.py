"""Likelihoods of a class given its latent values, and their Gaussian integrals."""

from cavity.gp.likelihoods.base import Expected, Likelihood, Tilted
from cavity.gp.likelihoods.binary import BinaryLikelihood, Logit, Probit
from cavity.gp.likelihoods.noisy_argmax import NoisyArgmax

__all__ = ["BinaryLikelihood", "Expected", "Likelihood", "Logit", "NoisyArgmax", "Probit", "Tilted"]
