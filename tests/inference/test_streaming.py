"""A stream: q stands for all rows so far, however they were cut into chunks."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF
from training_runs import make_trainer

from cavity.data.arrays import ArraySource
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.gp.prior import Prior
from cavity.inference import streaming
from cavity.inference.converge import converge
from cavity.inference.history import Progress
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.streaming import Stream, StreamSettings, absorb, following
from cavity.inference.trainer import Trainer
from support import KERNELS, make_engine, make_prior, points, table

X, LABELS = table(200)
RULES = {"ep": ExpectationPropagation(), "vi": Variational()}


def source(rows, weight=None):
    return ArraySource(X[rows], LABELS[rows], None if weight is None else weight[rows])


def with_points_held(trainer):
    """The trainer with parameters of the kernel alone, as a stream has it."""
    space = replace(trainer.problem.space, learn_inducing=False)
    return replace(trainer, problem=replace(trainer.problem, space=space))


def listen(chunks, settings, *, rule=None, learn=False, weight=None):
    """Absorb slices of the table one by one; as in a real stream, each has an engine of its own."""
    stream = progress = None
    for rows in chunks:
        trainer = make_trainer(
            X[rows], LABELS[rows], rule=rule, learn=learn, kernel=KERNELS["noisy"], Z=points(6)
        )
        trainer = with_points_held(trainer)
        stream = Stream(trainer.init(), 0.0) if stream is None else stream
        progress = Progress()
        _, stream = absorb(trainer, stream, source(rows, weight), progress, settings)
    return stream


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("memory", [np.inf, 60.0])
def test_how_the_rows_are_cut_into_chunks_does_not_matter(learn, memory):
    settings = StreamSettings(batch_size=20, memory=memory)
    whole = listen([slice(0, 200)], settings, learn=learn)
    parts = listen([slice(i, i + 40) for i in range(0, 200, 40)], settings, learn=learn)
    assert parts.seen == whole.seen == 200.0
    assert_allclose(parts.state.x, whole.state.x, rtol=1e-12)
    assert_allclose(parts.state.q.precision, whole.state.q.precision, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_at_a_fixed_kernel_a_stream_comes_close_to_the_fixed_point_of_all_rows(rule):
    prior = make_prior(KERNELS["noisy"], points(6))
    point = converge(make_engine(X, LABELS, rule=rule), prior, rule)
    stream = listen([slice(0, 200)], StreamSettings(20), rule=rule)
    posterior = Posterior.from_naturals(stream.state.q)
    distance = np.linalg.norm(posterior.mean - point.posterior.mean)
    assert distance < 0.15 * np.linalg.norm(point.posterior.mean)
    trace, expected = np.trace(posterior.covariance[0]), np.trace(point.posterior.covariance[0])
    assert_allclose(trace, expected, rtol=0.25)


def test_while_nothing_is_forgotten_q_is_the_sum_of_what_each_row_said():
    """The naturals of a stream only grow: earlier rows keep their full say."""
    settings = StreamSettings(batch_size=10)
    half, whole = (listen([slice(0, n)], settings) for n in (100, 200))
    eigenvalues = np.linalg.eigvalsh(whole.state.q.precision[0] - half.state.q.precision[0])
    assert eigenvalues.min() > -1e-9


def test_with_a_memory_q_stands_for_so_many_rows():
    settings = StreamSettings(batch_size=10, memory=50.0)
    short, long = (listen([slice(0, n)], settings) for n in (50, 200))
    traces = [np.trace(stream.state.q.precision[0]) for stream in (short, long)]
    assert 0.5 < traces[1] / traces[0] < 2.0
    assert long.seen == 200.0


def test_rows_of_no_weight_are_passed_over():
    weight = np.ones(200)
    weight[100:] = 0.0
    settings = StreamSettings(batch_size=20)
    stream = listen([slice(0, 200)], settings, weight=weight)
    half = listen([slice(0, 100)], settings)
    assert stream.seen == 100.0
    assert_array_equal(stream.state.q.precision, half.state.q.precision)


def test_a_weight_of_two_is_two_rows():
    stream = listen([slice(0, 20)], StreamSettings(batch_size=20), weight=np.full(200, 2.0))
    assert stream.seen == 40.0
    twice = listen([np.tile(np.arange(20), 2)], StreamSettings(batch_size=40))
    assert_allclose(stream.state.q.precision, twice.state.q.precision, rtol=1e-9, atol=1e-9)


def test_a_stream_goes_on_from_a_given_posterior():
    """What was known is scaled, not replaced."""
    trainer = make_trainer(X[:10], LABELS[:10], learn=False, kernel=KERNELS["noisy"], Z=points(6))
    known = NaturalParameters(100.0 * np.eye(6)[None], np.full((1, 6), 30.0))
    state = replace(trainer.init(), q=known)
    _, stream = absorb(
        trainer,
        Stream(state, 1000.0, represents=1000.0),
        source(slice(0, 10)),
        Progress(),
        StreamSettings(10),
    )
    assert stream.seen == 1010.0
    assert_allclose(stream.state.q.precision, known.precision, atol=10.0)
    assert_allclose(stream.state.q.shift, known.shift, atol=10.0)


@pytest.mark.parametrize("seen", [50.0, 20_000.0])
def test_a_memory_that_is_set_late_holds_at_once(seen):
    """However many rows q stands for, after a step it is an average over no more than the memory."""
    trainer = make_trainer(X, LABELS, learn=False, kernel=KERNELS["noisy"], Z=points(6))
    state = trainer.init()
    one = NaturalParameters(np.eye(6)[None], np.zeros((1, 6)))
    stream = Stream(replace(state, q=one.scaled(seen)), seen, represents=seen)
    settings = StreamSettings(10, memory=40.0)
    _, stream = absorb(trainer, stream, source(slice(0, 10)), Progress(), settings)
    assert stream.represents == 40.0
    assert stream.seen == seen + 10.0
    old = np.trace(stream.state.q.precision[0]) / 6
    assert 30.0 <= old < 31.0 + 10.0


def twenty_more(stream):
    trainer = make_trainer(X, LABELS, learn=False, kernel=KERNELS["noisy"], Z=points(6))
    return absorb(trainer, stream, source(slice(100, 120)), Progress(), StreamSettings(10))[1]


def test_a_memory_that_is_lifted_brings_nothing_back():
    later = twenty_more(listen([slice(0, 100)], StreamSettings(batch_size=10, memory=30.0)))
    assert later.represents == 50.0
    assert later.seen == 120.0


def test_what_forgets_keeps_its_pace_and_what_does_not_settles(monkeypatch):
    rates, step = [], Trainer.step

    def noted(self, state, batch):
        rates.append(batch.rate)
        return step(self, state, batch)

    monkeypatch.setattr(Trainer, "step", noted)
    monkeypatch.setattr(streaming, "_FULL_RATE_ROWS", 10)
    listen([slice(0, 200)], StreamSettings(batch_size=20, memory=60.0))
    assert set(rates) == {1.0}
    rates.clear()
    listen([slice(0, 200)], StreamSettings(batch_size=20))
    assert rates[0] == 1.0
    assert_allclose(rates[-1], 60 / 181)


def test_the_scores_of_a_chunk_are_those_from_before_it_was_learned():
    trainer = make_trainer(X[:40], LABELS[:40], learn=False, kernel=KERNELS["noisy"], Z=points(6))
    absorb(trainer, Stream(trainer.init(), 0.0), source(slice(0, 40)), Progress(), StreamSettings(40))
    assert_allclose(trainer.engine.log_predictive, np.log(0.5), rtol=1e-12)


class TestPointsThatFollow:
    def prior_and_q(self, *, noise=0.5):
        """Sixteen exact values at the points, seen with noise."""
        rng = np.random.default_rng(0)
        prior = Prior(RBF(0.7), rng.uniform(-1, 1, (16, 2)), np.dtype(np.float64))
        values = rng.standard_normal(16)
        precision = prior.L.T @ prior.L / noise
        return prior, NaturalParameters(precision[None], (values @ prior.L / noise)[None]), values

    def test_carry_what_was_known_as_conditioning_does(self):
        """The oracle is dense: the old values, seen with noise, condition those at the new points."""
        prior, q, values = self.prior_and_q()
        far = np.random.default_rng(1).uniform(1.0, 3.0, (60, 2))
        after, carried = following(prior, q, far, np.ones(60), 16)
        assert 2 < np.isin(after.Z, prior.Z).all(axis=1).sum() < 16
        noisy = prior.L @ prior.L.T + 0.5 * np.eye(16)
        cross = RBF(0.7)(after.Z, prior.Z)
        mean = cross @ np.linalg.solve(noisy, values)
        covariance = after.L @ after.L.T - cross @ np.linalg.solve(noisy, cross.T)
        posterior = Posterior.from_naturals(carried)
        assert_allclose(after.L @ posterior.mean[0], mean, atol=1e-5)
        assert_allclose(after.L @ posterior.covariance[0] @ after.L.T, covariance, atol=1e-5)

    def test_stay_where_the_rows_need_no_others(self):
        prior, q, _ = self.prior_and_q(noise=0.001)
        assert following(prior, q, prior.Z, np.ones(16), 16) == (prior, q)

    def test_come_in_the_number_that_is_wanted(self):
        prior, q, _ = self.prior_and_q()
        rows = np.random.default_rng(1).uniform(-1.0, 3.0, (60, 2))
        after, carried = following(prior, q, rows, np.ones(60), 20)
        assert after.Z.shape == (20, 2)
        assert carried.shift.shape == (1, 20)

    def test_are_not_taken_from_rows_of_no_weight(self):
        prior, q, _ = self.prior_and_q()
        rows = np.random.default_rng(1).uniform(1.0, 3.0, (60, 2))
        after, _ = following(prior, q, rows, (np.arange(60) < 30).astype(float), 16)
        assert not np.isin(after.Z, rows[30:]).all(axis=1).any()
