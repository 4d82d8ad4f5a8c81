"""A corpus of one's own videos: put files in, ask for moments. What the command line and programs call."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from whenabouts.encoder_registry import LETTERS, EncoderRegistry
from whenabouts.index.filters import Filter, make_filter
from whenabouts.index.naming import VideoNames
from whenabouts.index.records import VideoRecord, check_video_id
from whenabouts.index.settings import DEFAULT_CLIP_SECONDS, Settings, read_metadata_file
from whenabouts.index.store import Store
from whenabouts.index.transcripts import Speech, Transcripts
from whenabouts.index.workers import available_cores
from whenabouts.times import parse_moment
from whenabouts.types import Moment, UsageError, Video

if TYPE_CHECKING:
    from whenabouts.calibration.measuring import Report
    from whenabouts.corpus_run import CorpusRun
    from whenabouts.curves import Curves
    from whenabouts.encoders.protocol import ImageEncoder, TextEncoder
    from whenabouts.explanation import Explanation
    from whenabouts.formats.annotations import Annotations
    from whenabouts.index.build import Encoders
    from whenabouts.index.lock import Holder
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress, Summary
    from whenabouts.models.trained import Trained
    from whenabouts.own_features import Exported
    from whenabouts.search import Searcher, SearchResult
    from whenabouts.shown import Line, Shown, Stats
    from whenabouts.trained.loaded import LoadedModel
    from whenabouts.trained.search import TrainedSearch
    from whenabouts.trained.segment_search import SegmentSearch
    from whenabouts.why import Why

_MOST_PROCESSES = 8
# Questions that `calibrate` makes of a corpus: enough for intervals of some 5 points either way.
CALIBRATING_QUESTIONS = 400


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be put in: files and folders, how, and with which encoders."""

    paths: tuple[Path, ...]
    settings: Settings
    encoders: Encoders
    retry: bool = False
    notes: tuple[str, ...] = ()


class Corpus:
    """Videos on disk that can be searched.

    `location` is a folder or an object store's URI such as "s3://bucket/prefix". It is made if it is not
    there, unless `create` is false: then a place without a corpus is an error. `encoders` are objects to
    use for streams that were made with them; all others are opened by the name that the corpus keeps.

    >>> corpus = Corpus("my.corpus")                       # doctest: +SKIP
    >>> corpus.add("videos/")                              # doctest: +SKIP
    >>> corpus.search("a red flower opens", k=10).moments  # doctest: +SKIP
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        create: bool = True,
        encoders: Iterable[TextEncoder] = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.location = os.fspath(location)
        self._store = Store.open(self.location, create=create, storage_options=storage_options)
        self._registry = EncoderRegistry(self._store, encoders)
        self._transcripts = Transcripts(self.location, storage_options)
        self._searcher: Searcher | None = None
        self._asked: tuple[Any, Any] = (None, None)
        self._models: dict[str, LoadedModel] = {}
        self._finders: dict[str, tuple[Any, TrainedSearch]] = {}
        self._segment_finders: dict[str, tuple[Any, SegmentSearch]] = {}

    def beside(self) -> Corpus:
        """Another handle on the same corpus for another thread; encoders and caches are shared.

        A handle follows what is written by moving its tables to the newest version. Were one shared by
        threads, a search could find its clips in one version and read them from another.
        """
        twin = copy.copy(self)
        twin._store = self._store.beside()
        twin._registry = self._registry.beside(twin._store)
        twin._searcher, twin._asked = None, (None, None)
        twin._finders, twin._segment_finders = {}, {}
        return twin

    def refresh(self) -> None:
        """See what has been written since; asking does so by itself."""
        self._store.refresh()

    # Putting in ----------------------------------------------------------------------------------

    def add(
        self,
        *paths: str | os.PathLike[str],
        vision: str | ImageEncoder | None = None,
        text: str | TextEncoder | None = None,
        retry: bool = False,
        processes: int | None = None,
        wait: bool = False,
        progress: Callable[[Progress], None] | None = None,
        **settings: Any,
    ) -> Summary:
        """Index files and folders; what came of it.

        `vision` and `text` are encoders, by name, folder or as objects. `settings` are those of
        `index.settings.Settings`: clip_seconds, shots, transcribe, metadata, metadata_file.
        Raises CorpusBusy while another indexer works here, unless `wait`.
        """
        with self.writing(wait=wait):
            request = self.request(paths, vision=vision, text=text, retry=retry, **settings)
            return self.run(self.plan(request), request, processes=processes, progress=progress)

    @contextlib.contextmanager
    def writing(
        self, *, wait: bool = False, on_wait: Callable[[Holder | None], None] | None = None
    ) -> Iterator[None]:
        """Be the one who may write: a plan made in here still fits the corpus when it is run.

        Raises CorpusBusy, saying who is at work, or waits; then `on_wait` is told who is waited for.
        """
        with self._store.writing(wait=float("inf") if wait else 0.0, on_wait=on_wait):
            yield

    def request(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        vision: str | ImageEncoder | None = None,
        text: str | TextEncoder | None = None,
        clip_seconds: float | None = None,
        shots: bool = False,
        transcribe: str | None = None,
        metadata: Mapping[str, Any] = MappingProxyType({}),
        metadata_file: str | os.PathLike[str] | None = None,
        retry: bool = False,
    ) -> Request:
        """What is asked for, with its encoders opened; errors in it come before anything is read."""
        from whenabouts.index.build import Encoders

        settings = Settings(
            clip_seconds=self._registry.clip_seconds(clip_seconds),
            shots=shots,
            transcribe=_speech_model(transcribe),
            metadata=dict(metadata),
            metadata_of=read_metadata_file(Path(metadata_file)) if metadata_file else {},
        )
        notes: list[str] = []
        encoders = Encoders(self._registry.text(text, notes), self._registry.vision(vision, notes))
        found = tuple(Path(os.fspath(path)) for path in paths)
        if retry and not found:
            found = tuple(Path(r.path) for r in self._store.videos() if r.state == "failed")
        return Request(found, settings, encoders, retry, tuple(notes))

    def plan(self, request: Request) -> Plan:
        """What an index run would do; nothing is written."""
        from whenabouts.index.plan import Wanted, make_plan
        from whenabouts.index.reading import PictureSettings
        from whenabouts.video.files import find_files

        vision, text, settings = request.encoders.vision, request.encoders.text, request.settings
        seconds = settings.clip_seconds or DEFAULT_CLIP_SECONDS
        wanted = Wanted(
            words=text.fingerprint if text else LETTERS,
            pictures=PictureSettings(seconds, vision.image_size) if vision else None,
            vision=vision.fingerprint if vision else "",
            shots=settings.shots,
            transcribe=settings.transcribe or "",
        )
        self._store.refresh()
        findings = find_files(request.paths)
        return make_plan(
            findings, self._store.videos(), settings, wanted, retry=request.retry, notes=request.notes
        )

    def run(
        self,
        plan: Plan,
        request: Request,
        *,
        processes: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Summary:
        """Carry out a plan, made inside `writing` if another indexer may be at work.

        `processes` read (default: one a core, at most 8). Raises CorpusBusy, DiskFull, and before anything
        is read SpeechUnavailableError.
        """
        from whenabouts.index.build import build

        if processes is not None and processes < 1:
            raise UsageError(f"{processes} reader processes: give 1 or more")
        speech = self._speech(plan)
        with self.writing():
            self._registry.declare(*_made_with(request, plan))
            summary = build(
                self._store,
                plan,
                request.encoders,
                speech,
                processes=processes or min(available_cores(), _MOST_PROCESSES),
                progress=progress,
            )
            self._finish_run(summary, _steps(plan, progress))
        summary.notes.extend(plan.notes)
        summary.searchable = sum(stream.clips for stream in self._store.stats().streams.values())
        return summary

    def _speech(self, plan: Plan) -> Speech:
        """Speech recognition as the plan wants it; what is missing for it is told before the run."""
        from whenabouts.video import speech

        model = plan.wanted.transcribe
        if model and any(work.task.words and work.task.kind == "media" for work in plan.work):
            speech.check_available(model)
        return Speech(self._transcripts, model, speech.transcribe)

    def _finish_run(self, summary: Summary, tell: Callable[[str, float], None]) -> None:
        """Upkeep and calibration: what is due, unless the run was told to stop."""
        if summary.interrupted:
            return
        try:
            tell("merging and indexing what is new", 0.0)
            self._store.optimize()
            self._transcripts.tidy()
            self._calibrate(partial(tell, "measuring what unrelated questions score"))
        except KeyboardInterrupt:
            # Both are made up for at the end of the next run.
            summary.interrupted = True

    def remove(self, *videos: str, wait: bool = False) -> list[Video]:
        """Take videos out by id, file name or path; the files are left alone. Returns what was taken out."""
        with self.writing(wait=wait):
            records = {record.video_id: record for record in map(self.resolve, videos)}
            self._store.remove_videos(list(records))
            self._transcripts.forget([record.content_hash for record in records.values()])
        return [_video(record) for record in records.values()]

    def calibrate(
        self,
        queries: str | os.PathLike[str] | None = None,
        *,
        made: int = CALIBRATING_QUESTIONS,
        wait: bool = False,
        progress: Callable[[float], None] = lambda share: None,
    ) -> Report:
        """Measure anew how often the three answers are wrong, and keep it with the corpus.

        `queries` is a file of JSON lines with `query`, `video`, `start` and `end`; without one, at most
        `made` questions are made of what is said. `progress` hears which share is done.
        Raises UsageError for a corpus that is empty and for a file that is not as it should be.
        """
        from whenabouts.calibration import measuring
        from whenabouts.calibration.questions import read_questions

        if made < 0:
            raise UsageError(f"{made} questions: give 0 or more")
        with self.writing(wait=wait):
            if not self._store.streams:
                raise UsageError(
                    f"{self.location} is empty; put something in with `whenabouts index PATH… --corpus`"
                )
            known = read_questions(Path(queries), self._id_and_duration) if queries else None
            return measuring.measure(
                self._store, self._registry.for_queries(), told=progress, known=known, made=made
            )

    def _id_and_duration(self, name: str) -> tuple[str, float | None]:
        record = self.resolve(name)
        return record.video_id, record.duration

    # Asking --------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        within: str | Sequence[str] = (),
        streams: str | Sequence[str] = (),
        min_confidence: float = 0.0,
        after: str | datetime | None = None,
        before: str | datetime | None = None,
        where: str | Sequence[str] = (),
        model: str | os.PathLike[str] | Trained | None = None,
        retriever: str | os.PathLike[str] | Trained | None = None,
        segments: float | None = None,
    ) -> SearchResult:
        """At most `k` moments for a sentence, best first, and whether there is an answer at all.

        `within` are videos by id, file name or path; `streams` leaves only these; `after` (included) and
        `before` (excluded) are dates of recording; `where` are conditions such as "camera=drone*". `model`
        is a trained system that finds the moments: a folder, a hub's name or an object. On first use, and
        when videos have come or changed, it encodes them (see `encode`). `retriever` is another one that
        chooses the videos for it, in place of the one that a staged run names. `segments` (seconds, such as
        4) is for long videos: pieces of that length are chosen, and the model looks into these.
        """
        self._store.refresh()
        if model is not None and streams:
            raise UsageError("a trained system searches its own streams; leave out the streams, or the model")
        chosen = self._filter(_listed(within), after, before, _listed(where))
        searcher = self.searcher()
        if model is None and retriever is not None:
            raise UsageError(
                "a retriever chooses videos for a trained system; name that as well (--model, model=)"
            )
        if model is None and segments is not None:
            raise UsageError("segments are chosen for a trained system; name that as well (--model, model=)")
        finder = None if model is None else self._way(model, retriever, segments)
        return searcher.search(
            query,
            k=k,
            filter=chosen,
            streams=_listed(streams),
            min_confidence=min_confidence,
            model=finder,
        )

    def answers(
        self,
        queries: Annotations,
        *,
        show: Callable[[SearchResult], None] = lambda result: None,
        **how: Any,
    ) -> CorpusRun:
        """The answers to many queries as a run, which `whenabouts.evaluate` and `whenabouts.formats` take.

        `how` are the arguments of `search`, which answers each query when the run is read; `show` hears of
        each answer. Videos are called as `queries` (`formats.queries.read_queries`) call theirs, where these
        are ids, paths or file names of ours. Raises UsageError where such a name fits several.
        """
        from whenabouts.corpus_run import CorpusRun, names_of

        def ask(text: str) -> SearchResult:
            result = self.search(text, **how)
            show(result)
            return result

        self._store.refresh()
        called = names_of(self._store.videos(), queries.videos, self.location)
        return CorpusRun(queries.name, queries.queries, ask, called)

    def encode(
        self,
        model: str | os.PathLike[str] | Trained,
        retriever: str | os.PathLike[str] | Trained | None = None,
        *,
        segments: float | None = None,
        wait: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Encode with a trained system what is new or changed since it last did; how many videos it holds.

        What its retriever keeps of videos is made as well (of a staged run, or the one named). With
        `segments` (seconds) it is what a search by such segments needs, and nothing of whole videos.
        `progress` is told how many videos are done, and of how many. Raises CorpusBusy while another indexer
        works here, unless `wait`; EncoderMismatch where the streams were made by other encoders than those
        that the system was trained with.
        """
        self._store.refresh()
        finder = self._way(model, retriever, segments)
        return finder.prepare(wait=float("inf") if wait else 0.0, progress=progress)

    def has_segments(
        self,
        model: str | os.PathLike[str] | Trained,
        segments: float,
        retriever: str | os.PathLike[str] | Trained | None = None,
    ) -> bool:
        """Whether segments of so many seconds were encoded for a trained system (see `encode`).

        It does not matter whether videos have come or changed since. Raises UsageError as `search` does.
        """
        self._store.refresh()
        return self._segment_finder(model, retriever, segments).is_kept

    def why(self, query: str, moment: str | Moment, k: int = 10) -> Why:
        """Why a known moment is, or is not, among the first `k` answers to a query."""
        from whenabouts.why import explain

        self._store.refresh()
        return explain(self.searcher(), query, self._moment(moment), k)

    def explain(
        self,
        query: str,
        model: str | os.PathLike[str] | Trained,
        *,
        other: str | os.PathLike[str] | Trained | None = None,
        retriever: str | os.PathLike[str] | Trained | None = None,
        video: str | None = None,
        moment: str | Moment | None = None,
        k: int = 5,
    ) -> Explanation:
        """What a trained system (and another) made of a query: its words, borders, and `k` best moments.

        Borders are told along `video`; by default that of `moment`, the known truth, else of the best
        answer. `retriever` chooses the videos for `model`. Raises UsageError where nothing was found and no
        video is named.
        """
        from whenabouts.explanation import Explanation, ranked_of
        from whenabouts.search import checked_query

        self._store.refresh()
        words, _ = checked_query(query, k, 0.0)
        truth = () if moment is None else (self._moment(moment),)
        searcher, finders = self.searcher(), [self._finder(model, retriever)]
        finders += [] if other is None else [self._finder(other)]
        found = [finder.find(words, k, None, searcher) for finder in finders]
        known = [one.moment.video_id for answers in found for one in answers.moments]
        chosen = (
            self.resolve(video).video_id
            if video
            else next(iter([*(t.video_id for t in truth), *known]), None)
        )
        if chosen is None:
            raise UsageError(f"{finders[0].name} finds nothing for {words!r}; name a video")
        seconds = {
            record.video_id: record.duration for record in self._store.videos(sorted({chosen, *known}))
        }
        told = tuple(
            finder.explained(words, chosen, answers, ranked_of(answers.moments, seconds, truth))
            for finder, answers in zip(finders, found, strict=True)
        )
        return Explanation(words, "", chosen, seconds.get(chosen), truth, told)

    def searcher(self) -> Searcher:
        """The way of a query on this corpus, with its encoders loaded."""
        from whenabouts.calibration import measuring
        from whenabouts.search import Searcher

        streams = self._store.streams
        if not streams:
            raise UsageError(
                f"{self.location} is empty; put something in with `whenabouts index PATH… --corpus`"
            )
        known = measuring.load(self._store)
        if self._searcher is None or self._asked != (streams, known):
            self._searcher = Searcher(
                self._store,
                self._registry.for_queries(),
                known.scales,
                known.chances,
                known.thresholds,
                known.rates,
            )
            self._asked = (streams, known)
        return self._searcher

    def _finder(
        self,
        model: str | os.PathLike[str] | Trained,
        retriever: str | os.PathLike[str] | Trained | None = None,
    ) -> TrainedSearch:
        """A trained system on this corpus; opened again where its files or the streams have changed."""
        from whenabouts.trained.search import open_search

        loaded, name = self._loaded(model, retriever)
        state = (loaded, self._store.streams)
        known = self._finders.get(name)
        if known is None or known[0] != state:
            known = self._finders[name] = (state, open_search(self._store, self._registry, loaded))
        return known[1]

    def _way(
        self,
        model: str | os.PathLike[str] | Trained,
        retriever: str | os.PathLike[str] | Trained | None,
        segments: float | None,
    ) -> TrainedSearch | SegmentSearch:
        """A trained system on whole videos, or on segments of so many seconds."""
        if segments is None:
            return self._finder(model, retriever)
        return self._segment_finder(model, retriever, segments)

    def _segment_finder(
        self,
        model: str | os.PathLike[str] | Trained,
        retriever: str | os.PathLike[str] | Trained | None,
        seconds: float,
    ) -> SegmentSearch:
        """The same, for a search by segments of so many seconds."""
        from whenabouts.trained.segment_search import open_segment_search

        loaded, name = self._loaded(model, retriever)
        state, name = (loaded, self._store.streams), f"{name}\0{float(seconds)}"
        known = self._segment_finders.get(name)
        if known is None or known[0] != state:
            opened = open_segment_search(self._store, self._registry, loaded, seconds)
            known = self._segment_finders[name] = (state, opened)
        return known[1]

    def _loaded(
        self,
        model: str | os.PathLike[str] | Trained,
        retriever: str | os.PathLike[str] | Trained | None,
    ) -> tuple[LoadedModel, str]:
        """A trained system, with the one that chooses for it, and what tells the pair from others."""
        from whenabouts.trained.loaded import load_model

        given, name = _named(model)
        chooser, chooser_name = (None, "") if retriever is None else _named(retriever)
        name = f"{name}\0{chooser_name}"
        loaded = self._models.get(name)
        if loaded is None or not loaded.is_current:
            loaded = self._models[name] = load_model(given, chooser)
        return loaded, name

    # Looking -------------------------------------------------------------------------------------

    def videos(self) -> list[Video]:
        """All videos, by id; files that could not be read are not among them."""
        self._store.refresh()
        return [_video(record) for record in self._store.videos() if record.streams]

    @property
    def version(self) -> int:
        """A number that grows with every change of the list of videos, as far as this handle has seen."""
        return self._store.version

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams there are, none in an empty corpus."""
        return tuple(sorted(self._store.streams))

    def records(self) -> list[VideoRecord]:
        """The ledger rows of all videos by id; files that could not be read are not among them."""
        return [record for record in self._store.videos() if record.state == "done"]

    def record(self, video_id: str) -> VideoRecord | None:
        """The ledger row of a video by its id alone: no names, no paths. None where there is none."""
        try:
            check_video_id(video_id)
        except UsageError:
            return None
        record = self._store.video(video_id)
        return record if record is not None and record.state == "done" else None

    def words(self, record: VideoRecord, moment: Moment | None = None) -> tuple[Line, ...]:
        """The spoken passages of a video, or of a moment of it."""
        from whenabouts.shown import show

        return show(self._store, record, moment).words

    def curves(self, query: str, video: str, streams: str | Sequence[str] = ()) -> Curves:
        """What each clip of a video scores for a query, stream by stream, and the moments found on that."""
        from whenabouts.curves import curves_of

        self._store.refresh()
        return curves_of(self.searcher(), query, self.resolve(video).video_id, _listed(streams))

    def resolve(self, name: str) -> VideoRecord:
        """The ledger row of a video by its id, path, file name, or file name without its ending.

        Raises UsageError for a name that fits none, or several (it lists them).
        """
        records = {record.video_id: record for record in self._store.videos()}
        fitting = VideoNames((key, record.path) for key, record in records.items()).fitting(name)
        if not fitting:
            raise UsageError(f"{self.location} has no video {name!r}; `whenabouts show` lists them")
        if len(fitting) > 1:
            ids = ", ".join(fitting[:5])
            raise UsageError(f"{name!r} fits {len(fitting)} videos of {self.location}: {ids}; give the id")
        return records[fitting[0]]

    def show(self, what: str) -> Shown:
        """What is known of a video, or of a moment given as VIDEO@START-END."""
        from whenabouts.shown import show

        self._store.refresh()
        try:
            return show(self._store, self.resolve(what), None)
        except UsageError:
            if "@" not in what:
                raise
        moment = self._moment(what)
        record = self._store.video(moment.video_id)
        assert record is not None
        return show(self._store, record, moment)

    def export_features(self, stream: str, clip_seconds: float, path: str | os.PathLike[str]) -> Exported:
        """Write a stream on an even grid as a feature store, for a training on this corpus.

        Raises UsageError for a stream that is not there, has no vectors or clips of another length.
        """
        from whenabouts.own_features import export_stream

        self._store.refresh()
        return export_stream(self._store, stream, clip_seconds, Path(path))

    def stats(self) -> Stats:
        """Numbers of the corpus."""
        from whenabouts.calibration import measuring
        from whenabouts.shown import Stats

        self._store.refresh()
        known = measuring.load(self._store)
        return Stats.of(self.location, self._store, known.chances, known.rates)

    def check_streams(self) -> list[tuple[str, str, str, str]]:
        """For each stream: name, what made it, what is wrong with searching it ("": nothing), the remedy."""
        return self._registry.check()

    # Inside --------------------------------------------------------------------------------------

    def _filter(
        self,
        within: Sequence[str],
        after: str | datetime | None,
        before: str | datetime | None,
        where: Sequence[str],
    ) -> Filter:
        return make_filter([self.resolve(video).video_id for video in within], after, before, where)

    def _moment(self, moment: str | Moment) -> Moment:
        if isinstance(moment, Moment):
            return replace(moment, video_id=self.resolve(moment.video_id).video_id)
        video, start, end = parse_moment(moment)
        return Moment(self.resolve(video).video_id, start, end)

    def _calibrate(self, told: Callable[[float], None]) -> None:
        """Ask the corpus unrelated sentences, if it has changed much since that was last done."""
        from whenabouts.calibration import measuring

        if measuring.is_due(self._store, measuring.load(self._store)):
            told(0.0)
            measuring.measure(self._store, self._registry.for_queries(), told=told)


def _steps(plan: Plan, progress: Callable[[Progress], None] | None) -> Callable[[str, float], None]:
    """What tells `progress` of the steps that come after a plan's files, and how far each is."""
    from whenabouts.index.progress import Progress

    def tell(step: str, fraction: float) -> None:
        if progress is not None:
            progress(Progress.after_files(step, fraction, len(plan.work)))

    return tell


def _video(record: VideoRecord) -> Video:
    return Video(record.video_id, record.duration, record.path, dict(record.metadata))


def _made_with(request: Request, plan: Plan) -> tuple[TextEncoder | None, ImageEncoder | None, float]:
    """What a run's streams are made with: encoders, and how long a picture clip is."""
    pictures = plan.wanted.pictures
    seconds = pictures.clip_seconds if pictures else DEFAULT_CLIP_SECONDS
    return request.encoders.text, request.encoders.vision if pictures else None, seconds


def _speech_model(name: str | None) -> str | None:
    """The name of a speech model, a folder by its whole path; SpeechUnavailableError where none can run."""
    if name is None:
        return None
    from whenabouts.video.speech import SpeechUnavailableError, why_unavailable

    if (reason := why_unavailable(name)) is not None:
        raise SpeechUnavailableError(reason)
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _named(model: str | os.PathLike[str] | Trained) -> tuple[str | Trained, str]:
    """A trained system as it is opened, and what tells it from others."""
    from whenabouts.models.trained import Trained

    if isinstance(model, Trained):
        return model, f"python:{id(model)}"
    return os.fspath(model), os.fspath(model)


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else tuple(names)
