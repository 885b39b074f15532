"""GPflow's SVGP: whitened q, probit, ARD squared exponential; everything is learned.

Modes: `lbfgs` (full batch), `adam` and `natgrad` (minibatches). Minibatches are gathered from
tensors inside the compiled step, which is far faster than a tf.data pipeline over single rows.

Rates are constant or fall along a cosine (`schedule`), natural gradients' gamma too.

The minibatch steps are traced before the clock starts (`compile_seconds`); SciPy's L-BFGS traces
inside the call that a user makes, so there it is part of the fit.
"""

import time

import gpflow
import numpy as np
import tensorflow as tf
from protocol import Job
from scipy.special import entr, ndtr

LEARNING_RATE = 0.01
RAMP = 100  # natural gradient steps until gamma is reached
FIRST_GAMMA = 1e-4
CHUNK = 10_000  # rows predicted at once


def build(job, dtype):
    """The model at the common start."""
    Z = job.array("Z", dtype)
    kernel = gpflow.kernels.SquaredExponential(
        variance=job.amplitude, lengthscales=np.full(Z.shape[1], job.lengthscale, dtype)
    )
    y = job.array("y")
    classes = job.settings.get("classes", 2)
    if classes == 2:
        likelihood, latents = gpflow.likelihoods.Bernoulli(), 1
    elif job.settings.get("likelihood") == "softmax":
        likelihood, latents = gpflow.likelihoods.Softmax(classes), classes
    else:
        likelihood, latents = gpflow.likelihoods.MultiClass(classes), classes  # robust maximum
    return gpflow.models.SVGP(
        kernel,
        likelihood,
        inducing_variable=Z,
        num_data=len(y),
        num_latent_gps=latents,
        whiten=True,
    )


def predictor(model, job, dtype):
    """A function giving the test rows' log p(−1), log p(+1): [n, 2], by GPflow's own predictive."""
    X = job.array("X_test", dtype)

    @tf.function(reduce_retracing=True)
    def mean(rows):
        return model.predict_y(rows)[0]

    def log_probabilities():
        parts = [mean(tf.constant(X[i : i + CHUNK])) for i in range(0, len(X), CHUNK)]
        p = np.concatenate([part.numpy() for part in parts]).astype(np.float64)
        if p.shape[1] > 1:
            return np.log(np.maximum(p, 1e-12))
        return np.log(np.column_stack([1.0 - p[:, 0], p[:, 0]]))

    return log_probabilities


def uncertainty(model, X):
    """Two classes: mutual information of label and latent value; share of the prior variance left."""
    moments = [model.predict_f(tf.constant(X[i : i + CHUNK])) for i in range(0, len(X), CHUNK)]
    mean, variance = (np.concatenate([np.ravel(part[k]) for part in moments]) for k in range(2))
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    f = mean[:, None] + np.sqrt(np.maximum(variance, 0.0))[:, None] * nodes
    p, weights = ndtr(f.astype(np.float64)), weights / weights.sum()
    return {
        "epistemic": entropy(p @ weights) - entropy(p) @ weights,
        "ood": variance / float(model.kernel.variance.numpy()),
    }


def entropy(p):
    """Of a coin, in nats."""
    return entr(p) + entr(1.0 - p)


def minibatch_loss(model, X, Y, size):
    """A loss of a fresh random minibatch each call; full batch if there are not that many rows."""
    n = len(X)
    X, Y = tf.constant(X), tf.constant(Y)
    if size is None or size >= n:
        return lambda: model.training_loss((X, Y))

    def loss():
        rows = tf.random.uniform([size], maxval=n, dtype=tf.int32)
        return model.training_loss((tf.gather(X, rows), tf.gather(Y, rows)))

    return loss


def adam_step(model, loss, job):
    """One Adam step on everything."""
    first = job.settings.get("learning_rate", LEARNING_RATE)
    optimiser = tf.optimizers.Adam(first)
    optimiser.build(model.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss()
        variables = model.trainable_variables
        optimiser.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    step.get_concrete_function()  # traces without taking the step

    def scheduled(number):
        optimiser.learning_rate.assign(first * job.rate(number))
        step()

    return scheduled if job.settings.get("schedule", "constant") != "constant" else lambda number: step()


def natgrad_step(model, loss, gamma, job):
    """A natural gradient step on q, then an Adam step on kernel and inducing points.

    gamma rises log-linearly over the first steps, as its authors advise: a full step from the
    prior on a small minibatch leaves q without a positive definite covariance. A natural step
    that still does so is refused by GPflow before anything is assigned; it is left out and
    counted in `refused`; without that, training would end with an exception.
    """
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    size = tf.Variable(FIRST_GAMMA, dtype=gpflow.default_float(), trainable=False)
    natural = gpflow.optimizers.NaturalGradient(gamma=size)
    adam = adam_step(model, loss, job)

    @tf.function
    def natural_step():
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])

    natural_step.get_concrete_function()
    refused = []

    def step(number):
        if number <= RAMP:
            size.assign(FIRST_GAMMA * (gamma / FIRST_GAMMA) ** (number / RAMP))
        elif job.settings.get("schedule", "constant") != "constant":
            size.assign(gamma * job.rate(number))
        try:
            natural_step()
        except tf.errors.InvalidArgumentError:
            refused.append(number)
        adam(number)

    return step, refused


def run_lbfgs(job, model, X, Y, log_probabilities):
    """SciPy's L-BFGS on the whole bound."""
    data = (tf.constant(X), tf.constant(Y))
    done = []
    job.begin()

    def callback(step, variables, values):
        done.append(step)
        job.over(len(done))

    result = gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(data, compile=True),
        model.trainable_variables,
        options={"maxiter": job.settings["steps"]},
        step_callback=callback,
    )
    job.finish(log_probabilities, len(done), evaluations=int(result.nfev))


def run_steps(job, model, X, Y, log_probabilities):
    """Minibatch steps until the job is over."""
    begin = time.perf_counter()
    loss = minibatch_loss(model, X, Y, job.settings.get("minibatch"))
    if job.mode == "adam":
        step, refused = adam_step(model, loss, job), []
    else:
        step, refused = natgrad_step(model, loss, job.settings["gamma"], job)
    compile_seconds = time.perf_counter() - begin
    number = 0
    job.begin()
    while not number or not job.over(number):
        number += 1
        step(number)
        job.evaluate_if_due(number, log_probabilities)
    job.finish(
        log_probabilities,
        number,
        scores=lambda: uncertainty(model, job.array("X_test", X.dtype)),
        compile_seconds=compile_seconds,
        refused_steps=len(refused),
    )


def main():
    job = Job()
    tf.random.set_seed(job.seed)
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    dtype = np.dtype(job.settings.get("dtype", "float64"))
    gpflow.config.set_default_float(dtype)
    if dtype == np.float32:
        gpflow.config.set_default_jitter(1e-4)  # the default 1e-6 drowns in float32 rounding
    X = job.array("X", dtype)
    y = job.array("y")
    softmax = job.settings.get("likelihood") == "softmax"
    Y = (y if job.settings.get("classes", 2) > 2 else y > 0).astype("int64" if softmax else dtype)[
        :, None
    ]
    model = build(job, dtype)
    log_probabilities = predictor(model, job, dtype)
    log_probabilities()  # trace the prediction outside the clock
    run = run_lbfgs if job.mode == "lbfgs" else run_steps
    run(job, model, X, Y, log_probabilities)


if __name__ == "__main__":
    main()
