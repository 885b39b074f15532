"""How lost sites are found again: from which copies, by which passes."""

import dask
import pytest

from cavity.engines.dask import recovery
from cavity.engines.dask.comm import Message, PackedMessage
from cavity.engines.dask.passes import GroupStates
from cavity.engines.dask.recovery import RecoveryLog
from cavity.inference.sweep import Sweep, SweepOptions

PLACES = ["a", "b", "c"]


class Copy:
    def __init__(self, key):
        self.key = key
        self.status = "pending"


class Client:
    """Remembers what it is asked to copy, and where to."""

    def __init__(self):
        self.rounds = []

    def get(self, graph, keys, sync):
        assert not sync
        home = dask.get_annotations()["workers"]
        self.rounds.append({key: home(key) for key in keys})
        self.copies = [Copy(key) for key in keys]
        return self.copies

    def finish(self):
        for copy in self.copies:
            copy.status = "finished"


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(recovery, "PASSES_BETWEEN_COPIES", 3)
    monkeypatch.setattr(recovery, "pack", lambda message: message)
    return Client()


@pytest.fixture
def past(client):
    states = GroupStates(client, 6)  # none of them kept: a copy is no more than a task here
    return RecoveryLog(client, states)


def commit(past, *numbers, places=PLACES, size=1, **options):
    for number in numbers:
        options = {"damping": 0.5, **options}
        message = Message(
            None, Sweep(None, None, None, SweepOptions(**options)), None, number, frozenset()
        )
        past.committed(message, PackedMessage(str(number), b"x" * size), places)


def found(past, group=0):
    state, messages, exact = past.replay_plan(group)
    return state, [message.name for message in messages], exact


def test_nothing_is_found_before_the_first_pass(past):
    assert past.replay_plan(0).messages == []
    past.forget()
    assert past.replay_plan(0) is None


def test_passes_are_repeated_from_nothing_until_there_are_copies(past, client):
    commit(past, 1, 2)
    assert client.rounds == []
    assert found(past) == (None, ["1", "2"], True)
    commit(past, 3, 4)
    assert len(client.rounds) == 1
    assert found(past) == (None, ["1", "2", "3", "4"], True)  # they are still on their way
    client.finish()
    commit(past, 5)
    assert found(past, 2) == (client.copies[2], ["4", "5"], True)


def test_copies_go_to_another_worker(past, client):
    commit(past, 1, 2, 3)
    (places,) = client.rounds
    assert [where for (where,) in places.values()] == ["b", "b", "c", "c", "a", "a"]


def test_a_single_worker_has_no_copies_and_no_endless_past(past, client):
    commit(past, *range(6), places=["a"])
    assert found(past)[1:] == ([str(i) for i in range(6)], True)
    commit(past, 6, places=["a"])
    assert client.rounds == []
    assert not past.replay_plan(0).exact


def test_large_messages_are_kept_for_fewer_passes(past, client, monkeypatch):
    monkeypatch.setattr(recovery, "_BYTES", 100)
    commit(past, 1, size=101)
    assert len(client.rounds) == 1
    commit(past, 2, size=101)
    assert found(past)[1:] == (["1", "2"], True)
    commit(past, 3, size=101)
    assert not past.replay_plan(0).exact


def test_a_lost_copy_is_replaced_and_until_then_the_last_q_serves(past, client):
    commit(past, 1, 2, 3)
    client.finish()
    commit(past, 4)
    client.copies[1].status = "lost"
    assert found(past, 0)[2]
    _, messages, exact = past.replay_plan(1)
    assert not exact
    assert {message.number for message in messages} == {4}
    assert all(message.row_pass.options.damping == 1.0 for message in messages)  # all of a site at once
    past.copy_soon()
    commit(past, 5)
    assert len(client.rounds) == 2
    client.finish()
    commit(past, 6)
    assert found(past, 1) == (client.copies[1], ["6"], True)


def test_after_a_pass_that_only_scores_lost_rows_find_their_sites_and_are_scored(past):
    commit(past, 1, places=None, residual_scale=0.2)
    commit(past, 2, places=None, damping=0.0, inverse_temperature=1.4)
    *finding, scoring = (message.row_pass.options for message in past.replay_plan(0).messages)
    still = {
        (options.damping, options.inverse_temperature, options.residual_scale) for options in finding
    }
    assert still == {(1.0, 1.0, 0.2)}
    assert (scoring.damping, scoring.inverse_temperature, scoring.residual_scale) == (0.0, 1.4, 1.0)


def test_copies_that_fail_are_tried_again(past, client):
    commit(past, 1, 2, 3)
    client.copies[0].status = "cancelled"
    commit(past, 4)
    assert len(client.rounds) == 2


def test_after_minibatches_there_is_no_way_back_until_a_whole_pass(past, client):
    commit(past, 1)
    commit(past, 2, places=None)
    assert not past.replay_plan(0).exact
    commit(past, 3)
    client.finish()
    commit(past, 4)
    assert found(past) == (client.copies[0], ["4"], True)
