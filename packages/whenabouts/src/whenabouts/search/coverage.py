"""Which videos an answer covers: how many each stream searched, and what was not searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from whenabouts.index.records import VideoRecord
from whenabouts.streams import all_streams
from whenabouts.streams import stream as stream_named
from whenabouts.types import number_of

if TYPE_CHECKING:
    from whenabouts.index.store import Store

_FEW = 500
"""For more videos than this, `with_clips` reads a whole column in place of the first clip of each."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many `videos` could be searched, and how many of them each stream searched.

    `streams`: stream -> videos with clips. `missing`: stream -> videos with input for it but nothing indexed.
    `silent` counts videos without clips in any stream (of the requested ones, if `is_narrow`), `unseen` those
    of them whose pictures were not indexed; no answer comes from these.
    """

    videos: int
    streams: Mapping[str, int]
    missing: Mapping[str, int]
    silent: int = 0
    unseen: int = 0
    is_narrow: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every stream indexed every video that has input for it."""
        return not any(self.missing.values())

    @property
    def searched(self) -> str:
        """The titles of the searched streams, such as "words and pictures"; "" if there are none."""
        return " and ".join(stream_named(name).title for name, count in self.streams.items() if count)

    @property
    def not_searched(self) -> str:
        """Streams that searched no video although some have input for them, with remedies; "" for none."""
        left_out = [
            stream_named(name) for name, count in self.missing.items() if count and not self.streams.get(name)
        ]
        return "; ".join(
            f"{stream.title} were not searched{stream.unsearched_for} ({stream.remedy})"
            for stream in left_out
        )

    @property
    def line(self) -> str:
        """One line for users: what was searched in how many videos, and what was not."""
        parts = [self._of(name, count) for name, count in self.streams.items() if count]
        searched = f"searched: {', '.join(parts) or 'nothing'}"
        return "; ".join(filter(None, (searched, self.not_searched, self.without_anything)))

    def _of(self, name: str, count: int) -> str:
        """In how many videos a stream was searched, and why not in the others."""
        title = stream_named(name).title
        if count == self.videos:
            return f"{title} of {f'all {count} videos' if count > 1 else 'the video'}"
        missing = self.missing.get(name, 0)
        lacking = f"of {missing} they are not indexed" if missing else "the others have none"
        return f"{title} of {count} of {self.videos} videos ({lacking})"

    @property
    def without_anything(self) -> str:
        """How many videos have nothing to find, with the consequence; "" if all have something."""
        if not self.silent or self.is_narrow:
            return ""
        which = f"{self.silent} of {number_of(self.videos, 'video')}" if self.videos > 1 else "the video"
        has = "has" if self.silent == 1 else "have"
        meeting = (name for name in self.streams if "text" in stream_named(name).meets)
        lacks = [f"no {stream_named(name).title}" for name in meeting if not self.missing.get(name)]
        lacks += [
            f"no {stream_named(name).title} that can be searched"
            for name, count in self.missing.items()
            if count
        ]
        both = " and ".join([", ".join(lacks[:-1]), lacks[-1]] if len(lacks) > 1 else lacks)
        lost = "what is only seen there" if self.unseen else "what is there"
        return f"{which} {has} {both or 'no stream'}: {lost} cannot be found"

    def to_json(self) -> dict[str, Any]:
        return {
            "videos": self.videos,
            "streams": dict(self.streams),
            "not_searched": dict(self.missing),
            "nothing_to_find": self.silent,
            "text": self.line,
        }


def with_clips(
    store: Store, streams: Iterable[str], video_ids: Sequence[str] | None = None
) -> dict[str, Collection[str]]:
    """Stream -> ids of the videos with clips, for streams that may find nothing in a video they read.

    A picture stream has clips of every video with pictures; one of words or people may have none. Of a few
    videos the first clip is looked up; of more, and of all (None), one column is read.
    """
    sparse = (name for name in streams if stream_named(name).has_words or stream_named(name).filter_key)
    if video_ids is None or len(video_ids) > _FEW:
        return {name: store.clip_counts(name).keys() for name in sparse}
    return {name: store.first_texts(name, video_ids).keys() for name in sparse}


def streams_with_clips(store: Store, records: Sequence[VideoRecord]) -> dict[str, list[str]]:
    """Video id -> the streams that have clips of it, sorted: those that can find something there."""
    names = dict.fromkeys(name for record in records for name in record.streams if name in store.streams)
    holding = with_clips(store, names, [record.video_id for record in records])
    return {
        record.video_id: sorted(name for name in names if _holds(name, record, holding)) for record in records
    }


def coverage_of(
    records: Iterable[VideoRecord],
    streams: Collection[str],
    searchable: Collection[str],
    holding: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Coverage:
    """The coverage of a search of some videos.

    `streams` are the requested ones (none: all that answer words), `searchable` those that can be searched.
    `holding` maps streams to videos with clips (`with_clips`); for streams it lacks, the ledger decides.
    """
    by_words = [name for name, stream in all_streams().items() if "text" in stream.meets]
    names = dict.fromkeys(streams or [*by_words, *searchable])
    videos = silent = unseen = 0
    held, missing = Counter[str](), Counter[str]()
    for record in records:
        if record.state == "failed":
            continue
        videos += 1
        holders = [name for name in names if name in searchable and _holds(name, record, holding)]
        lacking = [name for name in names if _lacks(name, record, searchable)]
        held.update(holders)
        missing.update(lacking)
        if not any(streams or "text" in stream_named(name).meets for name in holders):
            silent += 1
            unseen += bool(lacking)
    of_streams = {name: held[name] for name in names if name in searchable or held[name]}
    return Coverage(videos, of_streams, missing, silent, unseen, bool(streams))


def _lacks(name: str, record: VideoRecord, searchable: Collection[str]) -> bool:
    """Whether a video has input for a stream that is unfinished there, or cannot be searched."""
    stream = stream_named(name)
    is_seen = stream.is_in_pictures and name in searchable and record.has_picture
    return (stream.could_hold(record) or is_seen) and not (name in searchable and stream.holds(record))


def _holds(name: str, record: VideoRecord, holding: Mapping[str, Collection[str]]) -> bool:
    stream = stream_named(name)
    is_there = name not in holding or record.video_id in holding[name]
    return is_there and stream.holds(record) and (record.has_picture or "picture" not in stream.meets)
