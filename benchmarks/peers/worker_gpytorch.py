"""GPyTorch's SVGP: whitened strategy, Bernoulli (probit) likelihood, ARD squared exponential.

Modes: `adam` (everything) and `ngd` (its natural gradient optimiser for q, Adam for the rest).
Rates are constant or fall along a cosine (`schedule`). float32, the library's default, unless the job
says otherwise.
"""

import gpytorch
import numpy as np
import torch
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    NaturalVariationalDistribution,
    VariationalStrategy,
)
from protocol import Job

LEARNING_RATE = 0.01
CHUNK = 10_000  # rows predicted at once


class Model(gpytorch.models.ApproximateGP):
    """A zero-mean sparse GP with learned inducing points, as in the library's own tutorials."""

    def __init__(self, Z, distribution, lengthscale, amplitude):
        strategy = VariationalStrategy(self, Z, distribution(len(Z)), learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf)
        rbf.lengthscale = lengthscale
        self.covar_module.outputscale = amplitude

    def forward(self, X):
        """The prior at X: [n, d]."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def predictor(model, X):
    """A function giving the test rows' log p(−1), log p(+1): [n, 2].

    The likelihood's closed form Φ(mean / √(1 + variance)), taken in the log domain: its own
    probabilities saturate at 1 in float32.
    """

    def log_probabilities():
        model.eval()
        parts = []
        with torch.no_grad():
            for rows in X.split(CHUNK):
                f = model(rows)
                z = (f.mean / (1.0 + f.variance).sqrt()).double()
                parts.append(torch.stack([torch.special.log_ndtr(-z), torch.special.log_ndtr(z)]))
        model.train()
        return torch.cat(parts, dim=1).T.numpy()

    return log_probabilities


def optimisers(model, job, n):
    """Adam on everything, or NGD on q and Adam on the rest."""
    rate = job.settings.get("learning_rate", LEARNING_RATE)
    if job.mode == "adam":
        return [torch.optim.Adam(model.parameters(), lr=rate)]
    return [
        gpytorch.optim.NGD(model.variational_parameters(), num_data=n, lr=job.settings["gamma"]),
        torch.optim.Adam(model.hyperparameters(), lr=rate),
    ]


def main():
    job = Job()
    torch.manual_seed(job.seed)
    torch.set_num_threads(job.threads)
    dtype = getattr(torch, job.settings.get("dtype", "float32"))
    X, X_test, Z = (torch.as_tensor(job.array(k), dtype=dtype) for k in ("X", "X_test", "Z"))
    y = torch.as_tensor(job.array("y") > 0, dtype=dtype)
    natural = job.mode == "ngd"
    distribution = NaturalVariationalDistribution if natural else CholeskyVariationalDistribution
    model = Model(Z, distribution, job.lengthscale, job.amplitude).to(dtype).train()
    bound = gpytorch.mlls.VariationalELBO(
        gpytorch.likelihoods.BernoulliLikelihood(), model, num_data=len(y)
    )
    log_probabilities = predictor(model, X_test)
    size = job.settings.get("minibatch") or len(y)
    steps = optimisers(model, job, len(y))
    rates = [[group["lr"] for group in optimiser.param_groups] for optimiser in steps]
    number = 0
    job.begin()
    while not number or not job.over(number):
        number += 1
        rows = torch.randint(len(y), (size,)) if size < len(y) else slice(None)
        factor = job.rate(number)
        for optimiser, first in zip(steps, rates, strict=True):
            for group, rate in zip(optimiser.param_groups, first, strict=True):
                group["lr"] = rate * factor
            optimiser.zero_grad()
        loss = -bound(model(X[rows]), y[rows])
        loss.backward()
        for optimiser in steps:
            optimiser.step()
        job.evaluate_if_due(number, log_probabilities)
    job.finish(log_probabilities, number)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
