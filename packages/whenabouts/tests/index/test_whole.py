"""While somebody writes, what is read is one whole state of the corpus: never half a video, never two."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store, without_file

pytestmark = pytest.mark.usefixtures("unmeasured")

VIDEOS, CLIPS, WIDTH, ROUNDS = 3, 6, 8, 12
STREAMS = [StreamInfo(name, "mini", "mini@1", WIDTH) for name in ("subtitle", "vision")]


def write_round(store: Store, number: int) -> None:
    """Every video anew: the words and the length of all its clips, in both streams, say the round."""
    start = np.arange(CLIPS + number % 3, dtype=np.float64)
    vectors = np.eye(WIDTH, dtype=np.float32)[np.arange(len(start)) % WIDTH]
    columns = ClipColumns(start, start + 1, [f"round r{number}"] * len(start), vectors)
    names = {info.name: info.fingerprint for info in STREAMS}
    store.put_videos(
        (
            VideoRecord(f"v{video}", "/v.mp4", size=number, duration=float(number), streams=names),
            {info.name: columns for info in STREAMS},
        )
        for video in range(VIDEOS)
    )


def rounds_seen(store: Store) -> set[str]:
    """What an answer is made of: every read that a search makes, and which rounds it saw."""
    store.refresh()
    while True:
        state, seen = store.moves, set[str]()
        for info in STREAMS:
            hits = store.nearest(info.name, np.ones(WIDTH, np.float32), 100)
            seen.add(f"{len(hits)} hits")
            block = store.clips_of(info.name, [f"v{video}" for video in range(VIDEOS)])
            seen |= set(block.text) | {f"{len(block)} clips"}
            seen.add(f"{len(store.match_text(info.name, 'round', 100))} matches")
        seen |= {f"{record.size} of the ledger" for record in store.ledger().records}
        if store.moves == state:
            return seen


def of_round(number: int) -> set[str]:
    """What a reader sees of a round that is whole."""
    count = VIDEOS * (CLIPS + number % 3)
    return {
        f"{count} hits",
        f"{count} clips",
        f"{count} matches",
        f"round r{number}",
        f"{number} of the ledger",
    }


_WRITER = """
import sys
from tests.index.test_whole import ROUNDS, write_round
from whenabouts.index.store import Store
store = Store.open(sys.argv[1])
for number in range(2, ROUNDS):
    write_round(store, number)
    if number % 4 == 0:
        store.optimize(force=True)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    store = Store.open(tmp_path / "my.corpus", create=True)
    for info in STREAMS:
        store.add_stream(info)
    write_round(store, 1)
    return tmp_path / "my.corpus"


@pytest.mark.slow
def test_every_answer_beside_a_writer_is_that_of_a_whole_state(place: Path) -> None:
    kept, rounds = Store.open(place), set[int]()
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(place)]) as writer:
        while writer.poll() is None:
            for store in (kept, Store.open(place)):
                seen = rounds_seen(store)
                if store._state_read.unfinished:  # no whole state in the time that is waited: hidden
                    continue
                whole = [number for number in range(1, ROUNDS) if seen == of_round(number)]
                assert len(whole) == 1, seen
                rounds.add(whole[0])
    assert writer.returncode == 0
    assert len(rounds) > 2, "the writer was done before anything was asked"
    assert rounds_seen(kept) == of_round(ROUNDS - 1)


def test_a_reader_keeps_its_state_while_a_video_is_half_written(place: Path) -> None:
    reader, writer = Store.open(place), Store.open(place)
    assert rounds_seen(reader) == of_round(1)
    with writer.writing():
        half_write(writer)
        assert rounds_seen(reader) == of_round(1)
        write_round(writer, 2)
        assert rounds_seen(reader) == of_round(2)


def half_write(store: Store) -> None:
    """What a writer leaves that dies between the clips of two streams of one video."""
    record = next(record for record in store.videos() if record.video_id == "v0")
    store.put_records([without_file(record)])
    store._clips("subtitle").delete("video_id = 'v0'")


@pytest.mark.slow
def test_a_video_that_a_dead_writer_left_half_written_is_no_answer(place: Path) -> None:
    half_write(Store.open(place))
    store = Store.open(place)
    for info in STREAMS:
        assert "v0" not in store.nearest(info.name, np.ones(WIDTH, np.float32), 100).video_ids
        assert "v0" not in store.match_text(info.name, "round", 100).video_ids
    write_round(Store.open(place), 2)
    assert rounds_seen(store) == of_round(2)


def test_a_reader_whose_tables_moved_while_a_writer_began_does_not_mix_two_states(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = Store.open(place), Store.open(place)
    assert rounds_seen(reader) == of_round(1)
    write_round(writer, 2)
    move, begun = reader._move_tables, list[str]()

    def move_while_a_writer_begins() -> None:
        if not begun:
            begun.append("v0")
            writer.put_records([without_file(record) for record in writer.videos(["v0"])])
        move()

    monkeypatch.setattr(reader, "_move_tables", move_while_a_writer_begins)
    reader.refresh()
    assert begun
    hits = reader.nearest("subtitle", np.ones(WIDTH, np.float32), 100)
    assert set(hits.video_ids) == {"v1", "v2"}
    assert {record.size for record in reader.ledger().records} == {-1, 2}


def test_a_table_that_is_opened_late_is_of_the_same_state_as_the_others(place: Path) -> None:
    reader = Store.open(place)
    assert {record.size for record in reader.ledger().records} == {1}
    moves = reader.moves
    write_round(Store.open(place), 2)
    assert len(reader.clips_of("vision", ["v0"])) == CLIPS + 2
    assert reader.moves > moves, "who reads is told that the ledger was of another state"
    assert rounds_seen(reader) == of_round(2)


def test_streams_of_a_whole_state_are_listed_again_after_a_write_by_the_same_store(place: Path) -> None:
    store = Store.open(place)
    write_round(store, 2)
    assert rounds_seen(store) == of_round(2)
    store.put_records([replace(record, title="t") for record in store.videos()])
    assert {record.title for record in store.videos()} == {"t"}
