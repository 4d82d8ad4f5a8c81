"""Which videos an answer speaks for: how many were searched by each stream, and what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whenabouts.product.index.records import VideoRecord
from whenabouts.product.streams import all_streams
from whenabouts.product.streams import stream as stream_named


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many `videos` there were to search, and how many of these each stream searched.

    `streams`: stream -> videos of which it has clips. `missing`: stream -> videos of which it has
    nothing though they have what it reads.
    """

    videos: int
    streams: Mapping[str, int]
    missing: Mapping[str, int]

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
        return "; ".join(f"{stream.title} were not searched ({stream.remedy})" for stream in left_out)

    @property
    def line(self) -> str:
        """One line for people: what was searched in how many videos, and what was not."""
        all_of_them = f"all {self.videos} videos" if self.videos != 1 else "the video"
        parts = []
        for name, count in self.streams.items():
            if count:
                where = all_of_them if count == self.videos else f"{count} of {self.videos} videos"
                where += (
                    " (the others have none)" if count < self.videos and not self.missing.get(name) else ""
                )
                parts.append(f"{stream_named(name).title} of {where}")
        searched = f"searched: {', '.join(parts) or 'nothing'}"
        return "; ".join(filter(None, (searched, self.not_searched)))

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "videos": self.videos,
            "streams": dict(self.streams),
            "not_searched": dict(self.missing),
            "text": self.line,
        }


def coverage_of(
    records: Iterable[VideoRecord], streams: Collection[str], searchable: Collection[str]
) -> Coverage:
    """The coverage of a search of some videos.

    `streams` are those that were asked (none: all that words can be asked), `searchable` those that can be
    searched.
    """
    by_words = [name for name, stream in all_streams().items() if "text" in stream.meets]
    names = dict.fromkeys(streams or [*by_words, *searchable])
    videos, held, missing = 0, Counter[str](), Counter[str]()
    for record in records:
        if record.state == "failed":
            continue
        videos += 1
        for name in names:
            if name in searchable and stream_named(name).holds(record):
                held[name] += 1
            elif stream_named(name).could_hold(record):
                missing[name] += 1
    return Coverage(videos, {name: held[name] for name in names if name in searchable or held[name]}, missing)
