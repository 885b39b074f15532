"""The downloader, against a server on this machine."""

import hashlib
import os
import socket

import numpy as np
import pytest

from cavity import DatasetError
from cavity.datasets import download
from cavity.datasets.download import Checksum, cache_folder, download_file, download_json
from local_server import serving

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5 = Checksum("md5", hashlib.md5(CONTENT).hexdigest())
SHA256 = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest().upper())


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVITY_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as site:
        site.files["/data.bin"] = CONTENT
        yield site


def part():
    return cache_folder() / "data.bin.part"


@pytest.mark.parametrize("checksum", [MD5, SHA256, None])
def test_a_whole_download_is_cached(site, checksum):
    path = download_file(f"{site.url}/data.bin", "data.bin", checksum)
    assert path == cache_folder() / "data.bin"
    assert path.read_bytes() == CONTENT
    assert download_file(f"{site.url}/data.bin", "data.bin", checksum) == path
    assert site.requests == [("/data.bin", None)]
    assert list(cache_folder().iterdir()) == [path]


def test_a_download_that_is_cut_off_goes_on(site):
    site.cut_after, site.cuts = 100_000, 2
    assert download_file(f"{site.url}/data.bin", "data.bin", MD5).read_bytes() == CONTENT
    assert [asked for _, asked in site.requests] == [None, "bytes=100000-", "bytes=200000-"]


def test_one_that_is_cut_off_for_good_is_kept_for_the_next_call(site, monkeypatch):
    monkeypatch.setattr(download, "_ATTEMPTS", 1)
    site.cut_after, site.cuts = 100_000, 1
    with pytest.raises(DatasetError, match=r"data\.bin was cut off.*call again"):
        download_file(f"{site.url}/data.bin", "data.bin", MD5)
    assert part().read_bytes() == CONTENT[:100_000]
    assert download_file(f"{site.url}/data.bin", "data.bin", MD5).read_bytes() == CONTENT
    assert site.requests[-1] == ("/data.bin", "bytes=100000-")
    assert not part().exists()


def test_a_server_that_knows_no_ranges_starts_again(site):
    site.ranges, site.cut_after, site.cuts = False, 100_000, 1
    assert download_file(f"{site.url}/data.bin", "data.bin", MD5).read_bytes() == CONTENT
    assert len(site.requests) == 2


def test_without_a_checksum_nothing_is_resumed(site):
    part().parent.mkdir(parents=True)
    part().write_bytes(b"of another file")
    assert download_file(f"{site.url}/data.bin", "data.bin").read_bytes() == CONTENT
    assert site.requests == [("/data.bin", None)]


def test_a_part_that_is_complete_is_checked_and_kept(site):
    part().parent.mkdir(parents=True)
    part().write_bytes(CONTENT)
    assert download_file(f"{site.url}/data.bin", "data.bin", MD5).read_bytes() == CONTENT


def test_a_part_that_is_too_long_starts_again(site):
    part().parent.mkdir(parents=True)
    part().write_bytes(CONTENT + b"more")
    assert download_file(f"{site.url}/data.bin", "data.bin", MD5).read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"", b"x" * 100_000])
def test_a_wrong_checksum_is_refused_and_removed(site, left):
    part().parent.mkdir(parents=True)
    part().write_bytes(left)
    site.files["/data.bin"] = CONTENT[:-1] + (b"y" if not left else b"x")
    with pytest.raises(DatasetError, match=r"data\.bin does not have the expected md5.*removed"):
        download_file(f"{site.url}/data.bin", "data.bin", MD5)
    assert list(cache_folder().iterdir()) == []


def test_a_missing_file(site):
    with pytest.raises(DatasetError, match=r"nowhere answered 404 \(Not Found\)"):
        download_file(f"{site.url}/nowhere", "data.bin", MD5)


def test_offline(site):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DatasetError, match=r"127\.0\.0\.1.*could not be reached"):
        download_file(f"http://127.0.0.1:{port}/data.bin", "data.bin", MD5)


def test_only_the_web_is_read(site, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(DatasetError, match="not a web address"):
        download_file((tmp_path / "secret").as_uri(), "data.bin")


def test_a_cache_that_cannot_be_written(site, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CAVITY_CACHE", str(tmp_path / "file"))
    with pytest.raises(DatasetError, match="could not write"):
        download_file(f"{site.url}/data.bin", "data.bin", MD5)


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("CAVITY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("CAVITY_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert os.fspath(cache_folder()) == f"{tmp_path}/.cache/cavity"


def test_answers_of_services(site):
    site.files["/answer"] = b'{"a": 1}'
    site.files["/page"] = b"<html>"
    assert download_json(f"{site.url}/answer") == {"a": 1}
    with pytest.raises(DatasetError, match="page did not return readable JSON"):
        download_json(f"{site.url}/page")
