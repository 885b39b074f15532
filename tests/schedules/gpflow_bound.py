"""The variational bound of GPflow at given parameters, and the figures it gave.

Run with a Python that has GPflow; it prints `FIGURES`:

    python tests/schedules/gpflow_bound.py

The model is stated in numbers that need nothing but NumPy. Two of GPflow's own settings are changed, so
that both libraries speak of the same bound: its probit keeps the probability inside [0.001, 0.999], and
its quadrature has 20 nodes; here the probit is Φ itself and there are 80 nodes.
"""

import numpy as np

JITTER = 1e-6
"""GPflow's default: what it adds to the diagonal of K_mm."""
FIGURES = {
    "one lengthscale": -38.77783174912168,
    "ard": -45.495598320069554,
    "far from the prior": -159.29797330793548,
}
"""Of GPflow 2.11.2, TensorFlow 2.19.1, float64."""


def cases():
    """Name: variance, lengthscales, X [n, d], class codes [n], Z [m, d], whitened mean [m], factor."""
    rng = np.random.default_rng(7)
    for name, variance, lengthscales, spread in (
        ("one lengthscale", 1.0, [0.8, 0.8], 0.1),
        ("ard", 2.5, [0.7, 1.9], 0.3),
        ("far from the prior", 6.0, [1.4, 0.5], 1.0),
    ):
        X, Z = rng.normal(size=(40, 2)), rng.normal(size=(6, 2))
        labels = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
        mean = spread * rng.normal(size=6)
        factor = np.tril(0.5 * spread * rng.normal(size=(6, 6)), -1) + np.diag(rng.uniform(0.3, 1.0, 6))
        yield name, (variance, lengthscales, X, labels, Z, mean, factor)


def gpflow_bound(variance, lengthscales, X, labels, Z, mean, factor):
    """`SVGP.elbo` with the whitened q(u) = N(mean, factor factorᵀ)."""
    import gpflow
    import tensorflow as tf
    import tensorflow_probability as tfp
    from gpflow.quadrature import NDiagGHQuadrature

    class Probit(gpflow.likelihoods.Bernoulli):
        def _scalar_log_prob(self, X, F, Y):
            return tfp.distributions.Normal(0 * F, 1 + 0 * F).log_cdf((2 * Y - 1) * F)

        def _variational_expectations(self, X, Fmu, Fvar, Y):
            log_prob = self.quadrature(lambda F: self._scalar_log_prob(X, F, Y), Fmu, Fvar)
            return tf.reduce_sum(log_prob, axis=-1)

    gpflow.config.set_default_jitter(JITTER)
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(variance, lengthscales),
        Probit(quadrature=NDiagGHQuadrature(1, 80)),
        Z,
        q_mu=mean[:, None],
        q_sqrt=factor[None],
        whiten=True,
    )
    return float(model.elbo((X, labels[:, None].astype(float))))


if __name__ == "__main__":
    print({name: gpflow_bound(*case) for name, case in cases()})
