"""Where a corpus may lie: which storage is opened, which paths, and that nothing leads out of it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import tempfile
from pathlib import Path

import numpy as np
import pytest

from whenabouts.index import stranger
from whenabouts.index.lance import explained, is_panic, speaking
from whenabouts.index.records import ClipColumns, NotACorpus, StoreError, StreamInfo, VideoRecord
from whenabouts.index.store import Store


def corpus_at(folder: Path) -> Store:
    """A copy of a corpus of three videos that the notes list as written by this user."""
    shutil.copytree(_written_once(), folder, dirs_exist_ok=True)
    stranger.finish(folder)
    return Store.open(folder)


@functools.cache
def _written_once() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="whenabouts-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = Store.open(folder / "c.corpus", create=True)
    store.add_stream(StreamInfo("subtitle", "mini", "mini@1", 4))
    for number in range(3):
        columns = ClipColumns(np.zeros(1), np.ones(1), ["a word"], np.ones((1, 4), np.float32))
        record = VideoRecord(f"v{number}", f"v{number}.mp4", content_hash="h", streams={"subtitle": "mini@1"})
        store.put_video(record, {"subtitle": columns})
    return folder / "c.corpus"


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "scheme", ["gs", "az", "abfss", "db", "memory", "s3+ddb", "http", "S3", "shared-memory"]
)
def test_other_storage_is_refused_by_name_before_the_network(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", no_network)
    for create in (False, True):
        with pytest.raises(NotACorpus, match=f"{scheme.replace('+', '.')}://.*s3://bucket/prefix"):
            Store.open(f"{scheme}://bucket/corpus", create=create)


def test_a_path_above_the_root_is_the_root_and_no_panic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotACorpus, match="holds no corpus"):
        Store.open("/".join([".."] * 40) + "/etc")
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("place", ["", "a\0b", "~nobody-of-this-name/c", "x" * 300, "a/" * 3000])
def test_a_place_that_cannot_be_is_a_clear_error(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError):
        Store.open(place)


def test_a_corpus_below_two_dots_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    corpus_at(tmp_path / "c.corpus")
    monkeypatch.chdir(tmp_path / "a")
    assert len(Store.open("../c.corpus").videos()) == 3
    (tmp_path / "link.corpus").symlink_to(tmp_path / "c.corpus")  # the corpus itself may be a link
    assert len(Store.open(tmp_path / "link.corpus").videos()) == 3


@pytest.mark.parametrize("inside", ["videos.lance/data/more", "clips_subtitle.lance/_versions/x", "more"])
def test_a_link_in_a_corpus_is_refused_and_what_it_leads_to_stays(tmp_path: Path, inside: str) -> None:
    corpus_at(tmp_path / "other.corpus")
    store = corpus_at(tmp_path / "c.corpus")
    before = files_in(tmp_path / "other.corpus")
    (tmp_path / "c.corpus" / inside).symlink_to(tmp_path / "other.corpus" / "clips_subtitle.lance" / "data")
    with pytest.raises(NotACorpus, match="holds a link"):
        store.optimize(force=True)  # opened before the link was there
    with pytest.raises(NotACorpus, match=os.path.basename(inside)):  # noqa: PTH119
        Store.open(tmp_path / "c.corpus")
    assert files_in(tmp_path / "other.corpus") == before


def test_a_disk_that_turned_read_only_is_named_with_the_remedy() -> None:
    error = explained("my.corpus", "write", OSError("LanceError(IO): Read-only file system (os error 30)"))
    assert "is read-only now; what was indexed before is kept" in str(error)


def test_a_panic_of_the_rust_code_is_an_error_that_names_the_corpus() -> None:
    panic = type("PanicException", (BaseException,), {})
    assert is_panic(panic("x")) and not is_panic(ValueError("x"))
    with (
        pytest.raises(StoreError, match=r"corpus: cannot read: LanceDB gave up \(out of bounds\)"),
        speaking("my.corpus", "read"),
    ):
        raise panic("out of bounds")
    assert "restore it" in str(explained("my.corpus", "read", panic("x")))
    with pytest.raises(KeyboardInterrupt), speaking("my.corpus", "read"):
        raise KeyboardInterrupt
