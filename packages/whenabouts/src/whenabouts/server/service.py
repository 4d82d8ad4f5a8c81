"""`Service`, which all routes share: the corpus, bounded executors, the file cache, the metrics."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from starlette.requests import Request

from whenabouts.checkers import Checker, open_checker
from whenabouts.checking import PIXELS_WIDE, checked
from whenabouts.corpus import Corpus
from whenabouts.index.lance import folder_of, is_remote
from whenabouts.index.records import VideoRecord
from whenabouts.index.workers import usual_bytes
from whenabouts.search.example import PICTURE_SIZE, Example, example_at
from whenabouts.search.options import MOST_K, SearchOptions
from whenabouts.search.search_result import SearchResult
from whenabouts.search.understand import EncodedTexts
from whenabouts.server.answer_models import AnswerModels
from whenabouts.server.blocks import LONGEST_BLOCK, BlockExecutor
from whenabouts.server.cache import Cache, Make
from whenabouts.server.decoding import Decoders
from whenabouts.server.errors import ServerError, no_video
from whenabouts.server.files import OpenFile
from whenabouts.server.folders import ServedFolders
from whenabouts.server.jobs_runner import Runner
from whenabouts.server.memory import MemoryBound, Needs, Parts, taken_by
from whenabouts.server.metrics import Metrics
from whenabouts.server.paging import Pages
from whenabouts.server.paths import Paths, without_location
from whenabouts.server.schemas import SearchBodyParameters, SearchParameters, SearchRequest
from whenabouts.server.settings import Settings
from whenabouts.server.work import BoundedExecutor, ConnectionLimit, RateLimit
from whenabouts.streams import stream
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.objects import source_path
from whenabouts.video.probe import MediaError, Probe

Result = TypeVar("Result")
More = TypeVarTuple("More")
_KEPT_ANSWERS = 64
_KEPT_PROBES = 1000
_READY_SECONDS = 2.0
_QUESTION = "what is seen and said here"


class RecentValues(OrderedDict[tuple[str, ...], Result]):
    """The most recently used values by key. Thread-safe."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._lock = most, threading.Lock()

    def get_or_make(self, key: tuple[str, ...], make: Callable[[], Result], *, anew: bool = False) -> Result:
        """The value of a key; computed if it is absent or `anew` is set."""
        with self._lock:
            if key in self and not anew:
                self.move_to_end(key)
                return self[key]
        value = make()
        with self._lock:
            self[key] = value
            self.move_to_end(key)
            while len(self) > self._most:
                self.popitem(last=False)
        return value

    def clear(self) -> None:
        with self._lock:
            super().clear()


class Readers:
    """`count` handles on a corpus (see `Corpus.beside`), each lent to one thread at a time.

    If another corpus replaces it on disk, `replaced` gets that one once, and each handle is reopened when it
    is next lent.
    """

    def __init__(
        self, corpus: Corpus, count: int, replaced: Callable[[Corpus], None] = lambda _: None
    ) -> None:
        self._newest, self._replaced, self._lock = (corpus, _identity(corpus)), replaced, threading.Lock()
        self._idle: queue.SimpleQueue[tuple[Corpus, tuple[int, ...]]] = queue.SimpleQueue()
        for _ in range(count):
            self._idle.put((corpus.beside(), self._newest[1]))

    @contextlib.contextmanager
    def lent(self) -> Iterator[Corpus]:
        """Lend a handle on the corpus as it is on disk now; waits while all are lent."""
        corpus, identity = self._idle.get()
        try:
            now = _identity(corpus)
            if now and now != identity:
                corpus, identity = self._opened_anew(corpus, now), now
            corpus.refresh()
            yield corpus
        finally:
            self._idle.put((corpus, identity))

    def _opened_anew(self, corpus: Corpus, identity: tuple[int, ...]) -> Corpus:
        with self._lock:  # the first thread opens it, the others share its encoders
            if self._newest[1] != identity:
                self._newest = Corpus(corpus.places), identity
                self._replaced(self._newest[0])
            return self._newest[0].beside()


def _identity(corpus: Corpus) -> tuple[int, ...]:
    """Inode numbers that tell a corpus from its replacement; () on an object store or if it is missing."""
    tables = ("corpus.lance", "corpus.lance/_versions", "videos.lance")
    try:
        folders = [folder_of(place) for place in corpus.places if not is_remote(place)]
        return tuple((folder / table).stat().st_ino for folder in folders for table in tables)
    except OSError:
        return ()


class Service:
    """One served corpus, with all that its answers need."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        limits = settings.limits
        self.settings, self.limits = settings, limits
        self.runner = Runner(corpus, settings.allow, settings.cache) if settings.allow else None
        added = self.runner.allowed.folders.places if self.runner is not None else frozenset()
        self.folders = ServedFolders.of(corpus, settings.files, added)
        self.paths = Paths(are_shown=settings.shows_paths, places=_places(corpus, settings), folders=added)
        wait = limits.wait_seconds
        most = limits.job_seconds
        self.searches = BlockExecutor(
            "searches", limits.searches, limits.searches_waiting, wait, most, self._encoded
        )
        self.reads = BoundedExecutor("reads", limits.reads, limits.reads_waiting, wait, most)
        self.thumbnails = BoundedExecutor("thumbnails", limits.thumbnails, limits.thumbnails_waiting, wait)
        self.clips = BoundedExecutor("clips", limits.clips, limits.clips_waiting, wait)
        self.checks = BoundedExecutor("checks", limits.checks, limits.checks_waiting, wait, most)
        self.checker = (
            open_checker(settings.check, send_frames=settings.send_frames) if settings.check else None
        )
        self.models = AnswerModels.of(settings, self.paths)
        self.clip_rate = RateLimit("clips", limits.clips_a_minute)
        self.downloads = ConnectionLimit("files", limits.files)
        self.decoders = Decoders(self._decoding)
        self.cache = Cache(settings.cache, settings.cache_bytes)
        self.metrics = Metrics()
        self._corpus = corpus
        self._most_kept: int | None = None
        self._ready_until = 0.0
        self._drops = (lambda: self._corpus.drop_kept()), self._drop_answers
        self.memory = MemoryBound(limits.memory_bytes, self._drops)
        place = corpus.location if "://" in corpus.location else str(Path(corpus.location).resolve())
        self.pages = Pages(blake2b(f"{place}\0{settings.token}".encode("utf-8", "replace")).digest())
        self._readers = Readers(corpus, limits.searches + limits.reads + limits.checks, self._replace)
        self._answers: RecentValues[SearchResult] = RecentValues(_KEPT_ANSWERS)
        self._probes: RecentValues[Probe] = RecentValues(_KEPT_PROBES)
        self._pools: RecentValues[tuple[int, float]] = RecentValues(1)

    @property
    def executors(self) -> tuple[BoundedExecutor, ...]:
        """All executors, for closing and metrics."""
        return self.searches, self.reads, self.thumbnails, self.clips, self.checks

    @property
    def _decoding(self) -> int:
        """The most videos that may be decoded at a time."""
        return self.limits.thumbnails + self.limits.clips

    def measured_parts(self, count: int = 1) -> Parts:
        """How to divide the memory bound, measured by asking every handle a question now.

        The measurement loads the encoders and caches, and lets a local checker look at a moment. Raises
        UsageError if the bound is too low for them; its message counts the needs of `count` servers.
        """
        limits = self.limits
        models = (self.checker, self.models.reranker, self.models.rewriter)
        requests = limits.searches + limits.reads + (limits.checks if any(models) else 0)

        self._keep_at_most(0)  # the part for large streams is known only afterwards

        def warm() -> None:
            for _ in range(requests + 1):
                self._ask_oneself(10)

        needs = Needs.measured(warm, lambda: self._ask_oneself(MOST_K, LONGEST_BLOCK))
        if self.checker is not None and self.checker.runs_here:  # it looks at one moment at a time
            options = SearchOptions(k=1, check=self.checker, check_best=1, check_seconds=limits.check_seconds)
            needs = replace(needs, held=needs.held + taken_by(partial(self._ask_models, options)))
        if self.models.reranker is not None:
            options = SearchOptions(rerank=self.models.reranker)
            needs = replace(needs, held=needs.held + taken_by(partial(self._ask_models, options)))
        return Parts.of(limits.memory_bytes, needs, requests, self._decoding, usual_bytes(), count)

    def _ask_oneself(self, k: int, together: int = 1) -> None:
        with self._readers.lent() as corpus:
            with contextlib.suppress(WhenaboutsError):
                corpus.encoded([f"{_QUESTION} {number}" for number in range(together)])
            for model in (None, *self.settings.models.values()):
                with contextlib.suppress(WhenaboutsError):  # a client that asks gets this error itself
                    corpus.search(_QUESTION, k, model=model)

    def _ask_models(self, options: SearchOptions) -> None:
        with self._readers.lent() as corpus, contextlib.suppress(WhenaboutsError):
            corpus.search_with_models(_QUESTION, options, picture=self._picture)

    def divide(self, parts: Parts) -> None:
        """Apply a division of the memory from now on."""
        self.memory = MemoryBound(parts.server, self._drops, parts.request)
        self._keep_at_most(parts.kept)
        self.decoders = Decoders(parts.decoders, parts.decoder)

    def close(self) -> None:
        """Stop the executors; work that has not begun is dropped."""
        for executor in self.executors:
            executor.close()
        if self.runner is not None:
            self.runner.close()
        self.decoders.close()

    async def read(
        self, executor: BoundedExecutor, request: Request, read: Callable[[Corpus], Result]
    ) -> Result:
        """The result of `read` on the corpus, run in an executor; cancelled if the client leaves."""
        self.memory.check()
        return await executor.run(partial(self._with_corpus, read), partial(left, request))

    async def check_ready(self, request: Request) -> None:
        """Raise the error of every search by words, if there is one. A good result counts for two seconds."""
        if time.monotonic() >= self._ready_until:
            await self.read(self.reads, request, _check_searchable)
            self._ready_until = time.monotonic() + _READY_SECONDS

    async def answer(
        self, request: Request, query: str, read: Callable[[Corpus, EncodedTexts | None], Result]
    ) -> Result:
        """The result of `read` on the corpus. `query` is encoded in one batch with others that wait."""
        self.memory.check()
        return await self.searches.ask(
            query, lambda encoded: self._with_corpus(read, encoded), partial(left, request)
        )

    def _encoded(self, queries: Sequence[str]) -> EncodedTexts:
        return self._with_corpus(lambda corpus: corpus.encoded(queries))

    def _with_corpus(self, read: Callable[[Corpus, *More], Result], *more: *More) -> Result:
        # Earlier requests may have filled the memory while this one waited.
        with self.memory.room(), self._readers.lent() as corpus:
            return read(corpus, *more)

    def _drop_answers(self) -> None:
        self._answers.clear()
        self._probes.clear()

    def _keep_at_most(self, count: int) -> None:
        """Limit the bytes of large streams, also of a corpus that replaces this one."""
        self._most_kept = count
        self._corpus.store.keep_at_most(count)

    def _replace(self, corpus: Corpus) -> None:
        """Bound the memory of the corpus that replaced the last one, of which everything is dropped."""
        self._corpus = corpus
        if self._most_kept is not None:
            corpus.store.keep_at_most(self._most_kept)
        self._drop_answers()
        self._pools.clear()

    async def record(self, request: Request, video_id: str) -> VideoRecord:
        """The record of a video. Raises ServerError 404 for an unknown id."""
        return await self.read(self.reads, request, partial(record_of, video_id=video_id))

    def search(
        self, corpus: Corpus, search: SearchRequest, encoded: EncodedTexts | None = None
    ) -> SearchResult:
        """The whole answer to a search request; later pages reuse the cached answer. Raises ServerError."""
        if not corpus.streams:
            raise ServerError(
                409, "corpus_empty", "this corpus is empty; put something in with `whenabouts index`"
            )
        check_streams(corpus, search.stream)
        self.paths.check_conditions(search.where)
        within = self._named(corpus, search)
        self._check_segments(corpus, search)
        narrowing = search.model_dump(
            include={"k", "min_confidence", "after", "before", "where", "segments", "all", "literal"}
        )
        model = None if search.model is None else self.model(search.model)
        like = self._example(corpus, search)
        if search.query is None and like is None:
            raise ServerError(
                400, "missing_parameter", "give a query, a moment (like) or a picture", field="query"
            )

        models = self.models.asked_by(search, self.checker)
        checker = models.pop("check")
        seconds = min(self.limits.check_seconds, self.limits.job_seconds / 2)

        def answer() -> SearchResult:
            query = search.query or ""
            options = SearchOptions(within=within, streams=search.stream, model=model, like=like, **narrowing)
            if search.rerank or search.rewrite:
                options = replace(options, **models, rerank_seconds=seconds, rewrite_seconds=seconds)
                result = corpus.search_with_models(query, options, encoded, picture=self._picture)
            else:
                result = corpus.search(query, options=options, encoded=encoded)
            return result if checker is None else self._checked(corpus, search, result, checker)

        # Equal for all pages of a search; hashed, because a picture may be large.
        about = search.model_dump_json(exclude={"page_limit", "page_token"})
        key = (blake2b(about.encode()).hexdigest(), str(corpus.version))
        is_later_page = isinstance(search, SearchParameters) and search.page_token is not None
        return self._answers.get_or_make(key, answer, anew=not is_later_page)

    def _checked(
        self, corpus: Corpus, search: SearchRequest, result: SearchResult, checker: Checker
    ) -> SearchResult:
        """An answer with its best moments checked; frames are decoded in the decoder processes."""
        looked_at = checked(
            corpus,
            result,
            checker,
            best=search.check_best,
            seconds=min(self.limits.check_seconds, self.limits.job_seconds / 2),
            min_confidence=search.min_confidence,
            by_streams=search.model is None and not (search.rerank or search.rewrite),
            picture=self._picture,
        )
        before = len(result.notes)
        hidden = "not every moment was checked: the model gave no usable answer"
        new_notes = (self.paths.unless_hidden(note, hidden) for note in looked_at.notes[before:])
        return replace(looked_at, notes=(*result.notes, *dict.fromkeys(new_notes)))

    def _picture(self, record: VideoRecord, at: float) -> bytes:
        """A JPEG for a checker or reranker. Raises MediaError if the file is not served or has changed."""
        try:
            with self.folders.held(record) as path:
                return self.decoders.frame(path, at, PIXELS_WIDE)
        except ServerError as error:
            raise MediaError(str(error)) from error

    def _example(self, corpus: Corpus, search: SearchRequest) -> Example | None:
        """The example to search by: a moment named by its video's id, or an uploaded picture.

        A picture is decoded in another process. Raises ServerError 400 and 404.
        """
        picture = search.picture if isinstance(search, SearchBodyParameters) else None
        if search.like is not None and picture is not None:
            raise ServerError(400, "invalid", "give a moment (like) or a picture, not both", field="picture")
        if search.like is not None:
            return example_at(search.like, lambda video_id: record_of(corpus, video_id))
        if picture is None:
            return None
        try:
            return Example("the picture", picture=self.decoders.picture(picture, PICTURE_SIZE))
        except (MediaError, UsageError) as error:
            raise ServerError(400, "bad_picture", str(error), field="picture") from None

    def model(self, name: str) -> str:
        """The folder of a trained system. Raises ServerError 404 if it is not served."""
        if name not in self.settings.models:
            raise ServerError(404, "no_such_model", f"this server has no model {name[:50]!r}", field="model")
        return self.settings.models[name]

    def _named(self, corpus: Corpus, search: SearchRequest) -> list[str]:
        """Ids of the videos that `within` names. Raises ServerError 404 for an unknown one."""
        try:
            records = corpus.resolve_all(search.within, by_path=self.paths.are_shown)
        except (UsageError, ValueError) as error:
            problem = without_location(str(error), corpus.location, "this corpus")
            raise ServerError(404, "no_such_video", problem, field="within") from None
        return [record.video_id for record in records]

    def _check_segments(self, corpus: Corpus, search: SearchRequest) -> None:
        """Raise ServerError 409 for segments that are not indexed; only the owner decides to make them."""
        if search.model is None or search.segments is None:
            return
        if not corpus.has_segments(self.model(search.model), search.segments):
            problem = f"this corpus has no segments of {search.segments:g} s for {search.model}"
            remedy = f"`whenabouts index --model … --segments {search.segments:g}` makes them"
            raise ServerError(409, "no_segments", f"{problem}; {remedy}", field="segments")

    def pool(self, corpus: Corpus) -> tuple[int, float]:
        """The number of videos in the corpus, which also updates its metric, and their total seconds."""

        def count() -> tuple[int, float]:
            records = corpus.records()
            self.metrics.videos.set(len(records))
            return len(records), sum(record.duration or 0.0 for record in records)

        return self._pools.get_or_make((str(corpus.version),), count)

    def probe(self, record: VideoRecord) -> Probe | None:
        """What a video's file contains; None if it cannot be read now, which is not cached."""
        key = (record.path, str(record.modified_ns), record.content_hash)
        try:
            return self._probes.get_or_make(key, lambda: self.decoders.probe(source_path(record.path)))
        except (MediaError, OSError):
            return None

    async def made(self, executor: BoundedExecutor, kind: str, name: str, make: Make) -> OpenFile:
        """A file of the cache, open; an executor makes it if it is absent."""
        opened, was_there = await self.cache.get(name, make, executor.run)
        self.metrics.cache.labels(kind, "hit" if was_there else "miss").inc()
        return opened

    async def encoded_once(self, kind: str, name: str, make: Make) -> OpenFile:
        """A clip or film of the cache, open. Making a new one counts against `clips_a_minute`."""
        if (opened := self.cache.find(name)) is None:
            self.clip_rate.take()
            return await self.made(self.clips, kind, name, make)
        self.metrics.cache.labels(kind, "hit").inc()
        return opened

    def measured(self) -> bytes:
        """The metrics as text."""
        self.metrics.cache_bytes.set(self.cache.bytes)
        for executor in self.executors:
            self.metrics.waiting.labels(executor.kind).set(executor.inside)
            self.metrics.refused.labels(executor.kind).set(executor.refused)
        return self.metrics.text()


def _places(corpus: Corpus, settings: Settings) -> list[str]:
    """Paths of the corpus, its encoders and the models; messages may contain them."""
    encoders = [info.encoder for info in corpus.store.streams.values() if info.encoder.count("/") > 1]
    return [*corpus.places, *encoders, *(place for place in settings.models.values() if "/" in place)]


def _check_searchable(corpus: Corpus) -> None:
    """Raise the error of a broken stream if words can search no other. An empty corpus waits for videos."""
    understanding = corpus.searcher().understanding if corpus.streams else None
    if understanding is not None and understanding.broken and not understanding.text_streams:
        raise next(iter(understanding.broken.values()))


def record_of(corpus: Corpus, video_id: str) -> VideoRecord:
    """The record of a video id. Raises ServerError 404 for an unknown one."""
    record = corpus.record(video_id)
    if record is None:
        raise no_video(video_id)
    return record


def check_streams(corpus: Corpus, names: list[str]) -> None:
    """Raise ServerError 404 for a stream that the corpus lacks."""
    unknown = [name for name in names if name not in corpus.streams]
    if unknown:
        raise ServerError(
            404, "no_such_stream", f"this corpus has no stream {unknown[0][:50]!r}", field="stream"
        )


def stream_titles(corpus: Corpus) -> dict[str, str]:
    """Stream -> the title shown to users."""
    return {name: stream(name).title for name in corpus.streams}


async def left(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def service_of(request: Request) -> Service:
    """The service of a request's application."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def read_corpus(request: Request, read: Callable[[Corpus], Result]) -> Result:
    """The result of a short read of the corpus, run in a thread."""
    service = service_of(request)
    return await service.read(service.reads, request, read)
