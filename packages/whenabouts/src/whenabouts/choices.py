"""What was decided without asking, and is not searched: a line each, with the option that changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.index.records import SOUND_TRACK, SOUND_TRACKS, VideoRecord, unambiguous
from whenabouts.index.side_by_side import SideBySide
from whenabouts.same_material import Double, doubles_of
from whenabouts.types import number_of

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus

_NO_NAME = "no language named"


def choices_of(corpus: OpenedCorpus) -> dict[str, str]:
    """The choices of a corpus, each by its kind as a line for people; none where nothing was to choose."""
    records = [record for record in corpus.store.ledger().records if record.state != "failed"]
    tracks = corpus.transcripts.languages_of_tracks() if len(corpus.places) == 1 else {}
    lines = {
        "subtitles": _subtitles(records, tracks),
        "sound_tracks": _sound(records),
        "gone": _gone(records),
        "damaged": _damaged(records),
        "doubles": _doubles(corpus),
        **_twice(doubles_of(corpus)),
    }
    return {kind: line for kind, line in lines.items() if line}


def _subtitles(records: Sequence[VideoRecord], tracks: Mapping[str, Mapping[str, str]]) -> str:
    """Subtitles that are there more than once: which are searched, and which are left."""
    several = [(record, tracks[record.content_hash]) for record in records if record.content_hash in tracks]
    if not several:
        return ""
    taken = Counter[str](own.get(record.words, _NO_NAME) or _NO_NAME for record, own in several)
    left = Counter[str](
        language or _NO_NAME
        for record, own in several
        for source, language in own.items()
        if source != record.words
    )
    which = number_of(len(several), "video has", "videos have")
    return (
        f"{which} several subtitles: searched are {_counted(taken)}, not searched {_counted(left)} "
        f"(such as {_name(several[0][0])}: {several[0][0].words}); `whenabouts index PATH --language CODE` "
        "chooses"
    )


def _sound(records: Sequence[VideoRecord]) -> str:
    several = [record for record in records if len(_sound_tracks(record)) > 1]
    if not several:
        return ""
    chosen = [(_sound_tracks(record), int(record.metadata.get(SOUND_TRACK, 1))) for record in several]
    taken = Counter(tracks[number - 1] or _NO_NAME for tracks, number in chosen)
    left = Counter(
        track or _NO_NAME for tracks, number in chosen for at, track in enumerate(tracks, 1) if at != number
    )
    which = number_of(len(several), "video has", "videos have")
    return (
        f"{which} several sound tracks: heard are {_counted(taken)}, not heard {_counted(left)} "
        f"(such as {_name(several[0])}: number {chosen[0][1]}); `whenabouts index PATH --sound-track N` (or "
        "CODE) chooses"
    )


def _sound_tracks(record: VideoRecord) -> list[str]:
    tracks = record.metadata.get(SOUND_TRACKS)
    return tracks if isinstance(tracks, list) else []


def _gone(records: Sequence[VideoRecord]) -> str:
    gone = [record for record in records if record.is_gone]
    if not gone:
        return ""
    which = number_of(len(gone), "file is", "files are")
    return (
        f"{which} gone and still searched (such as {_name(gone[0])}); `whenabouts index PATH --prune` takes "
        "them out"
    )


def _damaged(records: Sequence[VideoRecord]) -> str:
    damaged = [record for record in records if record.damage]
    if not damaged:
        return ""
    which = number_of(len(damaged), "video is", "videos are")
    return (
        f"{which} damaged and searched as far as they can be read (such as {_name(damaged[0])}: "
        f"{damaged[0].damage})"
    )


def _doubles(corpus: OpenedCorpus) -> str:
    """Videos that are in several of the corpora that are searched side by side."""
    if not isinstance(corpus.store, SideBySide):
        return ""
    parts = [
        f"{number_of(count, 'video')} of {Path(place).name}" for place, count in corpus.store.doubles.items()
    ]
    if not parts:
        return ""
    return (
        f"{' and '.join(parts)} are in a corpus named before it too and shown once, from the first; the "
        "order of --corpus decides which, `whenabouts remove` takes one out"
    )


def _twice(doubles: Sequence[Double]) -> dict[str, str]:
    """Transcripts of videos that have the same words themselves, and copies of a recording."""
    transcripts = [own for own in doubles if own.video.kind == "transcript" != own.original.kind]
    copies = [own for own in doubles if own not in transcripts]
    lines = {}
    if transcripts:
        which = number_of(len(transcripts), "transcript says", "transcripts say")
        example = f"{_name(transcripts[0].video)}: {_name(transcripts[0].original)}"
        lines["transcripts_twice"] = (
            f"{which} the same as a video (such as {example}), so answers list both; `whenabouts remove "
            "TRANSCRIPT` takes one out"
        )
    if copies:
        which = number_of(len(copies), "recording is", "recordings are")
        first = copies[0]
        example = f"{_name(first.video)}, which {first.by} the same as {_name(first.original)}"
        lines["copies"] = (
            f"{which} in the corpus twice (such as {example}), so answers list both; `whenabouts remove "
            "VIDEO` takes one out"
        )
    return lines


def _counted(languages: Mapping[str, int]) -> str:
    return ", ".join(f"{language} ({count})" for language, count in sorted(languages.items()))


def _name(record: VideoRecord) -> str:
    return unambiguous(record.path).rsplit("/", 1)[-1]
