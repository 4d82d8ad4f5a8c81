"""Reports what indexing decided without asking: one line per kind, with the option that changes it.

For example: which subtitle of several is searched, or which duplicates the corpus holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whenabouts.index.records import SOUND_TRACK, SOUND_TRACKS, VideoRecord
from whenabouts.index.side_by_side import SideBySide
from whenabouts.same_material import Double, doubles_of
from whenabouts.types import number_of

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus

_NO_NAME = "no language named"


def choices_of(corpus: OpenedCorpus) -> dict[str, str]:
    """Kind of choice -> a line for the user. Kinds without a choice to report are left out."""
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
    """Videos with several subtitles: which are searched, which are not."""
    several = [(record, tracks[record.content_hash]) for record in records if record.content_hash in tracks]
    if not several:
        return ""
    used = Counter[str](languages.get(record.words, _NO_NAME) or _NO_NAME for record, languages in several)
    unused = Counter[str](
        language or _NO_NAME
        for record, languages in several
        for source, language in languages.items()
        if source != record.words
    )
    example = f"{several[0][0].file_name}: {several[0][0].words}"
    return _several("subtitles", "searched", used, unused, example, "`whenabouts index PATH --language CODE`")


def _sound(records: Sequence[VideoRecord]) -> str:
    several = [record for record in records if len(_sound_tracks(record)) > 1]
    if not several:
        return ""
    chosen = [(_sound_tracks(record), _track_number(record)) for record in several]
    used = Counter(tracks[number - 1] or _NO_NAME for tracks, number in chosen)
    unused = Counter(
        track or _NO_NAME for tracks, number in chosen for at, track in enumerate(tracks, 1) if at != number
    )
    example = f"{several[0].file_name}: number {chosen[0][1]}"
    remedy = "`whenabouts index PATH --sound-track N` (or a language code)"
    return _several("sound tracks", "heard", used, unused, example, remedy)


def _several(
    what: str, used_how: str, used: Counter[str], unused: Counter[str], example: str, remedy: str
) -> str:
    """Videos with several tracks of a kind, by language: which are used, which are not."""
    return (
        f"{number_of(used.total(), 'video has', 'videos have')} several {what}; {used_how}: {_counted(used)}"
        f"; not {used_how}: {_counted(unused)} (such as {example}); choose with {remedy}"
    )


def _sound_tracks(record: VideoRecord) -> list[str]:
    tracks = record.metadata.get(SOUND_TRACKS)
    return tracks if isinstance(tracks, list) else []


def _track_number(record: VideoRecord) -> int:
    """The number of the sound track that is heard; 1 if the user's metadata (`--meta`) replaced it."""
    number = record.metadata.get(SOUND_TRACK)
    return number if isinstance(number, int) and 1 <= number <= len(_sound_tracks(record)) else 1


def _gone(records: Sequence[VideoRecord]) -> str:
    gone = [record for record in records if record.is_gone]
    if not gone:
        return ""
    which = number_of(len(gone), "file is", "files are")
    return (
        f"{which} gone but still searched (such as {gone[0].file_name}); remove with `whenabouts index PATH "
        "--prune`"
    )


def _damaged(records: Sequence[VideoRecord]) -> str:
    damaged = [record for record in records if record.damage]
    if not damaged:
        return ""
    which = number_of(len(damaged), "video is", "videos are")
    example = f"{damaged[0].file_name}: {damaged[0].damage}"
    return f"{which} damaged and searched as far as readable (such as {example})"


def _doubles(corpus: OpenedCorpus) -> str:
    """Videos that are in more than one of the corpora searched side by side."""
    if not isinstance(corpus.store, SideBySide):
        return ""
    parts = [
        f"{number_of(count, 'video')} of {Path(place).name}" for place, count in corpus.store.doubles.items()
    ]
    if not parts:
        return ""
    return (
        f"{' and '.join(parts)} are also in a corpus named earlier and are shown once, from that one; "
        "change the order of --corpus, or take one out with `whenabouts remove`"
    )


def _twice(doubles: Sequence[Double]) -> dict[str, str]:
    """Transcripts with the same words as a video, and copies of a recording."""
    transcripts, copies = list[Double](), list[Double]()
    for double in doubles:
        is_text = double.video.kind == "transcript" != double.original.kind
        (transcripts if is_text else copies).append(double)
    lines = {}
    if transcripts:
        which = number_of(len(transcripts), "transcript says", "transcripts say")
        example = f"{transcripts[0].video.file_name}: {transcripts[0].original.file_name}"
        lines["transcripts_twice"] = (
            f"{which} the same as a video (such as {example}), so answers list both; take one out with "
            "`whenabouts remove TRANSCRIPT`"
        )
    if copies:
        which = number_of(len(copies), "recording seems", "recordings seem")
        first = copies[0]
        example = f"{first.video.file_name}, which {first.by} almost the same as {first.original.file_name}"
        lines["copies"] = (
            f"{which} to be in the corpus twice (such as {example}), so answers list both; "
            "take a copy out with `whenabouts remove VIDEO`"
        )
    return lines


def _counted(languages: Mapping[str, int]) -> str:
    return ", ".join(
        f"{language} ({count})" if count > 1 else language for language, count in sorted(languages.items())
    )
