"""The rate of our minibatch steps alone: what the peers' compiled step is compared with."""

import numpy as np
from protocol import Job

from cavity.data import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, one_blas_thread
from cavity.gp.inducing import default_kernel
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import SweepOptions
from cavity.inference.trainer import Batch, Trainer, make_problem
from cavity.inference.updates import GaussianSpace, GradientUpdate, NaturalUpdate

RULES = {"sep": ExpectationPropagation, "svi": Variational, "svi-gradient": Variational}


def main():
    job = Job()
    X, y, X_test, Z = (job.array(name) for name in ("X", "y", "X_test", "Z"))
    threads, d = Threads(job.threads), X.shape[1]
    source = ArraySource(X, (y > 0).astype(np.int8))
    rule = RULES[job.mode]()
    engine = LocalEngine(source, Scaling.identity(d), rule.n_latents, threads)
    space = ParameterSpace(default_kernel(d, job.lengthscale), Z.astype(np.float64))
    gradient = job.mode == "svi-gradient"
    update = GradientUpdate(GaussianSpace(1, len(Z))) if gradient else NaturalUpdate()
    trainer = Trainer(
        make_problem(engine, rule, space, None), Adam(0.01), SweepOptions(max_leverage=0.5), update
    )
    state, step, rng = trainer.init(), 0, np.random.default_rng(job.seed)
    job.begin()
    with one_blas_thread, np.errstate(all="ignore"):
        while not job.over(step):
            for rows in source.batches(job.settings["minibatch"], rng):
                step += 1
                state, _ = trainer.step(state, Batch(rows, gain=max(1.0 / step, 0.01)))
                if job.over(step):
                    break
        prior = trainer.problem.prior(state.x)
        q = update.posterior(state.q, prior)
        model = Model.from_prior(prior, q, engine.scaling, rule.likelihood)
        predict = rule.likelihood.predict_log_proba
        job.finish(lambda: predict(*model.latent_moments(X_test, threads.map)), step)


if __name__ == "__main__":
    main()
