"""A corpus of one's own videos: open it, add and remove files, search.

Other questions are functions that take a corpus: `indexing.plan_index`, `why.why`, `curves.curves_of`,
`calibration.calibrate`, `explain.explain`.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts import plugins
from whenabouts.budget import check_budget
from whenabouts.encoder_registry import EncoderRegistry, StreamCheck
from whenabouts.export.moments import FileMoment, moment_of_record
from whenabouts.index.absent import RemovedFile, as_removed, relocated, removed_with
from whenabouts.index.filters import Filter, Scope, make_filter
from whenabouts.index.records import VideoRecord, check_video_id, unambiguous
from whenabouts.index.side_by_side import SideBySide
from whenabouts.index.store import Store
from whenabouts.index.transcripts import Transcripts
from whenabouts.people.naming import People
from whenabouts.search import question_answers
from whenabouts.search.example import example_of
from whenabouts.search.library import LibraryMemory, narrowed
from whenabouts.search.options import SearchOptions
from whenabouts.search.phrases import MARK
from whenabouts.search.place_search import search_words, with_note_on_quotes
from whenabouts.search.question_scopes import Names
from whenabouts.search.questions import NOT_IN_ORDER, read
from whenabouts.search.searcher import Searcher
from whenabouts.search.stored_calibration import load_calibration
from whenabouts.search.understand import NOT_ENCODED, EncodedTexts, checked_query, words_of_query
from whenabouts.shown import Line, Shown, Stats, lines_of, show, show_track
from whenabouts.streams import stream as stream_named
from whenabouts.times import parse_moment
from whenabouts.types import Moment, UsageError, Video
from whenabouts.video.frame_times import frame_rate
from whenabouts.video.objects import source_path
from whenabouts.workplace.collections import Collections, Item
from whenabouts.workplace.database import Database
from whenabouts.workplace.searches import SavedSearches

if TYPE_CHECKING:
    from whenabouts.checking import Picture
    from whenabouts.encoders.protocol import TextEncoder
    from whenabouts.index.lock import Holder
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress, Summary
    from whenabouts.search.finder import Finder, Finders, System
    from whenabouts.search.library import Facet, Library, Sort
    from whenabouts.search.search_result import SearchResult

# Threads of a server share what is measured.
_MEASURING = threading.Lock()


class Corpus:
    """Videos on disk that can be searched.

    `location` is a folder or an object store's URI such as "s3://bucket/prefix". A place without a corpus
    is an error (NotACorpus), unless `create` is true: then one is made there. Several locations are searched
    side by side, as if all videos were in one corpus; they are written one by one. `encoders` are objects to
    use for streams that were made with them; all others are opened by the name that the corpus keeps.

    >>> corpus = Corpus("my.corpus", create=True)          # doctest: +SKIP
    >>> corpus.add("videos/")                              # doctest: +SKIP
    >>> corpus.search("a red flower opens", k=10).moments  # doctest: +SKIP
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        create: bool = False,
        encoders: Iterable[TextEncoder] = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        places = [location] if isinstance(location, str | os.PathLike) else location
        self.places = tuple(os.fspath(place) for place in places)
        self.location = ", ".join(self.places)
        self.store = _opened(self.places, create, storage_options)
        self.encoders = EncoderRegistry(self.store, encoders)
        self.transcripts = Transcripts(self.places[0], storage_options)
        self._searcher: tuple[int, Searcher] | None = None
        self._loaded: dict[str, dict[str, Any]] = {}
        self._models: dict[tuple[str, str], Any] = {}
        self._finders: dict[str, Finders] = {}
        self._people: People | None = None
        self._library = LibraryMemory()
        self._names: Names | None = None
        self.today: Callable[[], date] = date.today
        """The day that "last week" is counted from."""

    def beside(self) -> Corpus:
        """Another handle on the same corpus for another thread; encoders and loaded systems are shared.

        A handle follows what is written by moving its tables to the newest version. Were one shared by
        threads, a search could find its clips in one version and read them from another.
        """
        twin = copy.copy(self)
        twin.store = self.store.beside()
        twin.encoders = self.encoders.beside(twin.store)
        twin._searcher = twin._people = None
        twin._finders = {}
        return twin

    def refresh(self) -> None:
        """See what has been written since; searching does so by itself."""
        self.store.refresh()

    def drop_kept(self) -> None:
        """Let go of clips, rows and words that are kept in memory, for all handles; they are read again."""
        self.store.drop_kept()
        self._library.drop()

    # Adding and removing -------------------------------------------------------------------------

    def add(
        self,
        *paths: str | os.PathLike[str],
        processes: int | None = None,
        ray: str | None = None,
        wait: bool = False,
        progress: Callable[[Progress], None] | None = None,
        planned: Callable[[Plan], None] | None = None,
        **options: Any,
    ) -> Summary:
        """Index files and folders; what came of it, `left_out` too: paths that are not there, and why.

        `options` are those of `indexing.plan_index`: shots, transcribe, metadata, metadata_file, retry,
        language, exclude, follow, again, prune, or_without, without, and what the streams take (`vision` and
        `text` are encoders by name, folder or as objects; clip_seconds). `ray` names a cluster that reads and
        encodes (`indexing.run_index`). `planned` gets the plan before it is carried out. Raises CorpusBusy
        while another indexer works here, unless `wait`.
        """
        from whenabouts.indexing import plan_index, run_index

        with self.writing(wait=wait):
            plan = plan_index(self, paths, **options)
            if planned is not None:
                planned(plan)
            return run_index(self, plan, processes=processes, ray=ray, progress=progress)

    @contextlib.contextmanager
    def writing(
        self, *, wait: bool = False, on_wait: Callable[[Holder | None], None] | None = None
    ) -> Iterator[None]:
        """Be the one who may write: a plan made in here still fits the corpus when it is run.

        Raises CorpusBusy, saying who is at work, or waits; then `on_wait` is called with who is waited for.
        """
        with self.store.writing(wait=float("inf") if wait else 0.0, on_wait=on_wait):
            yield

    def remove(self, *videos: str, wait: bool = False) -> list[Video]:
        """Take videos out by id, file name or path; the files are left alone. Returns what was taken out.

        They do not come back when their folder is indexed again, unless with `again`.
        """
        command = f"remove {' '.join(map(repr, videos))}"
        with self.writing(wait=wait):
            finished = self.store.finished_erasing(command)
            if finished is not None:
                return [Video(*row) for row in finished]
            records = {record.video_id: record for record in self.resolve_all(videos)}
            removed = [_video(record) for record in records.values()]
            answer = [[video.id, video.duration, video.path, dict(video.metadata)] for video in removed]
            self.erase_videos(list(records.values()), map(as_removed, records.values()), command, answer)
        return removed

    def relocate(self, video: str, path: str | os.PathLike[str], *, wait: bool = False) -> Video:
        """Tell the corpus where the file of a video is now; nothing is read or encoded again.

        Raises UsageError where the old file is still there, where the new one is missing, belongs to another
        video or has other content.
        """
        store = self.store.holding(self.resolve(video).video_id)
        with store.writing(wait=float("inf") if wait else 0.0):
            record = relocated(store.ledger(), self.resolve(video), path)
            store.put_records([record])
        return _video(record)

    # Searching -----------------------------------------------------------------------------------

    def search(
        self,
        query: str = "",
        k: int | None = None,
        *,
        options: SearchOptions | None = None,
        encoded: EncodedTexts | None = None,
        **changes: Any,
    ) -> SearchResult:
        """At most `k` moments for a sentence, best first, and whether there is an answer at all.

        With `like` they are moments like a picture or another moment, and the sentence may be left out.

        What stands in quotation marks must be said as it is; with `all` every place where all is said is
        listed, in order of time. Rules read questions such as "the first time a bell rings in lecture-3"
        (`search/questions.py`); `understood` of the answer says which. `changes` are fields of
        `SearchOptions` (within, streams, min_confidence, after, before, where, model, retriever, segments,
        all, skip, like, check, check_best, check_seconds, rerank, rerank_seconds, rewrite,
        rewrite_seconds, literal, best), which replace those of `options`.
        `encoded` are queries that were encoded together (`encoded`), with or without this one.
        """
        changes |= {} if k is None else {"k": k}
        options = replace(options or SearchOptions(), **changes)
        if options.check is None and options.rerank is None and options.rewrite is None:
            return self._search(query, options, encoded)
        return self.search_with_models(query, options, encoded)

    def search_with_models(
        self,
        query: str,
        options: SearchOptions,
        encoded: EncodedTexts | None = None,
        *,
        picture: Picture | None = None,
    ) -> SearchResult:
        """The answer of a search with models, in turn: rewriter, reranker, checker.

        `picture` takes frames for them from files (`checking.picture_of` without one).
        """
        from whenabouts.checkers import open_checker, open_reranker, open_rewriter
        from whenabouts.checking import checked, picture_of
        from whenabouts.rerank import MOST_RERANKED, reranked
        from whenabouts.rewrite import with_rewrites

        if not query.strip():
            raise UsageError("this model holds moments against words; say in words what they are to show")
        checked_query(query, options.count, options.min_confidence)
        rewriter = self._model(open_rewriter, options.rewrite)
        reranker = self._model(open_reranker, options.rerank)
        checker = self._model(open_checker, options.check)
        count, by_streams = options.count, options.model is None
        if rewriter is not None or reranker is not None:
            count, by_streams = max(options.count, MOST_RERANKED), False
        wider = replace(options, k=count)
        result = self._search(query, wider, encoded)
        if rewriter is not None:
            as_it_stands = replace(wider, literal="all")
            result = with_rewrites(
                result,
                rewriter,
                lambda other: self._search(other, as_it_stands, None),
                count=options.count if reranker is None else count,
                seconds=options.rewrite_seconds,
                min_confidence=options.min_confidence,
            )
        if reranker is not None:
            result = reranked(
                self,
                result,
                reranker,
                count=options.count,
                seconds=options.rerank_seconds,
                picture=picture or picture_of,
            )
        if checker is None:
            return result
        return checked(
            self,
            result,
            checker,
            best=options.check_best,
            seconds=options.check_seconds,
            min_confidence=options.min_confidence,
            by_streams=by_streams,
            picture=picture or picture_of,
        )

    def encoded(self, queries: Iterable[str]) -> EncodedTexts:
        """Queries as the streams of this corpus compare them: each encoder is called once for all of them.

        An index of a large stream that is kept in memory is asked once for all of them, too.
        """
        self.store.refresh()
        return self.searcher().understanding.made_ready([words_of_query(query) for query in queries])

    def _search(self, query: str, options: SearchOptions, encoded: EncodedTexts | None) -> SearchResult:
        """What the search itself finds, all of it in one state of the corpus."""
        while True:
            check_budget()
            self.store.refresh()
            state = self.store.moves
            result = self._search_once(query, options, encoded)
            if self.store.moves == state:
                return result

    def _search_once(self, query: str, options: SearchOptions, encoded: EncodedTexts | None) -> SearchResult:
        """The answer to a query as rules read it (`search/questions.py`), or as it stands."""
        given, records = self._filter(options), self.store.ledger().records
        off = (*options.literal, *(NOT_IN_ORDER if options.all or options.like is not None else ()))
        if self._names is None or self._names.records is not records:
            self._names = Names(records)
        question = read(query, self._names, self.today(), off) if isinstance(query, str) else None
        if question is None:
            return self._search_plain(query, options, encoded, given)

        def ask(text: str, options: SearchOptions, videos: Sequence[str] | None) -> SearchResult:
            chosen = given if videos is None else replace(given or Filter(), within=tuple(videos))
            return self._search_plain(text, options, encoded, chosen)

        videos = question_answers.narrowed(question.scopes, given, records)
        if videos == []:
            result = self.searcher().nothing(query, options.streams)
        else:
            result = question_answers.answered(question, options, videos, ask)
        return replace(result, query=unambiguous(query), understood=question.rules)

    def _search_plain(
        self, query: str, options: SearchOptions, encoded: EncodedTexts | None, chosen: Filter | None
    ) -> SearchResult:
        system, example, has_quotes = None, None, bool(MARK.search(str(query)))
        searcher = self.searcher()
        if options.like is not None:
            example = example_of(self, options.like)
        elif options.model is not None:
            system = self.finder(options.model, options.retriever, options.segments)
        elif options.all or has_quotes:
            result = search_words(searcher, query, options, chosen)
            if result is not None:
                return result
        result = searcher.search(
            query,
            k=options.count,
            filter=chosen,
            streams=options.streams,
            min_confidence=options.min_confidence,
            model=system,
            like=example,
            encoded=NOT_ENCODED if encoded is None else encoded.at(self.store.description_version),
        )
        return with_note_on_quotes(result) if has_quotes and (system or example) else result

    def _model(self, open_named: Callable[[str], Any], named: Any) -> Any:
        """A model of `checkers`, opened by its name once for all searches of this corpus; None for None."""
        if not isinstance(named, str):
            return named
        key = open_named.__name__, named
        if key not in self._models:
            self._models[key] = open_named(named)
        return self._models[key]

    def answers(
        self,
        queries: Any,
        *,
        options: SearchOptions | None = None,
        show: Callable[[SearchResult], None] = lambda result: None,
        **changes: Any,
    ) -> Any:
        """The answers to many queries as a run, which `whenabouts.evaluate` takes.

        `options` and `changes` are those of `search`, which answers each query when the run is read, without
        rules that read it; `show` is called with each answer. Videos are called as `queries`
        (`formats.queries.read_queries`) call theirs, where these are ids, paths or file names of ours. Raises
        UsageError where such a name fits several.
        """
        files = plugins.only("query_files", "a run over many queries", "bench")

        def answer(text: str) -> SearchResult:
            result = self.search(text, options=options, **{**changes, "literal": "all"})
            show(result)
            return result

        self.store.refresh()
        return files.run_of(queries, answer, self.store.videos(), self.location)

    def encode(
        self,
        model: System,
        retriever: System | None = None,
        *,
        segments: float | None = None,
        wait: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Encode with a trained system what is new or changed since it last did; how many videos it holds.

        What its retriever keeps of videos is made as well (of a staged run, or the one named). With
        `segments` (seconds) it is what a search by such segments needs, and nothing of whole videos.
        `progress` is called with how many videos are done, and of how many. Raises CorpusBusy while another
        indexer works here, unless `wait`; EncoderMismatch where the streams were made by other encoders than
        those that the system was trained with.
        """
        self.store.refresh()
        system = self.finder(model, retriever, segments)
        return system.prepare(wait=float("inf") if wait else 0.0, progress=progress)

    def has_segments(self, model: System, segments: float, retriever: System | None = None) -> bool:
        """Whether segments of so many seconds were encoded for a trained system (see `encode`).

        It does not matter whether videos have come or changed since. Raises UsageError as `search` does.
        """
        self.store.refresh()
        return self.finder(model, retriever, segments).is_kept

    def searcher(self) -> Searcher:
        """The way of a query on this corpus, its encoders loaded. Raises UsageError where it is empty."""
        version = self.store.description_version
        if self._searcher is None or self._searcher[0] != version:
            self.check_filled()
            usable, broken = self.encoders.usable()
            if len(self.places) > 1:
                self._measure_together(usable)
                version = self.store.description_version
            self._searcher = (
                version,
                Searcher(self.store, usable, load_calibration(self.store), broken=broken),
            )
        return self._searcher[1]

    def _measure_together(self, encoders: dict[str, TextEncoder]) -> None:
        """Measure what scores mean over several corpora together: what each of them knows is of itself."""
        from whenabouts.calibration.measuring import is_due, measure

        with _MEASURING:
            if is_due(self.store, load_calibration(self.store)):
                measure(self.store, encoders)

    def finder(self, model: System, retriever: System | None = None, segments: float | None = None) -> Finder:
        """A trained system, or what else a plugin opens by that name, on this corpus; kept open.

        Raises UsageError for several corpora side by side, and where no installed package knows the model.
        """
        if len(self.places) > 1:
            raise UsageError(
                "a trained system searches one corpus; name one of them, or leave out the system "
                "(--model, model=)"
            )
        plugins.only("moment_finders", "a search with a trained system (--model, model=)", "research")
        kinds = sorted(plugins.loaded("moment_finders").items(), key=lambda item: item[1].ORDER)
        name, kind = next((name, kind) for name, kind in kinds if kind.recognises(model))
        if name not in self._finders:
            self._finders[name] = kind.on(self.store, self.encoders, self._loaded.setdefault(name, {}))
        return self._finders[name].search(model, retriever, segments)

    @property
    def people(self) -> People:
        """Who speaks and who is seen: listed, named, merged, forgotten."""
        self.store.refresh()
        if self._people is None:
            self._people = People(self.store)
        return self._people

    @property
    def collections(self) -> Collections:
        """Moments that people put together. Raises UsageError for a corpus on an object store."""
        return Collections(Database(self.store.place))

    @property
    def saved_searches(self) -> SavedSearches:
        """Questions that people keep. Raises UsageError for a corpus on an object store."""
        return SavedSearches(Database(self.store.place))

    def moments_of(self, items: Iterable[Item]) -> tuple[list[FileMoment], list[str]]:
        """Items of a collection as moments of files with what is said in them, and a note on each that has
        no video here any more."""
        moments: list[FileMoment] = []
        missing = []
        for item in items:
            record = self.record(item.video_id)
            if record is None:
                missing.append(f"{item.video_id} is not in the corpus any more, so its moment is left out")
                continue
            text = item.note or " ".join(line.text for line in self.words(record, item.moment))
            moment = moment_of_record(record, item.start, item.end, len(moments) + 1)
            moments.append(replace(moment, text=text, query=item.query, note=item.note, tags=item.tags))
        return moments, missing

    def remove_stream(self, name: str, *, wait: bool = False) -> None:
        """Take a stream out with all its clips and vectors, and the files that hold them.

        Raises UsageError for one that is not there. Later runs make it again only if they are told to.
        """
        command = f"remove stream {name}"
        with self.writing(wait=wait):
            if name not in self.store.streams and self.store.finished_erasing(command) is not None:
                return
            self.store.stream(name)
            self.store.erase({}, self.people.names_without(name), dropped=[name], command=command)

    def check_filled(self) -> None:
        """Raise UsageError for a corpus without any stream."""
        if not self.store.streams:
            raise UsageError(
                f"{self.location} is empty; put something in with "
                f"`whenabouts index PATH… --corpus {self.location}`"
            )

    # Describing -------------------------------------------------------------------------------------

    def videos(
        self,
        *,
        where: Sequence[str] = (),
        after: str | datetime | None = None,
        before: str | datetime | None = None,
        sort: Sort = "id",
        descending: bool = False,
    ) -> list[Video]:
        """The videos, by id (2 before 10); files that could not be read are not among them.

        `where`, `after` and `before` narrow them as in `search`. `sort` is one of "id", "name", "date",
        "length", "added".
        """
        self.store.refresh()
        library, by_id = self.library, self.store.ledger().by_id
        rows = library.rows(make_filter((), after, before, where), sort, descending=descending)
        records = (by_id[video_id] for video_id in library.ids_of(rows.tolist()))
        return [_video(record) for record in records if record.streams]

    def facets(
        self,
        *,
        where: Sequence[str] = (),
        after: str | datetime | None = None,
        before: str | datetime | None = None,
    ) -> list[Facet]:
        """What the videos share: corpora, folders, streams, languages, states, metadata with few values.

        `where`, `after` and `before` narrow the videos as in `search`.
        """
        self.store.refresh()
        return self.library.facets(make_filter((), after, before, where))

    @property
    def library(self) -> Library:
        """The columns of the ledger as last read: to narrow, sort and count many videos."""
        return self._library.of(self.store)

    @property
    def version(self) -> int:
        """A number that grows with every change of the list of videos, as far as this handle has seen."""
        return self.store.version

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams there are, none in an empty corpus."""
        return tuple(sorted(self.store.streams))

    def records(self) -> list[VideoRecord]:
        """The ledger rows of all videos, sorted as `videos`; files that could not be read are left out."""
        return list(self.store.ledger().listed)

    def record(self, video_id: str) -> VideoRecord | None:
        """The ledger row of a video by its id alone: no names, no paths. None where there is none."""
        try:
            check_video_id(video_id)
        except UsageError:
            return None
        record = self.store.video(video_id)
        return record if record is not None and record.state != "failed" else None

    def words(self, record: VideoRecord, moment: Moment | None = None) -> tuple[Line, ...]:
        """The spoken passages of a video, or of a moment of it."""
        return tuple(chain(*lines_of(self.store, record, moment, spoken=True).values()))

    def resolve(self, name: str) -> VideoRecord:
        """The ledger row of a video by its id, path, file name, or file name without its ending.

        Raises UsageError for a name that fits none, or several (it lists them).
        """
        return self.resolve_all([name])[0]

    def resolve_all(self, names: Iterable[str], *, by_path: bool = True) -> list[VideoRecord]:
        """The ledger row of each name, as `resolve` gives it; the ledger is read once at most.

        Where not `by_path`, paths are no names.
        """
        ledger = self.store.ledger()
        ways = ((name, ledger.names.fitting(name, by_path=by_path)) for name in names)
        return [ledger.by_id[self._only(name, fitting)] for name, fitting in ways]

    def _only(self, name: str, fitting: Sequence[str]) -> str:
        if not fitting:
            raise UsageError(f"{self.location} has no video {name!r}; `whenabouts show` lists them")
        if len(fitting) > 1:
            ids = ", ".join(fitting[:5])
            raise UsageError(f"{name!r} fits {len(fitting)} videos of {self.location}: {ids}; give the id")
        return fitting[0]

    def show(self, what: str, language: str | None = None) -> Shown:
        """What is known of a video, or of a moment given as VIDEO@START-END.

        With a `language` (such as "de") its words are those of the subtitles in it. Raises UsageError where
        there are none.
        """
        self.store.refresh()
        moment = None
        try:
            record = self.resolve(what)
        except UsageError:
            if "@" not in what:
                raise
            moment = self.moment(what)
            record = self.resolve(moment.video_id)
        shown = show(self.store, record, moment)
        return show_track(shown, self.transcripts.tracks(record.content_hash), language)

    def export_features(self, stream: str, clip_seconds: float, path: str | os.PathLike[str]) -> Any:
        """Write a stream on an even grid as a feature store, for a training on this corpus.

        Raises UsageError for a stream that is not there, has no vectors or clips of another length.
        """
        self.store.refresh()
        return plugins.only("features", "a feature store", "research").export_stream(
            self.store, stream, clip_seconds, Path(path)
        )

    def export_sentences(self, path: str | os.PathLike[str]) -> int:
        """Write what is said as a file of sentences, for a system that reads words (HERO); number of videos.

        Raises UsageError for a corpus without words, and where there is such a file already.
        """
        self.store.refresh()
        sentences = plugins.only("features", "a file of sentences", "research")
        return int(sentences.export_sentences(self.store, Path(path)))

    def stats(self) -> Stats:
        """Numbers of the corpus."""
        from whenabouts.choices import choices_of

        self.store.refresh()
        calibration = load_calibration(self.store)
        return replace(Stats.of(self.location, self.store, calibration), choices=choices_of(self))

    def check_streams(self) -> list[StreamCheck]:
        """Whether each stream can be searched here: what made it, what is wrong, and the remedy."""
        return self.encoders.check()

    # Inside --------------------------------------------------------------------------------------

    def erase_videos(
        self,
        records: Sequence[VideoRecord],
        entries: Iterable[RemovedFile],
        command: str = "",
        answer: Any = None,
    ) -> None:
        """Take videos out, their transcripts, and erase their voice and face vectors from disk.

        `entries` are added to the list of removed files; see `Store.erase` for `command` and `answer`.
        """
        self.transcripts.forget([record.content_hash for record in records])
        held = {name for record in records for name in record.streams if name in self.store.streams}
        personal = {name: () for name in held if stream_named(name).is_personal}
        facts, ids = removed_with(self.store, entries), [record.video_id for record in records]
        self.store.erase(personal, facts, videos=ids, command=command, answer=answer)

    def _filter(self, scope: Scope) -> Filter | None:
        if not (scope.within or scope.after or scope.before or scope.where):
            return None
        videos = [record.video_id for record in self.resolve_all(scope.within)]
        chosen = make_filter(videos, scope.after, scope.before, scope.where)
        return narrowed(chosen, lambda: self.library)

    def moment(self, moment: str | Moment) -> Moment:
        """A moment by its video's id, from VIDEO@START-END with any name that `resolve` takes.

        Times may be time codes (00:01:02:12), counted at the video's own rate from its first frame.
        """
        if isinstance(moment, Moment):
            return replace(moment, video_id=self.resolve(moment.video_id).video_id)
        video, start, end = parse_moment(moment, self.rate_of)
        return Moment(self.resolve(video).video_id, start, end)

    def rate_of(self, video: str) -> Fraction | None:
        """Frames a second of a video, by any name that `resolve` takes."""
        return frame_rate(source_path(self.resolve(video).path))


def _opened(places: Sequence[str], create: bool, storage_options: Mapping[str, str] | None) -> Store:
    """The store of one place, or of several side by side. Raises UsageError for a place named twice."""
    if not places or len(set(places)) < len(places):
        raise UsageError(f"{', '.join(places) or 'no corpus'}: name each corpus once, and one at least")
    if len(places) == 1:
        return Store.open(places[0], create=create, storage_options=storage_options)
    if create:
        raise UsageError("several corpora are searched side by side; make each of them by itself")
    return SideBySide([Store.open(place, storage_options=storage_options) for place in places])


def _video(record: VideoRecord) -> Video:
    return Video(record.video_id, record.duration, record.path, dict(record.metadata))
