"""A stream: q stands for all rows so far, however they were cut into chunks."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from training_runs import make_trainer

from cavity.data.arrays import ArraySource
from cavity.gp.posterior import Naturals
from cavity.inference.converge import converge
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.history import Progress
from cavity.inference.streaming import Stream, StreamSettings, absorb
from cavity.inference.trainer import Trainer
from cavity.inference.vi import Variational
from support import KERNELS, make_engine, make_prior, points, table

X, LABELS = table(200)
RULES = {"ep": ExpectationPropagation(), "vi": Variational()}


def source(rows, weight=None):
    return ArraySource(X[rows], LABELS[rows], None if weight is None else weight[rows])


def listen(chunks, settings, *, rule=None, learn=False, weight=None):
    """Absorb slices of the table one by one; as in a real stream, each has an engine of its own."""
    stream = progress = None
    for rows in chunks:
        trainer = make_trainer(
            X[rows], LABELS[rows], rule=rule, learn=learn, kernel=KERNELS["noisy"], Z=points(6)
        )
        stream = Stream(trainer.init(), 0.0) if stream is None else stream
        progress = Progress()
        stream = absorb(trainer, stream, source(rows, weight), progress, settings)
    return stream


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("memory", [np.inf, 60.0])
def test_how_the_rows_are_cut_into_chunks_does_not_matter(learn, memory):
    settings = StreamSettings(batch_size=20, memory=memory)
    whole = listen([slice(0, 200)], settings, learn=learn)
    parts = listen([slice(i, i + 40) for i in range(0, 200, 40)], settings, learn=learn)
    assert parts.seen == whole.seen == 200.0
    assert parts.steps == whole.steps == 10
    assert_allclose(parts.state.x, whole.state.x, rtol=1e-12)
    assert_allclose(parts.state.q.precision, whole.state.q.precision, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_at_a_fixed_kernel_one_look_at_each_row_comes_close_to_the_fixed_point(rule):
    prior = make_prior(KERNELS["noisy"], points(6))
    point = converge(make_engine(X, LABELS, rule=rule), prior, rule)
    stream = listen([slice(0, 200)], StreamSettings(5), rule=rule)
    trainer = make_trainer(X, LABELS, rule=rule)
    posterior = trainer.update.posterior(stream.state.q, prior)
    prior_distance = np.linalg.norm(point.posterior.mean)
    assert np.linalg.norm(posterior.mean - point.posterior.mean) < 0.3 * prior_distance
    trace, expected = np.trace(posterior.covariance[0]), np.trace(point.posterior.covariance[0])
    assert_allclose(trace, expected, rtol=0.35)


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
    assert stream.steps == 5
    assert_array_equal(stream.state.q.precision, half.state.q.precision)


def test_a_weight_of_two_is_two_rows():
    settings = StreamSettings(batch_size=20)
    stream = listen([slice(0, 20)], settings, weight=np.full(200, 2.0))
    assert stream.seen == 40.0
    once = listen([slice(0, 20)], settings)
    assert_allclose(stream.state.q.precision, 2 * once.state.q.precision, rtol=1e-12)


def test_a_stream_goes_on_from_a_given_posterior():
    """What was known is scaled, not replaced."""
    trainer = make_trainer(X[:10], LABELS[:10], learn=False, kernel=KERNELS["noisy"], Z=points(6))
    known = Naturals(100.0 * np.eye(6)[None], np.full((1, 6), 30.0))
    state = replace(trainer.init(), q=known)
    stream = absorb(
        trainer,
        Stream(state, 1000.0, represents=1000.0),
        source(slice(0, 10)),
        Progress(),
        StreamSettings(10),
    )
    assert stream.seen == 1010.0
    assert_allclose(stream.state.q.precision, known.precision, atol=10.0)
    assert_allclose(stream.state.q.shift, known.shift, atol=10.0)


class TestEveryRowCountsAlike:
    def test_but_for_those_of_the_time_in_which_the_parameters_settle(self):
        """The gain is the share of a row in the average: their product gives each row's weight."""
        settings = StreamSettings(batch_size=1, settling=100.0)
        shares = np.zeros(400)
        for n in range(1, 401):
            gain = 1.0 / settings.averaged(Stream(None, n - 1.0), float(n))
            shares *= 1.0 - gain
            shares[n - 1] = gain
        assert_allclose(shares.sum(), 1.0)
        assert_allclose(shares[100:], shares[-1])
        assert shares[0] < 0.3 * shares[-1]

    def test_and_after_a_fit_from_the_first(self):
        settings = StreamSettings(batch_size=1, settling=100.0)
        assert settings.averaged(Stream(None, 7.0, fitted=7.0), 8.0) == 8.0


@pytest.mark.parametrize("seen", [50.0, 20_000.0])
def test_a_memory_that_is_set_late_holds_at_once(seen):
    """However many rows q stands for, after a step it is an average over no more than the memory."""
    trainer = make_trainer(X, LABELS, learn=False, kernel=KERNELS["noisy"], Z=points(6))
    state = trainer.init()
    one = Naturals(np.eye(6)[None], np.zeros((1, 6)))
    stream = Stream(replace(state, q=one.scaled(seen)), seen, represents=seen)
    stream = absorb(trainer, stream, source(slice(0, 10)), Progress(), StreamSettings(10, memory=40.0))
    assert stream.represents == 40.0
    assert stream.seen == seen + 10.0
    old = np.trace(stream.state.q.precision[0]) / 6
    assert 30.0 <= old < 31.0 + 10.0


def twenty_more(stream):
    trainer = make_trainer(X, LABELS, learn=False, kernel=KERNELS["noisy"], Z=points(6))
    return absorb(trainer, stream, source(slice(100, 120)), Progress(), StreamSettings(10))


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
    listen([slice(0, 200)], StreamSettings(batch_size=2, memory=60.0))
    assert rates == [1.0] * 100
    rates.clear()
    listen([slice(0, 200)], StreamSettings(batch_size=2))
    assert rates[:30] == [1.0] * 30
    assert_allclose(rates[-1], 0.3)
