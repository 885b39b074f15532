"""Likelihoods of a binary label given its latent value, and their Gaussian integrals."""

from cavity.gp.likelihoods.base import Expected, Likelihood, Tilted
from cavity.gp.likelihoods.logit import Logit
from cavity.gp.likelihoods.probit import Probit

__all__ = ["Expected", "Likelihood", "Logit", "Probit", "Tilted"]
