"""Which videos an answer speaks for: how many were searched by each stream, and what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from whenabouts.index.records import VideoRecord
from whenabouts.streams import all_streams
from whenabouts.streams import stream as stream_named
from whenabouts.types import number_of

if TYPE_CHECKING:
    from whenabouts.index.store import Store


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many `videos` there were to search, and how many of these each stream searched.

    `streams`: stream -> videos of which it has clips. `missing`: stream -> videos of which it has
    nothing though they have what it reads. `silent` counts videos of which no stream has a clip, `unseen`
    those of them whose pictures nobody has looked at: no answer comes from them.
    """

    videos: int
    streams: Mapping[str, int]
    missing: Mapping[str, int]
    silent: int = 0
    unseen: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether no stream was left out of any video that has what it reads."""
        return not any(self.missing.values())

    @property
    def searched(self) -> str:
        """What people call that which was searched, such as "words and pictures"; "" where nothing was."""
        return " and ".join(stream_named(name).title for name, count in self.streams.items() if count)

    @property
    def not_searched(self) -> str:
        """What is there and was searched in no video, and the remedy; "" where there is no such thing."""
        left_out = [
            stream_named(name) for name, count in self.missing.items() if count and not self.streams.get(name)
        ]
        return "; ".join(
            f"{stream.title} were not searched{stream.unsearched_for} ({stream.remedy})"
            for stream in left_out
        )

    @property
    def line(self) -> str:
        """One line for people: what was searched in how many videos, and what was not."""
        parts = [self._of(name, count) for name, count in self.streams.items() if count]
        searched = f"searched: {', '.join(parts) or 'nothing'}"
        return "; ".join(filter(None, (searched, self.not_searched, self.without_anything)))

    def _of(self, name: str, count: int) -> str:
        """What was searched of how many videos, and why not of the others."""
        title = stream_named(name).title
        if count == self.videos:
            return f"{title} of {f'all {count} videos' if count > 1 else 'the video'}"
        missing = self.missing.get(name, 0)
        others = f"of {missing} they are not indexed" if missing else "the others have none"
        return f"{title} of {count} of {self.videos} videos ({others})"

    @property
    def without_anything(self) -> str:
        """How many videos have nothing that can be found, and what follows; "" where all have something."""
        if not self.silent:
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
        """For programs."""
        return {
            "videos": self.videos,
            "streams": dict(self.streams),
            "not_searched": dict(self.missing),
            "nothing_to_find": self.silent,
            "text": self.line,
        }


def with_clips(store: Store, streams: Iterable[str]) -> dict[str, Collection[str]]:
    """Ids of the videos that have a clip, of those of some streams that may find none in a video they read.

    A stream of pictures has a clip of every video with a picture; of words or people there may be none.
    """
    sparse = (name for name in streams if stream_named(name).has_words or stream_named(name).filter_key)
    return {name: store.clip_counts(name).keys() for name in sparse}


def coverage_of(
    records: Iterable[VideoRecord],
    streams: Collection[str],
    searchable: Collection[str],
    holding: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Coverage:
    """The coverage of a search of some videos.

    `streams` are those that were asked (none: all that words can be asked), `searchable` those that can be
    searched. `holding` are the videos that have clips of a stream (`with_clips`); of one that it lacks the
    ledger says.
    """
    by_words = [name for name, stream in all_streams().items() if "text" in stream.meets]
    names = dict.fromkeys(streams or [*by_words, *searchable])
    videos = silent = unseen = 0
    held, missing = Counter[str](), Counter[str]()
    for record in records:
        if record.state == "failed":
            continue
        videos += 1
        own = [name for name in names if name in searchable and _holds(name, record, holding)]
        lacking = [name for name in names if _lacks(name, record, searchable)]
        held.update(own)
        missing.update(lacking)
        if not streams and not any("text" in stream_named(name).meets for name in own):
            silent += 1
            unseen += bool(lacking)
    of_streams = {name: held[name] for name in names if name in searchable or held[name]}
    return Coverage(videos, of_streams, missing, silent, unseen)


def _lacks(name: str, record: VideoRecord, searchable: Collection[str]) -> bool:
    """Whether a video has what a stream reads, and the stream is not finished there or cannot be searched."""
    stream = stream_named(name)
    return stream.could_hold(record) and not (name in searchable and stream.holds(record))


def _holds(name: str, record: VideoRecord, holding: Mapping[str, Collection[str]]) -> bool:
    stream = stream_named(name)
    is_there = name not in holding or record.video_id in holding[name]
    return is_there and stream.holds(record) and (record.has_picture or "picture" not in stream.meets)
