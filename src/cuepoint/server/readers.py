"""Handles on one corpus for threads that read at the same time.

A `Corpus` follows what is written to it by moving its tables to the newest version. Were one shared by
threads, a search could find its clips in one version and read them from another. So each thread borrows a
handle of its own; what is costly (LanceDB's caches, the encoders) they share.
"""

from __future__ import annotations

import contextlib
import copy
import queue
from collections.abc import Iterator

from cuepoint.corpus import Corpus
from cuepoint.index.records import VideoRecord, check_video_id
from cuepoint.index.store import Store
from cuepoint.index.tables import open_table, speaking
from cuepoint.shelf import Shelf
from cuepoint.shown import Line, show
from cuepoint.types import Moment, UsageError


class Readers:
    """`count` handles on a corpus, lent to one thread at a time each."""

    def __init__(self, corpus: Corpus, count: int) -> None:
        self._idle: queue.SimpleQueue[Corpus] = queue.SimpleQueue()
        for _ in range(count):
            self._idle.put(_beside(corpus))

    @contextlib.contextmanager
    def lent(self) -> Iterator[Corpus]:
        """A handle, as fresh as the corpus is on disk; waits while all are lent."""
        corpus = self._idle.get()
        try:
            corpus._store.refresh()
            yield corpus
        finally:
            self._idle.put(corpus)


def record_of(corpus: Corpus, video_id: str) -> VideoRecord | None:
    """The ledger row of a video by its id alone: no names, no paths."""
    try:
        check_video_id(video_id)
    except UsageError:
        return None
    record = corpus._store.video(video_id)
    return record if record is not None and record.state == "done" else None


def all_records(corpus: Corpus) -> list[VideoRecord]:
    """All videos by id; files that could not be read are not among them."""
    return [record for record in corpus._store.videos() if record.state == "done"]


def ledger_version(corpus: Corpus) -> int:
    """A number that changes with every change of the ledger."""
    return int(corpus._store._table("videos").version)


def words_of(corpus: Corpus, record: VideoRecord, moment: Moment | None) -> tuple[Line, ...]:
    """The spoken passages of a video, or of a moment of it."""
    return show(corpus._store, record, moment).words


def stream_names(corpus: Corpus) -> list[str]:
    """The streams there are."""
    return sorted(corpus._store.streams)


def refuses_name(corpus: Corpus, name: str) -> str:
    """Why a name means no one video of the corpus, "" where it does."""
    try:
        corpus.resolve(name)
    except (UsageError, ValueError) as error:
        return str(error)
    return ""


def is_empty(corpus: Corpus) -> bool:
    """Whether nothing has been put in yet."""
    return not corpus._store.streams


def _beside(corpus: Corpus) -> Corpus:
    """Another handle on the same corpus: tables of its own, caches and encoders shared."""
    store = corpus._store
    with speaking(store.place, "open the corpus"):
        own = Store(store.place, store._db, open_table(store._db, "corpus"))
    twin = copy.copy(corpus)
    twin._store, twin._shelf = own, Shelf(own)
    twin._shelf._encoders = corpus._shelf._encoders
    twin._searcher, twin._asked = None, (None, None)
    return twin
