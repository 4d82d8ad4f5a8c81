"""A corpus of one's own videos: open it, add and remove files, search.

Other operations are functions that take a corpus: `indexing.plan_index`, `why.why`, `curves.curves_of`,
`calibration.calibrate`, `explain.explain`.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts import plugins
from whenabouts.budget import check_budget
from whenabouts.confidence.common_words import is_term
from whenabouts.encoder_registry import EncoderRegistry, StreamCheck
from whenabouts.export.moments import FileMoment, moment_of_record
from whenabouts.index.absent import RemovedFile, as_removed, copied_files, relocated, removed_with
from whenabouts.index.filters import Filter, Scope, make_filter
from whenabouts.index.folders import remember_folders
from whenabouts.index.lance import folder_of, is_remote
from whenabouts.index.records import VideoNames, VideoRecord, check_video_id, unambiguous
from whenabouts.index.side_by_side import SideBySide
from whenabouts.index.store import Store, digest_of
from whenabouts.index.transcripts import Transcripts
from whenabouts.people.naming import People
from whenabouts.search import question_answers, sounds_alike
from whenabouts.search.example import example_of
from whenabouts.search.library import LibraryMemory, narrowed
from whenabouts.search.options import SearchOptions
from whenabouts.search.phrases import MARK
from whenabouts.search.place_search import search_words, with_note_on_quotes
from whenabouts.search.question_scopes import Names
from whenabouts.search.questions import NOT_IN_ORDER, read
from whenabouts.search.searcher import Searcher
from whenabouts.search.spelling import MISHEARD, Spelling
from whenabouts.search.stored_calibration import load_calibration
from whenabouts.search.understand import NOT_ENCODED, EncodedTexts, checked_query, words_of_query
from whenabouts.shown import Line, Shown, Stats, lines_of, show, show_track
from whenabouts.times import parse_moment
from whenabouts.types import Moment, UsageError, Video
from whenabouts.video.frame_times import frame_rate
from whenabouts.video.objects import source_path
from whenabouts.workplace.cached import erase_cached
from whenabouts.workplace.collections import Collections, Item
from whenabouts.workplace.database import Database
from whenabouts.workplace.searches import SavedSearches

if TYPE_CHECKING:
    from whenabouts.checkers.rewriter import Rewriter
    from whenabouts.checking import Picture
    from whenabouts.encoders.protocol import TextEncoder
    from whenabouts.index.lock import Holder
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress, Summary
    from whenabouts.search.finder import Finder, Finders, System
    from whenabouts.search.library import Facet, Library, Sort
    from whenabouts.search.search_result import SearchResult

_ERASED = "erased"
"""Key of the fact with erased videos and a digest of the command, until their transcripts are erased, too."""


class Corpus:
    """Videos on disk that can be searched.

    `location` is a folder or an object store's URI such as "s3://bucket/prefix". A place without a corpus
    raises NotACorpus, unless `create` is true: then a corpus is created. Several locations are searched side
    by side, as if all videos were in one corpus; each is written separately. `encoders` are objects to use
    for streams made with them; other encoders are opened by the name stored in the corpus.

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
        self._storage_options = storage_options
        self._sounds: sounds_alike.SoundsAlike | None = None
        self._spelling = Spelling()
        self._searcher: tuple[int, Searcher] | None = None
        self._loaded: dict[str, dict[str, Any]] = {}
        self._models: dict[tuple[str, str], Any] = {}
        self._finders: dict[str, Finders] = {}
        self._people: People | None = None
        self._library = LibraryMemory()
        self._names: Names | None = None
        self.cache: Path | None = None
        """The folder of `serve --cache` from which `remove` erases pictures and clips (None: the usual)."""
        self.today: Callable[[], date] = lambda: datetime.now(UTC).date()
        """Returns the day from which "last week" in a question is counted; in UTC, as all dates are."""

    def beside(self) -> Corpus:
        """Another handle on the same corpus for another thread; encoders and loaded systems are shared.

        A handle follows new writes by moving its tables to the newest version. If threads shared one,
        a search could find clips in one version and read them from another.
        """
        twin = copy.copy(self)
        twin.store = self.store.beside()
        twin.encoders = self.encoders.beside(twin.store)
        twin._searcher = twin._people = twin._sounds = None
        twin._finders = {}
        return twin

    def refresh(self) -> None:
        """Read the newest version from now on. Searching does this by itself."""
        self.store.refresh()

    def drop_kept(self) -> None:
        """Drop cached clips, rows and words of all handles; they are read again when needed."""
        self.store.drop_kept()
        self._library.drop()
        self._spelling.drop()

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
        """Index files and folders, and return a summary; its `failed` has the files that could not be read.

        `options` are those of `indexing.plan_index`: shots, transcribe, metadata, metadata_file, retry,
        language, sound_track, exclude, follow, again, prune, or_without, without, and the options of
        streams (`vision` and `text` are encoders by name, folder or as objects; clip_seconds). `ray`
        names a cluster that reads and encodes (`indexing.run_index`). `planned` is called with the plan
        before it is carried out. Raises CorpusBusy while another indexer works here, unless `wait`.
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
        """Hold the writer's lock: a plan made inside still fits the corpus when it is run.

        If another process holds it, raises CorpusBusy; with `wait` calls `on_wait` with the holder and waits.
        """
        with self.store.writing(wait=float("inf") if wait else 0.0, on_wait=on_wait):
            self._forget_erased()
            yield

    def remove(self, *videos: str, wait: bool = False) -> list[Video]:
        """Remove videos by id, file name or path, and return them. Their files stay.

        Until a file changes, it does not come back when its folder is indexed again, unless with `again`.
        """
        command = f"remove {' '.join(map(repr, videos))}"
        with self.store.writing(wait=float("inf") if wait else 0.0):
            finished = self._forget_erased()
            if finished.get("command") == digest_of(command):
                removed = [Video(*row) for _, *row in finished["videos"]]
            else:
                records = list({record.video_id: record for record in self.resolve_all(videos)}.values())
                removed = list(map(_video, records))
                self.erase_videos(records, map(as_removed, records), command)
            # A server may have made more meanwhile.
            erase_cached(self.cache, [video.id for video in removed])
        return removed

    def relocate(self, video: str, path: str | os.PathLike[str], *, wait: bool = False) -> Video:
        """Store the new path of a moved video file, and let a server serve its folder; nothing is encoded.

        Raises UsageError if the old file still exists, or if the new one is missing, belongs to
        another video or has other content.
        """
        store = self.store.holding(self.resolve(video).video_id)
        with store.writing(wait=float("inf") if wait else 0.0):
            record = relocated(store.ledger(), self.resolve(video), path)
            remember_folders(store, [source_path(record.path).resolve().parent])
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
        """At most `k` moments for a sentence, best first, and whether any of them answers it.

        With `like` it finds moments like a picture or another moment, and the sentence may be left out.

        Quoted words must be said exactly; with `all` every place with all the words is listed, in order of
        time. Rules interpret questions such as "the first time a bell rings in lecture-3"
        (`search/questions.py`); the answer's `understood` lists those that applied. `changes` are fields of
        `SearchOptions` (within, streams, min_confidence, after, before, where, model, retriever, segments,
        all, skip, like, check, check_best, check_seconds, rerank, rerank_seconds, rewrite, rewrite_seconds,
        literal, best) that replace those of `options`. `encoded` holds queries encoded in one batch (see
        `encoded`), this one included or not.
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
        """The answer of a search with models: the rewriter, then the reranker, then the checker.

        `picture` reads a frame of a video for the models (default `checking.picture_of`). Raises UsageError
        for a query without words.
        """
        from whenabouts.checkers import open_checker, open_reranker, open_rewriter
        from whenabouts.checking import checked, picture_of
        from whenabouts.rerank import MOST_RERANKED, reranked

        if not query.strip():
            raise UsageError(
                "this model compares moments with words; describe in words what they should show"
            )
        checked_query(query, options.count, options.min_confidence)
        rewriter: Rewriter | None
        if options.rewrite == sounds_alike.NAME:
            rewriter = self._sounds = self._sounds or sounds_alike.SoundsAlike(self.store)
        else:
            rewriter = self._model(open_rewriter, options.rewrite)
        reranker = self._model(open_reranker, options.rerank)
        checker = self._model(open_checker, options.check)
        is_reordered = rewriter is not None or reranker is not None
        wider = replace(options, k=max(options.count, MOST_RERANKED if is_reordered else 0))
        result = self._search(query, wider, encoded)
        picture = picture or picture_of
        if rewriter is not None:
            count = options.count if reranker is None else wider.count
            result = self._rewritten(result, rewriter, wider, count)
        if reranker is not None:
            seconds = options.rerank_seconds
            result = reranked(self, result, reranker, count=options.count, seconds=seconds, picture=picture)
        if checker is None:
            return result
        return checked(
            self,
            result,
            checker,
            best=options.check_best,
            seconds=options.check_seconds,
            min_confidence=options.min_confidence,
            by_streams=options.model is None and not is_reordered,
            picture=picture,
        )

    def _rewritten(
        self, result: SearchResult, rewriter: Rewriter, options: SearchOptions, count: int
    ) -> SearchResult:
        """The best `count` moments for a result's query and for the queries that a model writes from it."""
        from whenabouts.rewrite import with_rewrites

        as_it_stands = replace(options, literal="all")
        return with_rewrites(
            result,
            rewriter,
            lambda other: self._search(other, as_it_stands, None),
            count=count,
            seconds=options.rewrite_seconds,
            min_confidence=options.min_confidence,
        )

    def encoded(self, queries: Iterable[str]) -> EncodedTexts:
        """Queries encoded for the streams of this corpus, each encoder called once for all of them.

        Where a stream's index can be searched for all queries at once, this is done here too.
        """
        self.store.refresh()
        return self.searcher().understanding.made_ready([words_of_query(query) for query in queries])

    def _search(self, query: str, options: SearchOptions, encoded: EncodedTexts | None) -> SearchResult:
        """The answer to a query, computed on one snapshot of the corpus."""
        while True:
            check_budget()
            self.store.refresh()
            state = self.store.moves
            result = self._search_once(query, options, encoded)
            if self.store.moves == state:
                return self._with_hints(result, options)

    def _with_hints(self, result: SearchResult, options: SearchOptions) -> SearchResult:
        """The result with another spelling of its query, titles with its words, and a note on names."""
        if options.like is not None or options.model is not None:
            return result
        words, streams = result.words or result.query, options.streams or tuple(self.streams)
        pieces = [piece for scored in result.moments for piece in scored.evidence.values()]
        knows, texts = self.searcher().understanding.knows, [piece.text for piece in pieces]
        spelling = self._spelling.of(self.store, streams, result.query, words, texts, knows)
        titled = self._names_now().with_words(words) if self._filter(options) is None else ()
        is_unheard = result.answer == "no_match" and is_term(words.lower().split())
        notes = (MISHEARD,) if is_unheard and any(piece.recognised is not None for piece in pieces) else ()
        return replace(result, spelling=spelling, titled=tuple(titled), notes=(*result.notes, *notes))

    def _names_now(self) -> Names:
        records = self.store.ledger().records
        if self._names is None or self._names.records is not records:
            self._names = Names(records)
        return self._names

    def _search_once(self, query: str, options: SearchOptions, encoded: EncodedTexts | None) -> SearchResult:
        """The answer to a query as rules interpret it (`search/questions.py`), else to its plain words."""
        given, records = self._filter(options), self.store.ledger().records
        off = (*options.literal, *(NOT_IN_ORDER if options.all or options.like is not None else ()))
        question = read(query, self._names_now(), self.today(), off) if isinstance(query, str) else None
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
        """The answers to many queries as a run, for `whenabouts.evaluate`.

        `options` and `changes` are those of `search`, which answers each query when the run is read,
        without the rules that interpret it; `show` is called with each answer. Videos get their names in
        `queries` (`formats.queries.read_queries`) if those match our ids, paths or file names. Raises
        UsageError if such a name matches several videos.
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
        """Encode new or changed videos with a trained system; returns how many videos are then encoded.

        The retriever (of a staged run, or the named one) encodes them too. With `segments` (seconds) the
        videos are encoded as segments of this length, not whole. `progress` is called with the number of
        videos done, and of all. Raises CorpusBusy while another indexer works here, unless `wait`;
        EncoderMismatch if the streams were made by other encoders than the system was trained with.
        """
        self.store.refresh()
        system = self.finder(model, retriever, segments)
        return system.prepare(wait=float("inf") if wait else 0.0, progress=progress)

    def has_segments(self, model: System, segments: float, retriever: System | None = None) -> bool:
        """Whether segments of this length were encoded for a trained system (see `encode`).

        Later changes of the videos do not matter. Raises UsageError like `search`.
        """
        self.store.refresh()
        return self.finder(model, retriever, segments).is_kept

    def searcher(self) -> Searcher:
        """The searcher of this corpus, with its encoders loaded. Raises UsageError for an empty corpus."""
        version = self.store.description_version
        if self._searcher is None or self._searcher[0] != version:
            self.check_filled()
            usable, broken = self.encoders.usable()
            if isinstance(self.store, SideBySide):
                from whenabouts.calibration.together import measure_once

                measure_once(self.store, usable)
                version = self.store.description_version
            calibration = load_calibration(self.store)
            self._searcher = version, Searcher(self.store, usable, calibration, broken=broken)
        return self._searcher[1]

    def finder(self, model: System, retriever: System | None = None, segments: float | None = None) -> Finder:
        """A trained system, or another model opened by a plugin, on this corpus; cached.

        Raises UsageError for several corpora side by side, and if no installed package knows the model.
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
        """Who speaks and is seen: list, name, merge and forget people."""
        self.store.refresh()
        if self._people is None:
            self._people = People(self.store)
        return self._people

    @property
    def collections(self) -> Collections:
        """The collections of moments. Raises UsageError for a corpus on an object store."""
        return Collections(Database(self.store.place), self._inside_video, self._content_of)

    def _content_of(self, video_id: str) -> str:
        record = self.store.ledger().by_id.get(video_id)
        return record.content_hash if record else ""

    def is_replaced(self, item: Item) -> bool:
        """Whether the file of a collected moment's video has changed since it was collected or trimmed."""
        now = self._content_of(item.video_id)
        return bool(item.content and now) and item.content != now

    def _inside_video(self, moment: Moment) -> Moment:
        record = self.store.ledger().by_id.get(moment.video_id)
        if record is None or record.duration is None:
            return moment
        record.check_start(moment.start)
        return replace(moment, end=min(moment.end, record.duration))

    @property
    def saved_searches(self) -> SavedSearches:
        """The saved searches. Raises UsageError for a corpus on an object store."""
        return SavedSearches(Database(self.store.place))

    def moments_of(self, items: Iterable[Item]) -> tuple[list[FileMoment], list[str]]:
        """Items of a collection as moments of files with their words; notes on gone and changed videos."""
        moments: list[FileMoment] = []
        notes = []
        for item in items:
            record = self.record(item.video_id)
            if record is None:
                notes.append(f"{item.video_id} is no longer in the corpus, so its moment is left out")
                continue
            if self.is_replaced(item):
                notes.append(f"{record.file_name} has changed since {item.moment.name} was collected")
            lines = self.words(record, item.moment)
            text = " ".join(line.text for line in lines if line.is_mostly_in(item.moment))
            facts = {"text": text, "query": item.query, "note": item.note, "tags": item.tags}
            moments.append(moment_of_record(record, item.start, item.end, len(moments) + 1, **facts))
        return moments, notes

    def remove_stream(self, name: str, *, wait: bool = False) -> None:
        """Remove a stream with all its clips, vectors and files.

        Raises UsageError for an unknown stream. Later runs make it again only if asked to.
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
                f"{self.location} is empty; fill it with `whenabouts index PATH… --corpus {self.location}`"
            )

    # Describing -------------------------------------------------------------------------------------

    def videos(
        self,
        *,
        where: str | Sequence[str] = (),
        after: str | datetime | None = None,
        before: str | datetime | None = None,
        sort: Sort = "id",
        descending: bool = False,
    ) -> list[Video]:
        """The videos, by id (2 before 10), without files that could not be read.

        `where`, `after` and `before` filter as in `search`. `sort` is one of "id", "name", "date",
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
        where: str | Sequence[str] = (),
        after: str | datetime | None = None,
        before: str | datetime | None = None,
    ) -> list[Facet]:
        """Values that videos share: corpora, folders, streams, languages, states, metadata with few values.

        `where`, `after` and `before` filter the videos as in `search`.
        """
        self.store.refresh()
        return self.library.facets(make_filter((), after, before, where))

    @property
    def library(self) -> Library:
        """The columns of the ledger as last read, to filter, sort and count many videos."""
        return self._library.of(self.store)

    @property
    def version(self) -> int:
        """A number that grows with every change of the list of videos, as last read by this handle."""
        return self.store.version

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams; none in an empty corpus."""
        return tuple(sorted(self.store.streams))

    def records(self) -> list[VideoRecord]:
        """The ledger rows of all videos, sorted like `videos`, without files that could not be read."""
        return list(self.store.ledger().listed)

    def record(self, video_id: str) -> VideoRecord | None:
        """The ledger row of a video id (not a name or path), or None."""
        try:
            check_video_id(video_id)
        except UsageError:
            return None
        record = self.store.video(video_id)
        return record if record is not None and record.state != "failed" else None

    def words(self, record: VideoRecord, moment: Moment | None = None) -> tuple[Line, ...]:
        """The spoken passages of a video or moment."""
        return tuple(chain(*lines_of(self.store, record, moment, spoken=True).values()))

    def resolve(self, name: str) -> VideoRecord:
        """The ledger row of a video by its id, path, file name, or file name without suffix.

        Raises UsageError for a name that matches no video or several (it lists them).
        """
        return self.resolve_all([name])[0]

    def resolve_all(self, names: Iterable[str], *, by_path: bool = True) -> list[VideoRecord]:
        """The ledger row of each name, as in `resolve`; the ledger is read at most once.

        Without `by_path`, paths do not count as names.
        """
        ledger = self.store.ledger()
        ways = ((name, ledger.names.fitting(name, by_path=by_path)) for name in names)
        return [ledger.by_id[self._only(name, fitting, by_path)] for name, fitting in ways]

    def _only(self, name: str, fitting: Sequence[str], by_path: bool) -> str:
        if not fitting:
            contents = VideoNames((content, path) for path, content in copied_files(self.store).items())
            same = contents.fitting(name, by_path=by_path)
            if original := next((each for each in self.records() if each.content_hash in same), None):
                raise UsageError(
                    f"{name!r} is a copy of {original.video_id}, so it is not indexed; name that"
                )
            near = self.store.ledger().names.beginning(name)[:5]
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(f"{self.location} has no video {name!r}; {meant}`whenabouts show` lists them")
        if len(fitting) > 1:
            ids = ", ".join(fitting[:5])
            raise UsageError(f"{name!r} matches {len(fitting)} videos of {self.location}: {ids}; give the id")
        return fitting[0]

    def show(self, what: str, language: str | None = None) -> Shown:
        """The facts of a video, or of a moment given as VIDEO@START-END.

        With a `language` (such as "de") the words come from the subtitles in it. Raises UsageError if
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
        transcripts = Transcripts(self.store.holding(record.video_id).place, self._storage_options)
        return show_track(shown, transcripts.tracks(record.content_hash), language)

    def export_features(self, stream: str, clip_seconds: float, path: str | os.PathLike[str]) -> Any:
        """Write a stream on an even grid as a feature store, for training on this corpus.

        Raises UsageError for an unknown stream, one without vectors, or one with clips of another length.
        """
        self.store.refresh()
        return plugins.only("features", "a feature store", "research").export_stream(
            self.store, stream, clip_seconds, Path(path)
        )

    def export_sentences(self, path: str | os.PathLike[str]) -> int:
        """Write the spoken words as a file of sentences, for systems like HERO; returns the number of videos.

        Raises UsageError for a corpus without words, and if the file exists.
        """
        self.store.refresh()
        sentences = plugins.only("features", "a file of sentences", "research")
        return int(sentences.export_sentences(self.store, Path(path)))

    def stats(self) -> Stats:
        """Statistics of the corpus."""
        from whenabouts.choices import choices_of

        self.store.refresh()
        calibration = load_calibration(self.store)
        return replace(Stats.of(self.location, self.store, calibration), choices=choices_of(self))

    def check_streams(self) -> list[StreamCheck]:
        """Whether each stream can be searched here: its encoder, the problem, and the remedy."""
        return self.encoders.check()

    # Inside --------------------------------------------------------------------------------------

    def erase_videos(
        self, records: Sequence[VideoRecord], entries: Iterable[RemovedFile], command: str = ""
    ) -> None:
        """Erase videos from disk: rows, words and vectors, and what a server has made of them (`cache`).

        `entries` are added to the list of removed files. After a crash the next writer finishes the work.
        """
        ids = [record.video_id for record in records]
        erase_cached(self.cache, ids)
        rows = [[each.content_hash, each.video_id, each.duration, each.path] for each in records]
        facts = removed_with(self.store, entries) | {_ERASED: {"command": digest_of(command), "videos": rows}}
        streams = {name: () for record in records for name in record.streams if name in self.store.streams}
        self.store.erase(streams, facts, videos=ids)
        self._forget_erased()

    def _forget_erased(self) -> Mapping[str, Any]:
        """Erase the transcripts of erased videos; returns the fact `_ERASED`, {} if there was none."""
        if erased := self.store.fact(_ERASED):
            self.transcripts.forget(row[0] for row in erased["videos"])
            self.store.forget_fact(_ERASED)
        return erased or {}

    def _filter(self, scope: Scope) -> Filter | None:
        if not (scope.within or scope.after or scope.before or scope.where):
            return None
        videos = [record.video_id for record in self.resolve_all(scope.within)]
        chosen = make_filter(videos, scope.after, scope.before, scope.where)
        return narrowed(chosen, lambda: self.library)

    def moment(self, moment: str | Moment) -> Moment:
        """A moment with its video's id, from VIDEO@START-END with any name that `resolve` takes.

        Times may be time codes (00:01:02:12), counted at the video's frame rate from its first frame.
        Raises UsageError for a moment that starts after the video's end.
        """
        given = moment if isinstance(moment, Moment) else Moment(*parse_moment(moment, self.rate_of))
        record = self.resolve(given.video_id)
        record.check_start(given.start)
        return replace(given, video_id=record.video_id)

    def rate_of(self, video: str) -> Fraction | None:
        """Frames per second of a video, by any name that `resolve` takes; None if unknown."""
        return frame_rate(source_path(self.resolve(video).path))


def _opened(places: Sequence[str], create: bool, storage_options: Mapping[str, str] | None) -> Store:
    """The store of one place, or of several side by side. Raises UsageError for a place given twice."""
    distinct = {place if is_remote(place) else folder_of(place) for place in places}
    if not places or len(distinct) < len(places):
        raise UsageError(f"{', '.join(places) or 'no corpus'}: name at least one corpus, and each only once")
    if len(places) == 1:
        return Store.open(places[0], create=create, storage_options=storage_options)
    if create:
        raise UsageError("several corpora are searched side by side; create each one separately")
    return SideBySide([Store.open(place, storage_options=storage_options) for place in places])


def _video(record: VideoRecord) -> Video:
    return Video(record.video_id, record.duration, record.path, dict(record.metadata))
