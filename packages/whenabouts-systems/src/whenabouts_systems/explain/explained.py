"""A system's explanation of an answer: word weights, borders and moments, as text lines and as JSON.

Shapes: N words, T clips of one video.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import clip_among
from whenabouts.times import format_time
from whenabouts.types import Moment, ScoredMoment

if TYPE_CHECKING:
    from whenabouts.shown import Line

MEETS = 0.5
"""The least IoU of an answer that meets the truth: the lower of the papers' two thresholds."""
_MAX_WORDS = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """The N words of a query with their weights: stream -> (N,), which add up to 1.

    `named` is false if the words that the system read are unknown; they are then numbered.
    """

    words: tuple[str, ...]
    weights: Mapping[str, tuple[float, ...]]
    named: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        weights = {stream: [round(weight, 5) for weight in row] for stream, row in self.weights.items()}
        return {"words": list(self.words), "named": self.named, "weights": weights}

    def lines(self) -> list[str]:
        """One line for each stream, with its words of the largest weights."""
        lines = []
        for stream, row in self.weights.items():
            order = sorted(range(len(row)), key=lambda at: -row[at])[:_MAX_WORDS]
            lines.append(f"{stream}: " + ", ".join(f"{self.words[at]} {_percent(row[at])}" for at in order))
        return lines


@dataclass(frozen=True, slots=True)
class Place:
    """A border of a moment: its probability, and the rank of its clip (from 1) among all clips."""

    probability: float
    rank: int


@dataclass(frozen=True, slots=True, eq=False)
class Borders:
    """The probabilities of start and end in one video, for its clips [low, high) in seconds; all (T,).

    `start` and `end` each add up to 1. If `exclusive`, a moment ends where its end clip begins, otherwise
    where that clip ends. `answered` is the system's best moment in this video. `shares` is stream -> (T,)
    weights, which add up to 1 over streams, for systems that weigh streams clip by clip.
    """

    low: Floats
    high: Floats
    start: Floats
    end: Floats
    exclusive: bool
    answered: Moment | None
    shares: Mapping[str, Floats] = field(default_factory=dict)

    def of(self, moment: Moment) -> tuple[Place, Place]:
        """The places of a moment's start and end."""
        first = clip_among(self.low, moment.start)
        last = clip_among(self.low, moment.end, ends=not self.exclusive)
        return self._place(self.start, first), self._place(self.end, last)

    @staticmethod
    def _place(values: Floats, clip: int) -> Place:
        return Place(float(values[clip]), 1 + int(np.count_nonzero(values > values[clip])))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        shares = {stream: _rounded(values, 4) for stream, values in self.shares.items()}
        return {
            "clips": {"start": _rounded(self.low, 3), "end": _rounded(self.high, 3)},
            "start_probability": _rounded(self.start, 5),
            "end_probability": _rounded(self.end, 5),
            "answered": None if self.answered is None else moment_to_json(self.answered),
            **({"stream_shares": shares} if shares else {}),
        }

    def share_line(self, moment: Moment) -> str:
        """The mean weight of each stream within a moment, as text."""
        inside = (self.low < moment.end) & (self.high > moment.start)
        if not inside.any():
            return ""
        means = {stream: float(values[inside].mean()) for stream, values in self.shares.items()}
        return ", ".join(f"{stream} {_percent(share)}" for stream, share in means.items())

    def lines(self, moment: Moment) -> list[str]:
        """The probabilities of a moment's borders, and the most probable borders, as text."""
        start, end = self.of(moment)
        best_start, best_end = int(self.start.argmax()), int(self.end.argmax())
        last = self.low if self.exclusive else self.high
        return [
            _border("starts", moment.start, start, float(self.low[best_start]), self.start[best_start]),
            _border("ends", moment.end, end, float(last[best_end]), self.end[best_end]),
        ]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One of a system's best moments.

    `duration` is that of its video in seconds, None if unknown; `iou` is the IoU with the truth, None if the
    truth is unknown. `frame` is one from its middle, None if it was not read (`film.py: with_film`).
    """

    rank: int
    moment: Moment
    score: float
    duration: float | None = None
    iou: float | None = None
    frame: Frame | None = None

    @property
    def meets(self) -> bool | None:
        """Whether it meets the truth; None if the truth is unknown."""
        return None if self.iou is None else self.iou >= MEETS

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        record = {"rank": self.rank, **moment_to_json(self.moment), "score": self.score}
        return {**record, "duration": self.duration, "iou": self.iou, "meets": self.meets}

    def line(self) -> str:
        """Return a line of text."""
        sign = {None: "", True: "  meets the truth", False: "  not the truth"}[self.meets]
        overlap = f"  (IoU {self.iou:.2f})" if self.iou else ""
        return f"{self.rank}. {span(self.moment)}  score {self.score:.3f}{sign}{overlap}"


@dataclass(frozen=True, slots=True)
class SimilarClip:
    """The clip most similar to the query at a `place` ("inside", "outside", "anywhere") in some streams."""

    moment: Moment
    place: str
    cosines: Mapping[str, float]
    frame: Frame | None = None

    def label(self) -> str:
        """Return a text without the times."""
        cosines = ", ".join(f"{stream} {cosine:.2f}" for stream, cosine in self.cosines.items())
        return f"most like the query, {self.place}: {cosines}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**moment_to_json(self.moment), "place": self.place, "cosines": dict(self.cosines)}


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """One system's explanation; `token_weights` and `borders` are None if the system gives none."""

    name: str
    system: str
    token_weights: TokenWeights | None
    borders: Borders | None
    moments: tuple[Ranked, ...]
    notes: tuple[str, ...] = ()
    similar_clips: tuple[SimilarClip, ...] = ()

    @property
    def tells_along(self) -> bool:
        """Whether it tells anything along the video: borders, or the most similar clips."""
        return self.borders is not None or bool(self.similar_clips)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "name": self.name,
            "system": self.system,
            "heard": None if self.token_weights is None else self.token_weights.to_json(),
            "borders": None if self.borders is None else self.borders.to_json(),
            "similar_clips": [clip.to_json() for clip in self.similar_clips],
            "moments": [ranked.to_json() for ranked in self.moments],
            "notes": list(self.notes),
        }

    def rank_of(self, moment: Moment) -> int | None:
        """The rank of the first answer that meets a moment; None without one."""
        return next((ranked.rank for ranked in self.moments if ranked.moment.iou(moment) >= MEETS), None)

    def lines(self, truth: Sequence[Moment], video_id: str) -> list[str]:
        """Return lines of text."""
        lines = [f"{self.name} ({self.system})"]
        if self.token_weights is not None:
            lines += [f"  {line}" for line in self.token_weights.lines()]
        if self.borders is not None:
            lines += self._border_lines(truth, video_id)
        lines += [f"  {clip.label()}  {span(clip.moment)}" for clip in self.similar_clips]
        lines += [f"  {ranked.line()}" for ranked in self.moments]
        return [*lines, *(f"  note: {note}" for note in self.notes)]

    def _border_lines(self, truth: Sequence[Moment], video_id: str) -> list[str]:
        assert self.borders is not None
        lines = []
        if self.borders.answered is not None:
            best = max((self.borders.answered.iou(moment) for moment in truth), default=None)
            overlap = "" if best is None else f" (IoU {best:.2f})"
            lines.append(f"  best in this video: {span(self.borders.answered)}{overlap}")
            if self.borders.shares:
                lines.append(f"  what counts there: {self.borders.share_line(self.borders.answered)}")
        for moment in truth:
            if moment.video_id == video_id:
                lines += [f"  the truth {line}" for line in self.borders.lines(moment)]
        return lines


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the video as JPEG, with its time in seconds, a label below it and the colour of its border.

    `boxes` (left, top, right, bottom, as shares of the picture) mark words of the query on the screen.
    """

    seconds: float
    jpeg: bytes = field(repr=False)
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    label: str = ""
    border: str = ""


@dataclass(frozen=True, slots=True)
class Film:
    """The frames and words of a corpus's video by time, and notes on missing ones."""

    frames: tuple[Frame, ...] = ()
    words: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()

    def with_similar(self, clips: Sequence[SimilarClip], border: str) -> Film:
        """The film with the clips' frames, labelled; each replaces the closest frame without a label."""
        frames = list(self.frames)
        for clip in clips:
            if (shown := clip.frame) is not None:
                if plain := [frame for frame in frames if not frame.label]:
                    frames.remove(min(plain, key=lambda frame: abs(frame.seconds - shown.seconds)))
                frames.append(replace(shown, label=clip.label(), border=border))
        return replace(self, frames=tuple(sorted(frames, key=lambda frame: frame.seconds)))

    def to_json(self) -> dict[str, Any]:
        """The frames' seconds, and all words, as plain values."""
        return {
            "frames": [round(frame.seconds, 3) for frame in self.frames],
            "words": [
                {"start": round(line.start, 3), "end": round(line.end, 3), "text": line.text}
                for line in self.words
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """A query with the explanations of one or two systems.

    `video_id` is the video whose borders are shown, `duration` its seconds or None. `truth` are the known
    right moments in all videos. `query_id` is "" for a query outside of data sets. `film` holds the video's
    frames and words, None if they were not read (`film.py: with_film`).
    """

    query: str
    query_id: str
    video_id: str
    duration: float | None
    truth: tuple[Moment, ...]
    systems: tuple[Explained, ...]
    film: Film | None = None

    @property
    def truth_here(self) -> tuple[Moment, ...]:
        """The right moments in the video whose borders are shown."""
        return tuple(moment for moment in self.truth if moment.video_id == self.video_id)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "query": self.query,
            "query_id": self.query_id or None,
            "video_id": self.video_id,
            "duration": self.duration,
            "truth": [moment_to_json(moment) for moment in self.truth],
            "systems": [system.to_json() for system in self.systems],
            **({} if self.film is None else self.film.to_json()),
        }

    def lines(self) -> list[str]:
        """Return lines of text."""
        named = f"query {self.query_id}: " if self.query_id else ""
        lines = [f"{named}“{self.query}”", *(f"truth: {span(moment)}" for moment in self.truth)]
        for system in self.systems:
            lines += ["", *system.lines(self.truth, self.video_id)]
        if self.film is not None and self.film.notes:
            lines += ["", *(f"note: {note}" for note in self.film.notes)]
        return lines


def ranked_of(
    moments: Sequence[ScoredMoment], seconds: Mapping[str, float | None], truth: Sequence[Moment] = ()
) -> list[Ranked]:
    """Moments, best first, compared with the truth; `seconds` is video id -> duration."""
    return [
        Ranked(
            rank,
            scored.moment,
            scored.score,
            seconds.get(scored.moment.video_id),
            overlap_with(truth, scored.moment),
        )
        for rank, scored in enumerate(moments, 1)
    ]


def moment_to_json(moment: Moment) -> dict[str, Any]:
    """A moment as plain values, with times to the millisecond."""
    return {"video_id": moment.video_id, "start": round(moment.start, 3), "end": round(moment.end, 3)}


def overlap_with(truth: Sequence[Moment], moment: Moment) -> float | None:
    """The largest IoU with the truth; None without a truth."""
    return max((moment.iou(true) for true in truth), default=None)


def span(moment: Moment) -> str:
    """A moment as text: VIDEO@START-END."""
    return f"{moment.video_id}@{format_time(moment.start)}-{format_time(moment.end)}"


def _border(verb: str, seconds: float, place: Place, likeliest: float, highest: float) -> str:
    sentence = f"{verb} at {format_time(seconds)}: {_percent(place.probability)}"
    if place.rank == 1:
        return f"{sentence}, the likeliest place"
    return (
        f"{sentence}, place {place.rank}; the likeliest is {format_time(likeliest)} with {_percent(highest)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def _rounded(values: Floats, digits: int) -> list[float]:
    return [round(value, digits) for value in values.tolist()]
