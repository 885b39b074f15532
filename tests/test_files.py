"""Files are written whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from cavity.files import check_writable, remove_unfinished, written_atomically
from support import no_more_rights_than_files_give


def write(path, content=b"new"):
    with written_atomically(path) as file:
        file.write(content)


def test_a_new_file_and_one_that_takes_anothers_place(tmp_path):
    path = tmp_path / "a.bin"
    write(path, b"first")
    assert path.read_bytes() == b"first"
    write(str(path), b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_until_the_end_the_old_file_is_there(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with written_atomically(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_failure_half_way_leaves_the_old_file_and_no_litter(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def write_half():
        with written_atomically(path) as file:
            file.write(b"half of it")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_fills_up_while_the_file_is_closed(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        write(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_umask_says_who_may_read_it(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "a.bin")
    finally:
        os.umask(before)
    assert (tmp_path / "a.bin").stat().st_mode & 0o777 == 0o640


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "nowhere" / "a.bin")


def test_a_folder_that_may_not_be_written_to(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    try:
        with no_more_rights_than_files_give(), pytest.raises(PermissionError):
            write(folder / "a.bin")
    finally:
        folder.chmod(0o700)


def test_whether_a_file_could_be_written_is_found_out_without_a_trace(tmp_path):
    path = tmp_path / "a.bin"
    check_writable(path)
    assert not any(tmp_path.iterdir())
    path.write_bytes(b"old")
    check_writable(path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(FileNotFoundError):
        check_writable(tmp_path / "nowhere" / "a.bin")


def test_only_what_was_to_become_this_file_is_removed(tmp_path):
    for name in ("a.bin", ".a.bin.0123abcd.part", ".b.bin.0123abcd.part", ".a.bin.notes.part"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path / "a.bin")
    assert {file.name for file in tmp_path.iterdir()} == {
        "a.bin",
        ".b.bin.0123abcd.part",
        ".a.bin.notes.part",
    }


def test_what_another_process_is_writing_is_not_taken_for_litter(tmp_path):
    path = tmp_path / "a.bin"
    pytest.importorskip("fcntl")
    (tmp_path / ".a.bin.0123abcd.part").write_bytes(b"of a process that was killed")
    with written_atomically(path) as file:
        file.write(b"new")
        remove_unfinished(path)
        assert len(list(tmp_path.iterdir())) == 1
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_held_until_it_has_its_name(tmp_path, monkeypatch):
    path, replace = tmp_path / "a.bin", Path.replace
    pytest.importorskip("fcntl")

    def interrupted_by_others(self, target):
        remove_unfinished(path)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted_by_others)
    write(path)
    assert path.read_bytes() == b"new"
