"""Likelihoods of a class given its latent values, and their Gaussian integrals."""

from cavity.gp.likelihoods.base import BinaryLikelihood, Expected, Likelihood, Tilted
from cavity.gp.likelihoods.logit import Logit
from cavity.gp.likelihoods.noisy_argmax import NoisyArgmax
from cavity.gp.likelihoods.probit import Probit

__all__ = ["BinaryLikelihood", "Expected", "Likelihood", "Logit", "NoisyArgmax", "Probit", "Tilted"]
