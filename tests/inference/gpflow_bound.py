"""The variational bound of GPflow at given parameters, and the figures it gave.

Run with a Python that has GPflow, such as that of the benchmarks' peer; it prints `FIGURES`:

    benchmarks/.envs/gpflow/bin/python tests/inference/gpflow_bound.py

The model is stated in numbers that need nothing but NumPy. Two of GPflow's own settings are changed, so
that both libraries speak of the same bound: its probit keeps the probability inside [0.001, 0.999], and
its quadrature has 20 nodes; here the probit is Φ itself, the logit is taken in logarithms, and there
are 80 nodes, for the logit 200.
"""

import numpy as np

JITTER = 1e-6
"""GPflow's default: what it adds to the diagonal of K_mm."""
FIGURES = {
    "one lengthscale": -38.77783174912168,
    "ard": -45.495598320069554,
    "far from the prior": -159.29797330793548,
    "logit": -33.85495072449762,
    "logit far from the prior": -56.81425856250748,
}
"""Of GPflow 2.11.2, TensorFlow 2.19.1, float64."""


def cases():
    """Name: likelihood, variance, lengthscales, X [n, d], class codes [n], Z [m, d], whitened q.

    q is a mean [m] and a factor of the covariance [m, m].
    """
    rng = np.random.default_rng(7)
    for name, likelihood, variance, lengthscales, spread in (
        ("one lengthscale", "probit", 1.0, [0.8, 0.8], 0.1),
        ("ard", "probit", 2.5, [0.7, 1.9], 0.3),
        ("far from the prior", "probit", 6.0, [1.4, 0.5], 1.0),
        ("logit", "logit", 2.5, [0.7, 1.9], 0.3),
        ("logit far from the prior", "logit", 6.0, [1.4, 0.5], 1.0),
    ):
        X, Z = rng.normal(size=(40, 2)), rng.normal(size=(6, 2))
        labels = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
        mean = spread * rng.normal(size=6)
        factor = np.tril(0.5 * spread * rng.normal(size=(6, 6)), -1) + np.diag(rng.uniform(0.3, 1.0, 6))
        yield name, (likelihood, variance, lengthscales, X, labels, Z, mean, factor)


def gpflow_bound(likelihood, variance, lengthscales, X, labels, Z, mean, factor):
    """`SVGP.elbo` with the whitened q(u) = N(mean, factor factorᵀ)."""
    import gpflow
    import tensorflow as tf
    import tensorflow_probability as tfp
    from gpflow.quadrature import NDiagGHQuadrature

    def log_probit(z):
        return tfp.distributions.Normal(0 * z, 1 + 0 * z).log_cdf(z)

    log_probability, n_nodes = {"probit": (log_probit, 80), "logit": (tf.math.log_sigmoid, 200)}[
        likelihood
    ]

    class OfMargin(gpflow.likelihoods.Bernoulli):
        def _scalar_log_prob(self, X, F, Y):
            return log_probability((2 * Y - 1) * F)

        def _variational_expectations(self, X, Fmu, Fvar, Y):
            log_prob = self.quadrature(lambda F: self._scalar_log_prob(X, F, Y), Fmu, Fvar)
            return tf.reduce_sum(log_prob, axis=-1)

    gpflow.config.set_default_jitter(JITTER)
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(variance, lengthscales),
        OfMargin(quadrature=NDiagGHQuadrature(1, n_nodes)),
        Z,
        q_mu=mean[:, None],
        q_sqrt=factor[None],
        whiten=True,
    )
    return float(model.elbo((X, labels[:, None].astype(float))))


if __name__ == "__main__":
    print({name: gpflow_bound(*case) for name, case in cases()})
