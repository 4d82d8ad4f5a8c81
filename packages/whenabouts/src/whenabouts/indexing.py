"""An index run on a corpus: files and options -> plan -> clips of all streams -> upkeep and calibration."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from whenabouts import plugins
from whenabouts.calibration import efforts, measuring
from whenabouts.choices import choices_of
from whenabouts.encoders.protocol import EncoderUnavailable
from whenabouts.index.absent import as_pruned, forget_removed, found_again, remember_copies, removed_files
from whenabouts.index.build import build
from whenabouts.index.folders import remember_folders
from whenabouts.index.lock import uninterrupted
from whenabouts.index.plan import Plan, Settings, make_plan, read_metadata_file
from whenabouts.index.progress import Heartbeat, Progress, Summary
from whenabouts.index.records import EncoderMismatch, StoreError
from whenabouts.index.store import without_file
from whenabouts.index.stream import Setup, Stream, StreamRun
from whenabouts.index.transcripts import Speech
from whenabouts.index.workers import available_cores
from whenabouts.intake.lacks import MachineLack, lack_of
from whenabouts.search.stored_calibration import load_calibration
from whenabouts.streams import all_streams, index_options
from whenabouts.streams import stream as stream_named
from whenabouts.types import UsageError, WhenaboutsError, number_of
from whenabouts.video import shots as shot_finders
from whenabouts.video import speech, speech_models
from whenabouts.video.files import find_files, with_home
from whenabouts.video.objects import check_place, source_path
from whenabouts.video.onnx_recogniser import PREFIX as ONNX
from whenabouts.video.probe import base_language
from whenabouts.video.speech_models import PACKAGED, SpeechUnavailableError, why_unavailable

if TYPE_CHECKING:
    from whenabouts.index.records import VideoRecord
    from whenabouts.opened_corpus import OpenedCorpus

_MOST_PROCESSES = 8
# Choices that a run stores for later ones: the fact's name, its key, and the default.
_LANGUAGE = "subtitle language", "language", ""
_SOUND_TRACK = "sound track", "track", ""
_SHOTS = "shot finder", "finder", shot_finders.BUILT_IN
_CODE = r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*"
_NAMED_LANGUAGES = 5
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def plan_index(
    corpus: OpenedCorpus,
    paths: Paths,
    *,
    shots: bool | str = False,
    transcribe: str | bool | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    metadata_file: str | os.PathLike[str] | None = None,
    retry: bool = False,
    language: str | None = None,
    sound_track: str | int | None = None,
    exclude: str | Sequence[str] = (),
    follow: bool = True,
    again: bool = False,
    prune: bool = False,
    or_without: bool = False,
    without: Sequence[str] = (),
    **options: Any,
) -> Plan:
    """Plan an index run; nothing is written.

    - `shots`: find shots even if no stream reads frames. A name (`built-in`, `transnetv2`) chooses the finder
      for this and later runs; videos whose shots another finder found are read again.
    - `transcribe`: the speech model for files without subtitles; True: the packaged one.
    - `language` (such as "en"): chooses among several subtitles, also in later runs ("" resets it);
      `sound_track` (number from 1, or language): chooses likewise among several sound tracks.
    - `metadata`: stored with each file; `metadata_file`: such values for single files (`read_metadata_file`).
    - `retry`: read only files that failed before, without `paths` all of them.
    - `exclude`: gitignore patterns of files to skip; `follow` false skips links.
    - `again`: include files that were removed from the corpus, and subtitles whose recording is gone;
      `prune`: remove videos whose files are gone from the paths.
    - `options`: those of the streams (`streams.index_options`), such as `vision`, `text`, `clip_seconds`;
      encoders by name, folder or as objects.
    - `without`: streams to leave out of this run, even if the corpus has them.

    Encoders are opened, so that errors come before anything is read. Raises UsageError for a language that
    the speech model does not recognise, and EncoderUnavailable for a named encoder that cannot be used;
    `or_without` leaves its stream out instead, with a note. If an encoder of the corpus has become unusable,
    only its stream is left out.
    """
    settings = _settings(corpus, shots, transcribe, language, sound_track, metadata, metadata_file)
    excluded = [exclude] if isinstance(exclude, str) else exclude
    notes: list[str] = []
    streams = _set_up(corpus, options, notes, or_without=or_without, without=without)
    ledger = _ledger(corpus, notes)
    plan = make_plan(
        find_files(_files(paths, ledger, retry=retry), exclude=excluded, follow=follow),
        ledger,
        settings,
        streams,
        retry=retry,
        removed=removed_files(corpus.store),
        again=again,
        prune=prune,
        notes=notes,
    )
    if any(work.task.shots for work in plan.work):
        _finder_of(corpus, shots).check()
    return plan


def _settings(
    corpus: OpenedCorpus,
    shots: bool | str,
    transcribe: str | bool | None,
    language: str | None,
    sound_track: str | int | None,
    metadata: Mapping[str, Any],
    metadata_file: str | os.PathLike[str] | None,
) -> Settings:
    """How videos are read; see `plan_index`."""
    model, spoken = _speech_model(transcribe), _language(corpus, language)
    _check_recognised(model, spoken)
    return Settings(
        shots=bool(shots),
        shot_finder=_finder_of(corpus, shots).NAME,
        transcribe=model,
        language=spoken,
        sound_track=_sound_track(corpus, sound_track),
        metadata=dict(metadata),
        metadata_of=read_metadata_file(Path(metadata_file)) if metadata_file else {},
    )


def _finder_of(corpus: OpenedCorpus, shots: bool | str) -> Any:
    """The named finder of shots, else the corpus's."""
    return shot_finders.finder_named(shots if isinstance(shots, str) else corpus_shot_finder(corpus))


def _files(paths: Paths, ledger: Iterable[VideoRecord], *, retry: bool) -> list[Path]:
    """The files and folders to search; with `retry` and no `paths`, the files that failed before."""
    given = _places(paths)
    if retry and not given:
        return [source_path(record.path) for record in ledger if record.state == "failed"]
    return given


def _places(paths: Paths) -> list[Path]:
    """One path or several as files and folders. Raises UsageError for an address that cannot be read."""
    # A single text is also an iterable, of letters: "/" would be one of them.
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given:
        check_place(os.fspath(path))
    return [source_path(with_home(path)) for path in given]


def _ledger(corpus: OpenedCorpus, notes: list[str]) -> list[VideoRecord]:
    """The ledger rows. Those that two indexers wrote at once match no file, so their files are read again."""
    corpus.store.refresh()
    if doubled := corpus.store.doubled():
        notes.append(f"two indexers wrote {number_of(len(doubled), 'video')} at once; done again")
    return [without_file(row) if row.video_id in doubled else row for row in corpus.store.videos()]


def _set_up(
    corpus: OpenedCorpus,
    options: Mapping[str, Any],
    notes: list[str],
    *,
    or_without: bool,
    without: Collection[str],
) -> list[StreamRun]:
    """The settings of each stream, in the order in which streams are made; see `plan_index`."""
    accepted = {option.keyword for option in index_options()}
    if unknown := sorted(options.keys() - accepted):
        raise UsageError(f"there is no option {unknown[0]!r}; streams take {', '.join(sorted(accepted))}")
    given = {keyword: value for keyword, value in options.items() if value is not None}
    runs: dict[str, StreamRun] = {}
    left_out: WhenaboutsError | None = None
    for name, stream in _chosen_streams(given, without).items():
        if not set(stream.reads_clips_of) <= runs.keys() | corpus.store.streams.keys():
            continue
        info = corpus.store.streams.get(name)
        try:
            run = stream.setup(Setup(corpus.location, info, given, corpus.encoders, notes))
        except MachineLack:
            raise
        except (EncoderUnavailable, EncoderMismatch) as error:
            is_named = any(option.keyword in given for option in stream.options)
            if is_named and not (or_without and isinstance(error, EncoderUnavailable)):
                raise
            left_out = left_out or error
            notes.append(
                f"the {stream.title} of these videos are not indexed: {error}. Run the same command "
                "again once the model is here; indexed videos stay"
            )
        else:
            runs |= {} if run is None else {name: run}
    if left_out is not None and not runs:
        raise left_out
    return list(runs.values())


def _chosen_streams(given: Mapping[str, Any], without: Collection[str]) -> dict[str, Stream]:
    """The streams without those left out. Raises UsageError for an unknown or also requested one."""
    streams = all_streams()
    if unknown := [name for name in without if name not in streams]:
        raise UsageError(f"there is no stream {unknown[0]!r} to leave out; there are {', '.join(streams)}")
    for name in without:
        flag = next((option.flag for option in streams[name].options if option.keyword in given), None)
        if flag is not None:
            raise UsageError(f"{flag} asks for {name}, and --without {name} leaves it out; give one of them")
    chosen = {name: stream for name, stream in streams.items() if name not in without}
    if not chosen:
        raise UsageError("every stream is left out; there would be nothing to index")
    return chosen


def run_index(
    corpus: OpenedCorpus,
    plan: Plan,
    *,
    processes: int | None = None,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Carry out a plan and return a summary; plan inside `Corpus.writing` if another indexer may be at work.

    `processes` read (default: one per core, at most 8). `ray` names a cluster that reads and encodes:
    "local", "auto" or HOST:PORT (docs/scaling.md). `progress` is called at least every second, also from
    another thread, never twice at once. Raises ClusterError if the cluster fails, CorpusBusy, DiskFull, and
    SpeechUnavailableError before anything is read.
    """
    if processes is not None and processes < 1:
        raise UsageError(f"{processes} reader processes: give 1 or more")
    started = time.monotonic()
    cluster = None if ray is None else plugins.only("executors", f"--ray {ray}", "cluster")
    if cluster is not None and plan.work:
        cluster.check_address(ray)
    spoken = Speech(corpus.transcripts, plan.transcribe, speech.transcribe)
    may_hear = any(work.task.cues and work.task.kind == "media" for work in plan.work)
    model = plan.transcribe if may_hear else ""
    if model and ray is None:
        speech_models.load_recogniser(model)
    summary = Summary.before(plan)
    with summary.interruptible(), corpus.writing(), Heartbeat(progress) as report:
        for run in plan.streams:
            if run.encoder is not None or run.name not in corpus.store.streams:
                corpus.store.add_stream(run.info)
        corpus.store.erase_later(_personal_again(corpus, plan))
        count = processes or min(available_cores(), _MOST_PROCESSES)
        executor = cluster and cluster.executor(plan.streams, ray, processes or 0, model)
        build(corpus.store, plan, spoken, summary, processes=count, executor=executor, progress=report)
        if plan.pruned:
            corpus.erase_videos(plan.pruned, map(as_pruned, plan.pruned))
        if plan.readmitted:
            forget_removed(corpus.store, plan.readmitted)
        _remember(corpus, plan)
        _finish(corpus, summary, _steps(plan, report))
    with summary.interruptible(), uninterrupted():
        summary.notes.extend(plan.notes)
        summary.choices = choices_of(corpus)
        summary.seconds = time.monotonic() - started
        summary.searchable = sum(stream.clips for stream in corpus.store.stats().streams.values())
    return summary


@dataclass(frozen=True, slots=True)
class Relocation:
    """The result of a search for moved files.

    `pairs` are (path before, record with the path now), `missing` the records still without a file,
    `problems` (path, cause and remedy) of places that could not be read.
    """

    pairs: tuple[tuple[str, VideoRecord], ...]
    missing: tuple[VideoRecord, ...]
    problems: tuple[tuple[Path, str], ...]


def find_moved(
    corpus: OpenedCorpus, paths: Paths, *, dry_run: bool = False, wait: bool = False
) -> Relocation:
    """Find the files of missing videos at and under some paths, by content; nothing is encoded again.

    Stores their new paths, and lets a server serve their folders; with `dry_run` writes nothing. Raises
    CorpusBusy while another indexer works here, unless `wait`.
    """
    places = _places(paths)
    with contextlib.nullcontext() if dry_run else corpus.writing(wait=wait):
        corpus.store.refresh()
        ledger = corpus.store.ledger()
        findings = find_files(places)
        now = found_again(ledger, findings.files)
        if now and not dry_run:
            # The folders first: after a kill in between, the repeated command finds no file to move.
            remember_folders(corpus.store, [source_path(record.path).resolve().parent for record in now])
            corpus.store.put_records(now)
    mended = {record.video_id for record in now}
    return Relocation(
        tuple((ledger.by_id[record.video_id].path, record) for record in now),
        tuple(each for each in ledger.listed if each.video_id not in mended and each.is_gone),
        findings.problems,
    )


def _personal_again(corpus: OpenedCorpus, plan: Plan) -> set[str]:
    """The streams with personal vectors (voices, faces) in which a plan replaces vectors."""
    again = {
        name
        for work in plan.work
        if work.record is not None
        for name in work.record.streams
        if work.is_whole or name in work.streams
    }
    return {name for name in again & set(corpus.store.streams) if stream_named(name).is_personal}


def _remember(corpus: OpenedCorpus, plan: Plan) -> None:
    """Store the searched folders, the copies and the choices of this run, for the next runs."""
    remember_folders(corpus.store, plan.searched)
    remember_copies(corpus.store, plan.duplicates)
    chosen = (_LANGUAGE, plan.language), (_SOUND_TRACK, plan.sound_track), (_SHOTS, plan.shot_finder)
    for (fact, key, default), value in chosen:
        if value != _stored(corpus, fact, key, default):
            corpus.store.put_fact(fact, {key: value})


def _finish(corpus: OpenedCorpus, summary: Summary, show: Callable[[str, float], None]) -> None:
    """Maintain and calibrate the corpus where that is due, unless the run was interrupted."""
    if summary.interrupted:
        return
    corpus.people.link()
    show("merging and indexing new data", 0.0)
    corpus.store.optimize()
    corpus.transcripts.tidy()
    try:
        if corpus.store.streams_without_effort:
            show("measuring what the vector index finds", 0.0)
            efforts.measure(corpus.store, corpus.encoders.usable()[0])
        if measuring.is_due(corpus.store, load_calibration(corpus.store)):
            show_share = partial(show, "measuring the scores of unrelated questions")
            show_share(0.0)
            measuring.measure(corpus.store, corpus.encoders.for_queries(), progress=show_share)
    except Exception as error:  # what an encoder raises is not known
        is_told = isinstance(error, EncoderUnavailable | EncoderMismatch)
        if not is_told and (isinstance(error, StoreError) or lack_of(error)):
            raise
        cause = error if isinstance(error, WhenaboutsError) else f"{type(error).__name__}: {error}"
        summary.notes.append(f"the scores of unrelated questions were not measured again: {cause}")


def _steps(plan: Plan, progress: Callable[[Progress], None] | None) -> Callable[[str, float], None]:
    """A function that reports the steps after a plan's files to `progress`."""
    started: dict[str, float] = {}

    def show(step: str, fraction: float) -> None:
        passed = time.monotonic() - started.setdefault(step, time.monotonic())
        if progress is not None:
            progress(Progress.after_files(step, fraction, len(plan.work), passed))

    return show


def _stored(corpus: OpenedCorpus, fact: str, key: str, default: str) -> str:
    """The value that an earlier run stored for a choice, else its default."""
    return str((corpus.store.fact(fact) or {}).get(key, default))


def corpus_shot_finder(corpus: OpenedCorpus) -> str:
    """The chosen finder of shots."""
    return _stored(corpus, *_SHOTS)


def usual_speech_model(corpus: OpenedCorpus, folders: Sequence[Path], language: str | None = None) -> str:
    """The known model that recognised most recordings without subtitles in some folders, else "".

    Also "" if it does not know `language` (None: the corpus's). Someone else's corpus may name any file.
    """
    corpus.refresh()
    sources = Counter(
        record.words
        for record in corpus.store.ledger().listed
        if record.kind == "media" and (not record.words or record.words.startswith("speech:"))
        if any(source_path(record.path).is_relative_to(folder) for folder in folders)
    )
    model = max(sources, key=lambda words: (sources[words], not words), default="").removeprefix("speech:")
    with contextlib.suppress(UsageError):
        if speech_models.is_known_here(model):
            _check_recognised(model, _language(corpus, language))
            return model
    return ""


def _sound_track(corpus: OpenedCorpus, named: str | int | None) -> str:
    track = _stored(corpus, *_SOUND_TRACK) if named is None else str(named)
    if track and not re.fullmatch(rf"[1-9][0-9]?|{_CODE}", track):
        raise UsageError(f"--sound-track {track!r}: give a number from 1, or a language code such as de")
    return track.lower()


def _language(corpus: OpenedCorpus, named: str | None) -> str | None:
    language = _stored(corpus, *_LANGUAGE) if named is None else named
    if language and not re.fullmatch(_CODE, language):
        raise UsageError(f"{language!r} is not a language; write its code, such as en, de or pt-BR")
    return language.lower() or None


def _check_recognised(model: str | None, language: str | None) -> None:
    """Raise UsageError if the speech model does not know the language."""
    if not (model and language):
        return
    languages = speech_models.languages_of(model)
    if not languages or base_language(language) in languages:
        return
    names = ", ".join(sorted(languages)) if len(languages) <= _NAMED_LANGUAGES else f"{len(languages)} others"
    raise UsageError(
        f"--language {language}: the speech model {model} does not recognise it (it knows {names}), so "
        "nothing would be heard; name another model, such as --transcribe small (`whenabouts models get "
        "small`, 99 languages), or leave out --transcribe, or forget the language with --language ''"
    )


def _speech_model(name: str | bool | None) -> str | None:
    """The name of a speech model, a folder as its absolute path. Raises SpeechUnavailableError."""
    if not name:
        return None
    name = PACKAGED if name is True else name
    if (reason := why_unavailable(name)) is not None:
        raise SpeechUnavailableError(reason)
    prefix = ONNX if name.startswith(ONNX) else ""
    folder = with_home(name.removeprefix(prefix))
    return f"{prefix}{folder.resolve()}" if folder.is_dir() else name
