"""The file of a checkpoint: what is none, where it cannot be, and what becomes of it."""

import os
import warnings
import zipfile

import numpy as np
import pytest
from broken_fits import LABELS, X, classifier, left_behind
from numpy.testing import assert_allclose

from cavity import CheckpointError
from cavity.engines.local import LocalEngine
from cavity.inference.checkpoint import Checkpointer
from support import no_more_rights_than_files_give, replace_sweep


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """What `classifier()` left behind when it was broken off."""
    return left_behind(tmp_path / "fit.ckpt", monkeypatch)


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("epoch,loss\n1,0.3\n")


def single_array(path):
    with path.open("wb") as file:
        np.save(file, np.eye(3))


def other_archive(path):
    with path.open("wb") as file:
        np.savez(file, weights=np.eye(3))


def flipped_byte(path):
    """In the last number of an array: bytes of the archive between its members mean nothing."""
    with np.load(path) as file:
        last = file["state.x"].tobytes()[-8:]
    content = bytearray(path.read_bytes())
    content[content.index(last)] ^= 0xFF
    path.write_bytes(bytes(content))


def missing_array(path):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "state.x"}
    with path.open("wb") as file:
        np.savez(file, **arrays)


def senseless_header(path):
    with path.open("wb") as file:
        np.savez(file, about=np.frombuffer(b"{not json", dtype=np.uint8))


def zip_of_a_later_version(path):
    """The version that is needed to extract the first member, in both places."""
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 99
    path.write_bytes(bytes(content))


def encrypted(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    content[content.index(b"PK\x03\x04") + 6] |= 1
    path.write_bytes(bytes(content))


def too_large_to_be_true(path):
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        header = (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }".ljust(117) + "\n"
        )
        archive.writestr("about.npy", b"\x93NUMPY\x01\x00" + b"\x76\x00" + header.encode())


def compressed(path):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def member_twice(path):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("state.x.npy", archive.read("state.x.npy"))


def folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        truncated,
        empty,
        text,
        single_array,
        other_archive,
        flipped_byte,
        missing_array,
        senseless_header,
        zip_of_a_later_version,
        encrypted,
        too_large_to_be_true,
        compressed,
        member_twice,
        folder,
    ],
)
def test_what_is_no_checkpoint_is_said_to_be_none(checkpoint, spoil):
    spoil(checkpoint)
    with pytest.raises(CheckpointError) as caught:
        classifier(checkpoint).fit(X, LABELS)
    assert str(checkpoint) in str(caught.value)
    assert checkpoint.exists(), "whatever it is, it is not ours to delete"


def steps(monkeypatch):
    """A list that grows with every pass over rows."""
    passes = []

    def counted(*args, sweep=LocalEngine.run, **kwargs):
        passes.append(1)
        return sweep(*args, **kwargs)

    replace_sweep(monkeypatch, counted)
    return passes


def refused_at_once(monkeypatch, path):
    """The message with which a fit refuses a path before its first step."""
    passes = steps(monkeypatch)
    with no_more_rights_than_files_give(), pytest.raises(CheckpointError) as caught:
        classifier(path, checkpoint_interval=1e6).fit(X, LABELS)
    assert not passes
    return str(caught.value)


def test_a_path_in_no_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    path = tmp_path / "nowhere" / "fit.ckpt"
    message = refused_at_once(monkeypatch, path)
    assert str(path) in message
    assert f"there is no folder {str(path.parent)!r}" in message


def test_a_path_in_a_file_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    message = refused_at_once(monkeypatch, tmp_path / "file" / "fit.ckpt")
    assert "is not a folder" in message


@pytest.mark.parametrize("name", ["", ".", "somewhere"])
def test_a_folder_is_refused_before_the_work_and_not_to_be_deleted(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somewhere").mkdir()
    message = refused_at_once(monkeypatch, name)
    assert "is a folder; name a file, for instance" in message
    assert "delete" not in message


@pytest.mark.parametrize("name", ["x" * 300, "null\0byte"])
def test_a_name_that_no_file_can_have_is_refused_before_the_work(tmp_path, monkeypatch, name):
    assert "cannot be used" in refused_at_once(monkeypatch, tmp_path / name)


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch, mode):
    folder = tmp_path / "folder"
    folder.mkdir(mode=mode)
    message = refused_at_once(monkeypatch, folder / "fit.ckpt")
    assert "Permission denied; pass a path in a folder that" in message


def test_a_checkpoint_that_may_not_be_read_is_not_to_be_deleted(checkpoint, monkeypatch):
    checkpoint.chmod(0o000)
    message = refused_at_once(monkeypatch, checkpoint)
    assert str(checkpoint) in message
    assert "change its permissions" in message
    assert "delete" not in message


def test_a_file_that_cannot_be_removed_is_a_warning_and_the_fit_is_done(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"

    def finish(self, engine, finish=Checkpointer.finish):
        tmp_path.chmod(0o500)
        finish(self, engine)

    monkeypatch.setattr(Checkpointer, "finish", finish)
    model = classifier(path)
    with no_more_rights_than_files_give(), pytest.warns(UserWarning, match="not be removed") as caught:
        model.fit(X, LABELS)
    tmp_path.chmod(0o700)
    assert str(path) in str(caught[0].message)
    assert_allclose(model.predict_proba(X), classifier().fit(X, LABELS).predict_proba(X))


def test_what_was_being_written_when_a_run_was_killed_does_not_stay(tmp_path):
    path = tmp_path / "fit.ckpt"
    others = {".fit.ckpt.12345678.part.txt", ".fit2.ckpt.12345678.part", ".fit.ckpt.mine.part"}
    for name in (".fit.ckpt.01234567.part", ".fit.ckpt.89abcdef.part", *others):
        (tmp_path / name).write_bytes(b"half")
    classifier(path, checkpoint_interval=1e6).fit(X, LABELS)
    assert {file.name for file in tmp_path.iterdir()} == others


def test_a_symbolic_link_stays_a_link(tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "fit.ckpt", tmp_path / "far" / "real.ckpt"
    link.symlink_to(target)
    left_behind(link, monkeypatch)
    assert link.is_symlink()
    assert list(target.parent.iterdir()) == [target]
    classifier(link).fit(X, LABELS)
    assert link.is_symlink()
    assert not target.exists()


def test_a_link_that_leads_nowhere_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere" / "fit.ckpt")
    assert "there is no folder" in refused_at_once(monkeypatch, tmp_path / "lost")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert "cannot be used" in refused_at_once(monkeypatch, tmp_path / "round")


def test_what_is_no_file_is_refused_before_the_work_and_not_to_be_deleted(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fit.ckpt")
    message = refused_at_once(monkeypatch, tmp_path / "fit.ckpt")
    assert "it is not a regular file" in message
    assert "delete" not in message
