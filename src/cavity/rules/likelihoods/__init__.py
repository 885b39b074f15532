"""Likelihoods of a binary label given its latent value, and their Gaussian integrals."""

from cavity.rules.likelihoods.logit import Logit
from cavity.rules.likelihoods.probit import Probit
from cavity.rules.likelihoods.protocol import Expected, Likelihood, Tilted

__all__ = ["Expected", "Likelihood", "Logit", "Probit", "Tilted"]
