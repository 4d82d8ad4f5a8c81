"""Corpora that this user did not write are read in a process apart first: LanceDB may end the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from tests.index.test_store_places import corpus_at

from whenabouts.index import stranger
from whenabouts.index.checksums import CHECKSUMS_FILE
from whenabouts.index.records import StoreError
from whenabouts.index.store import Store

CHECK = stranger._harm  # all other tests skip this check


@pytest.fixture(autouse=True)
def check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranger, "_harm", CHECK)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "whenabouts" / "corpora"


@pytest.fixture
def looks(check: None, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The corpora that were read apart."""
    seen: list[Path] = []

    def counted(folder: Path, stored: int) -> str:
        seen.append(folder)
        return CHECK(folder, stored)

    monkeypatch.setattr(stranger, "_harm", counted)
    return seen


def deadly(place: Path, table: str = "corpus") -> Path:
    """A corpus with a file that claims 4,294,967,295 buffers: LanceDB wants 64 GB for them, and Rust ends."""
    corpus_at(place)
    (place / CHECKSUMS_FILE).unlink()
    for data in (place / f"{table}.lance" / "data").iterdir():
        content = bytearray(data.read_bytes())
        content[-16:-12] = b"\xff" * 4  # the footer of a Lance file
        data.write_bytes(content)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("table", ["corpus", "videos", "clips_subtitle"])
def test_a_file_that_would_end_this_process_is_refused_with_its_table(tmp_path: Path, table: str) -> None:
    place = deadly(tmp_path / "c", table)
    with pytest.raises(
        StoreError, match=f"cannot read its table '{table}' .memory allocation of .* index again"
    ):
        Store.open(place)
    ended = subprocess.run(
        [sys.executable, "-m", "whenabouts", "stats", "--corpus", str(place)],
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert b"would end this program" in ended.stderr


def test_what_this_user_wrote_is_not_read_apart_nor_while_it_is_written(
    tmp_path: Path, looks: list[Path]
) -> None:
    store = corpus_at(tmp_path / "c")
    Store.open(tmp_path / "c")
    with store.writing():
        store.remove_videos(["v1"])
        Store.open(tmp_path / "c")
    Store.open(tmp_path / "c")
    assert looks == []


@pytest.mark.slow
def test_a_killed_writer_is_no_stranger(tmp_path: Path, looks: list[Path]) -> None:
    corpus_at(tmp_path / "c")
    writes = (
        "import os, sys; from whenabouts.index.store import Store; store = Store.open(sys.argv[1])\n"
        "with store.writing():\n store.remove_videos(['v1'])\n os._exit(9)"
    )
    ended = subprocess.run([sys.executable, "-c", writes, str(tmp_path / "c")], check=False)
    assert ended.returncode == 9
    assert len(Store.open(tmp_path / "c").videos()) == 2
    assert looks == []


@pytest.mark.slow
def test_a_stranger_is_read_apart_once_and_again_after_a_change(
    tmp_path: Path, state: Path, looks: list[Path]
) -> None:
    place = tmp_path / "c"
    corpus_at(place)
    shutil.rmtree(state)
    for _ in range(2):
        Store.open(place)
    assert looks == [place]
    data = next((place / "videos.lance" / "data").iterdir())
    os.utime(data)
    Store.open(place)
    assert looks == [place, place]


def test_a_copy_that_keeps_times_is_known(tmp_path: Path, looks: list[Path]) -> None:
    corpus_at(tmp_path / "c")
    Store.open(shutil.copytree(tmp_path / "c", tmp_path / "copy"))
    assert looks == []


@pytest.mark.slow
def test_a_table_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path, state: Path) -> None:
    place = tmp_path / "c"
    corpus_at(place)
    table = lancedb.connect(place).open_table("corpus")
    alike: Any = {
        name: [value] * 4_000_000 for name, value in (("key", "k"), ("value", "v" * 8), ("owner", ""))
    }
    table.add(pa.table(alike | {"expires": [0.0] * 4_000_000}, schema=table.schema))
    (place / CHECKSUMS_FILE).unlink()
    shutil.rmtree(state)
    with pytest.raises(
        StoreError, match="table 'corpus', which unpacks to more than a hundred times its size"
    ):
        Store.open(place)


@pytest.mark.slow
def test_where_no_note_can_be_kept_a_corpus_opens_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    corpus_at(tmp_path / "c")
    assert len(Store.open(tmp_path / "c").videos()) == 3


@pytest.mark.slow
def test_the_second_process_has_a_limit_of_memory_and_leaves_no_core_dump(tmp_path: Path) -> None:
    corpus_at(tmp_path / "c")
    read = (
        "import resource, sys\n"
        "from whenabouts.index.stranger import _read\n"
        "assert _read(sys.argv[1], 1000) == 0\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA)[0], *resource.getrlimit(resource.RLIMIT_CORE))"
    )
    command = [sys.executable, "-c", read, str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{(2 << 30) + 2 * 1000} 0 0"
