"""What the routes share: the corpus in lanes of work, the cache, the counters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from starlette.requests import Request

from whenabouts.corpus import Corpus
from whenabouts.index.records import VideoRecord
from whenabouts.search import SearchResult
from whenabouts.server.cache import Cache, Make
from whenabouts.server.errors import ServerError, no_video
from whenabouts.server.files import OpenFile
from whenabouts.server.metrics import Metrics
from whenabouts.server.paging import Pages
from whenabouts.server.readers import Readers
from whenabouts.server.schemas import Asked, SearchParameters
from whenabouts.server.settings import Settings
from whenabouts.server.work import Lane, Rate, Seats
from whenabouts.types import UsageError
from whenabouts.video.probe import MediaError, Probe, probe

Result = TypeVar("Result")
_KEPT_ANSWERS = 64
_KEPT_PROBES = 1000


class Kept(OrderedDict[tuple[str, ...], Result]):
    """The few last used values by key; for threads."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._lock = most, threading.Lock()

    def of(self, key: tuple[str, ...], make: Callable[[], Result]) -> Result:
        """The value kept, or one made now."""
        with self._lock:
            if key in self:
                self.move_to_end(key)
                return self[key]
        value = make()
        with self._lock:
            self[key] = value
            while len(self) > self._most:
                self.popitem(last=False)
        return value


class Service:
    """One corpus being served."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        limits = settings.limits
        self.settings, self.limits = settings, limits
        self.location = corpus.location
        wait = limits.wait_seconds
        self.searches = Lane("searches", limits.searches, limits.searches_waiting, wait)
        self.reads = Lane("reads", limits.reads, limits.reads_waiting, wait)
        self.thumbnails = Lane("thumbnails", limits.thumbnails, limits.thumbnails_waiting, wait)
        self.clips = Lane("clips", limits.clips, limits.clips_waiting, wait)
        self.clip_rate = Rate("clips", limits.clips_a_minute)
        self.files = Seats("files", limits.files)
        self.sending = ThreadPoolExecutor(8, thread_name_prefix="whenabouts-sending")
        self.cache = Cache(settings.cache, settings.cache_bytes)
        self.metrics = Metrics()
        place = corpus.location if "://" in corpus.location else str(Path(corpus.location).resolve())
        self.pages = Pages(blake2b(f"{place}\0{settings.token}".encode("utf-8", "replace")).digest())
        self._readers = Readers(corpus, limits.searches + limits.reads)
        self._answers: Kept[SearchResult] = Kept(_KEPT_ANSWERS)
        self._probes: Kept[Probe | None] = Kept(_KEPT_PROBES)
        self._records: Kept[list[VideoRecord]] = Kept(1)
        self._pools: Kept[tuple[int, float]] = Kept(1)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All lanes."""
        return self.searches, self.reads, self.thumbnails, self.clips

    def close(self) -> None:
        """End all work that has not begun."""
        for lane in self.lanes:
            lane.close()
        self.sending.shutdown(wait=False, cancel_futures=True)

    async def ask(self, lane: Lane, request: Request, question: Callable[[Corpus], Result]) -> Result:
        """What the corpus answers, asked in a lane; a client that goes away loses its place there."""

        def job() -> Result:
            with self._readers.lent() as corpus:
                return question(corpus)

        return await lane.run(job, request.is_disconnected)

    async def record(self, request: Request, video_id: str) -> VideoRecord:
        """The ledger row of a video; ServerError 404 for what is no id of this corpus."""
        return await self.ask(self.reads, request, partial(known_record, video_id=video_id))

    def search(self, corpus: Corpus, asked: Asked) -> SearchResult:
        """The whole answer to a question; pages of one answer are cut from one search."""
        if not corpus.streams:
            raise ServerError(
                409, "corpus_empty", "this corpus is empty; put something in with `whenabouts index`"
            )
        self._check_names(corpus, asked)
        self._check_segments(corpus, asked)
        question = asked.model_dump_json(exclude={"page_limit", "page_token"})
        search = partial(
            corpus.search,
            asked.query,
            asked.k,
            within=asked.within,
            streams=asked.stream,
            min_confidence=asked.min_confidence,
            after=asked.after,
            before=asked.before,
            where=asked.where,
            model=None if asked.model is None else self.model(asked.model),
            segments=asked.segments,
        )
        if not isinstance(asked, SearchParameters) or asked.page_token is None:
            result = search()
            self._answers.of((question, str(corpus.version)), lambda: result)
            return result
        return self._answers.of((question, str(corpus.version)), search)

    def model(self, name: str) -> str:
        """Where a trained system lies; ServerError 404 for one that is not served."""
        if name not in self.settings.models:
            raise ServerError(404, "no_such_model", f"this server has no model {name[:50]!r}", field="model")
        return self.settings.models[name]

    def _check_names(self, corpus: Corpus, asked: Asked) -> None:
        """404 for videos and streams that are not there, before anything is searched."""
        unknown = [name for name in asked.stream if name not in corpus.streams]
        if unknown:
            raise ServerError(
                404, "no_such_stream", f"this corpus has no stream {unknown[0][:50]!r}", field="stream"
            )
        for name in asked.within:
            try:
                corpus.resolve(name)
            except (UsageError, ValueError) as error:
                problem = str(error).replace(self.location, "this corpus")
                raise ServerError(404, "no_such_video", problem, field="within") from None

    def _check_segments(self, corpus: Corpus, asked: Asked) -> None:
        """409 for segments that are not in the index: making them is for its owner to decide."""
        if asked.model is None or asked.segments is None:
            return
        if not corpus.has_segments(self.model(asked.model), asked.segments):
            problem = f"this corpus has no segments of {asked.segments:g} s for {asked.model}"
            remedy = f"`whenabouts index --model … --segments {asked.segments:g}` makes them"
            raise ServerError(409, "no_segments", f"{problem}; {remedy}", field="segments")

    def records(self, corpus: Corpus) -> list[VideoRecord]:
        """All videos by id, read again when the ledger has changed."""
        return self._records.of((str(corpus.version),), corpus.records)

    def pool(self, corpus: Corpus) -> tuple[int, float]:
        """How many videos are searched, and their seconds."""

        def count() -> tuple[int, float]:
            records = self.records(corpus)
            return len(records), sum(record.duration or 0.0 for record in records)

        return self._pools.of((str(corpus.version),), count)

    def probed(self, record: VideoRecord) -> Probe | None:
        """What the file of a video holds, None where it is not there or cannot be read; kept."""

        def look() -> Probe | None:
            try:
                return probe(Path(record.path))
            except (MediaError, OSError):
                return None

        return self._probes.of((record.path, str(record.modified_ns), record.content_hash), look)

    async def made(self, lane: Lane, kind: str, name: str, make: Make) -> OpenFile:
        """A file of the cache, open; made in a lane where it is not there yet."""
        opened, was_there = await self.cache.get(name, make, lane.run)
        self.metrics.cache.labels(kind, "hit" if was_there else "miss").inc()
        return opened

    def measured(self) -> bytes:
        """The counters as text."""
        self.metrics.cache_bytes.set(self.cache.bytes)
        for lane in self.lanes:
            self.metrics.waiting.labels(lane.kind).set(lane.inside)
            self.metrics.refused.labels(lane.kind).set(lane.refused)
        return self.metrics.text()


def known_record(corpus: Corpus, video_id: str) -> VideoRecord:
    """The ledger row of a video by its id alone; ServerError 404 where there is none."""
    record = corpus.record(video_id)
    if record is None:
        raise no_video(video_id)
    return record


def service_of(request: Request) -> Service:
    """The service that an app was made for."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service
