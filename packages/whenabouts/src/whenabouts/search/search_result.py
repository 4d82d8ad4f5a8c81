"""The answer to one query, as every caller gets it: moments, table, JSON, and HTML in a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, overload

from whenabouts.confidence.probability import PROBABLE
from whenabouts.index.records import VideoRecord, unambiguous
from whenabouts.search.coverage import Coverage
from whenabouts.search.questions import Rule
from whenabouts.streams import stream as stream_named
from whenabouts.times import format_time
from whenabouts.types import Answer, Evidence, Moment, ScoredMoment, UsageError, WhenaboutsError, number_of
from whenabouts.video.files import file_url
from whenabouts.video.objects import source_path
from whenabouts.video.thumbnails import thumbnail

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


STANDS_HERE, PROBABLY, MAYBE, UNLIKELY = "said here", "probably here", "maybe", "unlikely"
WRITTEN = "written here"
NOTHING = "nothing like it"
# With a positive word, a lower probability than this would contradict it.
_LEAST_BESIDE_YES = 0.5
# A picture takes a fraction of a second, and 10 kB in the notebook's file.
_MOST_ROWS = 20
_PIXELS_WIDE = 192


def word_of(answer: Answer, scored: ScoredMoment, *, is_first: bool) -> str:
    """The word for a moment of an answer; no moment is called surer than the answer."""
    if answer == "no_match":
        return UNLIKELY
    confidence = scored.confidence
    is_sure = is_first or scored.says_query or (confidence or 0.0) >= PROBABLE.match_at
    if answer == "match" and is_sure:
        strongest = next(iter(scored.evidence.values()), None)
        literal = WRITTEN if strongest and strongest.box else STANDS_HERE
        return literal if scored.says_query else PROBABLY
    if is_first or confidence is None or confidence >= PROBABLE.no_match_below:
        return MAYBE
    return UNLIKELY


def percent_beside(word: str, confidence: float | None) -> int | None:
    """The probability to show beside a word, in percent; None if unknown or contradicting the word.

    Never rounded up, so that a non-match does not look like a match.
    """
    probability = confidence or 0.0
    says_yes = word in (STANDS_HERE, WRITTEN, PROBABLY)
    is_contrary = probability < _LEAST_BESIDE_YES if says_yes else probability >= PROBABLE.match_at
    return None if confidence is None or word == UNLIKELY or is_contrary else int(100 * confidence)


def is_answer(answer: Answer, confidence: float | None) -> bool:
    """Whether a moment counts as an answer: with "no match" none does, with a match no unlikely one."""
    if answer == "match":
        return confidence is None or confidence >= PROBABLE.no_match_below
    return answer == "unsure"


def is_matched(answer: Answer, confidence: float | None, *, is_first: bool) -> bool:
    """Whether exports and cuts take a moment of a search, unless all are requested.

    With a match they take the first and those that match by themselves; with "unsure", the possible ones.
    """
    if answer == "no_match":
        return False
    least = PROBABLE.match_at if answer == "match" else PROBABLE.no_match_below
    return is_first or confidence is None or confidence >= least


@dataclass(frozen=True, slots=True)
class Places:
    """For a list of every place: the number of places, and how many were skipped before the first."""

    total: int
    skipped: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How an answer was checked: by which model, how many moments, and how often it is wrong.

    `counts`: whether its verdicts changed confidence and order; `line` says so for users; `rates` are its
    measured errors on this corpus (`checking.CheckRates`), None if unmeasured.
    """

    model: str
    moments: int
    counts: bool
    line: str
    rates: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RerankReport:
    """Which model ordered how many moments; `line` says so for users."""

    model: str
    moments: int
    line: str


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """Which model wrote which other queries, which were also searched."""

    model: str
    queries: tuple[str, ...]

    @property
    def line(self) -> str:
        """The queries, for users."""
        return f"also searched ({self.model}): {'; '.join(self.queries)}"

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, "queries": list(self.queries)}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query: ranked moments, best first, and a verdict on whether there is an answer.

    Iterating, indexing and `len` apply to the moments; a notebook shows a table with pictures.

    - `doubt`: why the answer is "unsure", else "". `notes`: for the user.
    - `interval`: 95 % interval of the first moment's confidence, None without one.
    - `calibration`: how often the three answers are wrong on this corpus (`calibration/`: `Report.summary`),
      None if unmeasured.
    - `coverage`: which videos each stream searched (for a trained system: its streams).
    - `places`: set if all places are listed, in order of time.
    - `like`: name of the query's example, "" without one.
    - `check`: how the answer was checked; `rerank`: which model ordered the moments; `rewrite`: which other
      queries were searched; None if not.
    - `understood`: the rules that interpreted the query (`questions.py`); `words`: the event searched for.
    - `is_in_order`: the moments are in order of time.
    - `spelling`: the query as the corpus spells it (`spelling.py`), "" if it has its words or none like them.
    - `titled`: videos with all words of the query in their title or file name, if no filter was given.
    """

    query: str
    answer: Answer
    moments: tuple[ScoredMoment, ...]
    videos: Mapping[str, VideoRecord] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubt: str = ""
    calibration: Mapping[str, Any] | None = None
    coverage: Coverage | None = None
    interval: tuple[float, float] | None = None
    places: Places | None = None
    like: str = ""
    check: CheckReport | None = None
    understood: tuple[Rule, ...] = ()
    words: str = ""
    is_in_order: bool = False
    rerank: RerankReport | None = None
    rewrite: RewriteReport | None = None
    spelling: str = ""
    titled: tuple[VideoRecord, ...] = ()

    @property
    def question(self) -> str:
        """The question for users: the words, the example, or both."""
        return ", ".join(filter(None, (self.query, f"like {self.like}" if self.like else "")))

    @property
    def understood_line(self) -> str:
        """The applied rules on one line: "understood: first; in: lecture-3"; "" if none."""
        labels = "; ".join(rule.label for rule in self.understood)
        return f"understood: {labels}" if labels else ""

    def __iter__(self) -> Iterator[ScoredMoment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.moments)

    @overload
    def __getitem__(self, rank: int) -> ScoredMoment: ...

    @overload
    def __getitem__(self, rank: slice) -> tuple[ScoredMoment, ...]: ...

    def __getitem__(self, rank: int | slice) -> ScoredMoment | tuple[ScoredMoment, ...]:
        return self.moments[rank]

    def _repr_html_(self) -> str:
        return _html_of(self)

    def instant(self, scored: ScoredMoment) -> float:
        """The second of a moment to show as a picture: the middle of what was seen, else of the whole.

        Evidence with a place in the picture comes first, so that the place can be shown.
        """
        placed = next((piece for piece in scored.evidence.values() if piece.box is not None), None)
        seen = (piece for name, piece in scored.evidence.items() if "picture" in stream_named(name).meets)
        frames = placed or next(seen, None)
        return (frames.start + frames.end) / 2 if frames else scored.moment.middle

    def to_arrow(self) -> pa.Table:
        """The moments as a table, one row each; `streams` are those that found it."""
        import pyarrow as pa

        rows = [self._row(rank, scored) for rank, scored in self.numbered]
        return pa.Table.from_pylist(rows, schema=pa.schema(_columns()))

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame. Raises UsageError without pandas."""
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise UsageError(
                f"to_pandas needs {error.name}, which is not installed: pip install 'whenabouts[notebook]'; "
                "or take to_arrow() or to_json()"
            ) from error

    def _row(self, rank: int, scored: ScoredMoment) -> dict[str, Any]:
        row = self.moment_json(rank, scored)
        return {**row, "title": unambiguous(scored.title), "streams": list(scored.evidence)}

    @property
    def word(self) -> str:
        """The answer in words."""
        if self.moments and self.answer != "no_match":
            return self.word_of(self.moments[0])
        return STANDS_HERE if self.places and self.places.total else NOTHING

    def word_of(self, scored: ScoredMoment) -> str:
        """The word for one of the moments."""
        return word_of(self.answer, scored, is_first=scored is self.moments[0])

    @property
    def numbered(self) -> list[tuple[int, ScoredMoment]]:
        """The moments with their ranks; for all places, with their numbers in order of time."""
        return list(enumerate(self.moments, 1 + (self.places.skipped if self.places else 0)))

    @property
    def answers(self) -> tuple[ScoredMoment, ...]:
        """The moments that count as answers (`is_answer`)."""
        return tuple(scored for scored in self.moments if is_answer(self.answer, scored.confidence))

    @property
    def matched(self) -> tuple[ScoredMoment, ...]:
        """The moments that exports and cuts take (`is_matched`)."""
        return tuple(
            scored
            for number, scored in enumerate(self.moments)
            if is_matched(self.answer, scored.confidence, is_first=number == 0)
        )

    def name(self, scored: ScoredMoment) -> str:
        """The name of a moment's video: its file's name, else its id."""
        return self.videos[scored.video_id].file_name

    def link(self, scored: ScoredMoment) -> str:
        """A link to the moment: the URI of a file or an S3 object, with a media fragment (W3C)."""
        return f"{file_url(self.videos[scored.video_id].path)}#t={scored.start:.3f},{scored.end:.3f}"

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values; times are float seconds, spans half-open."""
        return {
            "query": self.query,
            "like": self.like,
            "understood": [asdict(rule) for rule in self.understood],
            "answer": self.answer,
            "word": self.word,
            "confidence_interval": None if self.interval is None else list(self.interval),
            "moments": [self.moment_json(rank, scored) for rank, scored in self.numbered],
            "places": None if self.places is None else asdict(self.places),
            "notes": [*self.notes, *([self.doubt] if self.doubt else [])],
            "calibration": None if self.calibration is None else dict(self.calibration),
            "searched": None if self.coverage is None else self.coverage.to_json(),
            **({} if self.check is None else {"check": asdict(self.check)}),
            **({} if self.rerank is None else {"rerank": asdict(self.rerank)}),
            **({} if self.rewrite is None else {"rewrite": self.rewrite.to_json()}),
            **({"spelling": self.spelling} if self.spelling else {}),
            **({"titled": [record.file_name for record in self.titled]} if self.titled else {}),
        }

    def moment_json(self, rank: int, scored: ScoredMoment) -> dict[str, Any]:
        """A moment as in `to_json`."""
        moment = scored.moment
        return {
            "rank": rank,
            "video_id": moment.video_id,
            "path": unambiguous(self.videos[moment.video_id].path),
            "start": round(moment.start, 3),
            "end": round(moment.end, 3),
            "score": scored.score,
            "word": self.word_of(scored),
            "confidence": scored.confidence,
            "chance_percentile": scored.chance_percentile,
            "evidence": {
                name: {
                    "score": piece.score,
                    "start": round(piece.start, 3),
                    "end": round(piece.end, 3),
                    "text": piece.text,
                    "box": None if piece.box is None else [round(side, 4) for side in piece.box],
                    "recognised": None if piece.recognised is None else round(piece.recognised, 3),
                }
                for name, piece in scored.evidence.items()
            },
            "text": scored.text,
            "link": self.link(scored),
            **({} if scored.verdict is None else {"verdict": asdict(scored.verdict)}),
            **({} if scored.reranked is None else {"reranked": asdict(scored.reranked)}),
            **({} if scored.partner is None else {"partner": partner_of(scored.partner)}),
        }


def partner_of(moment: Moment) -> dict[str, float]:
    """Start and end of the other event's moment, rounded like all times."""
    return {"start": round(moment.start, 3), "end": round(moment.end, 3)}


def _columns() -> list[tuple[str, pa.DataType]]:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    return [
        ("rank", pa.int64()),
        *((name, text) for name in ("video_id", "path", "title")),
        *((name, number) for name in ("start", "end", "score", "confidence")),
        ("streams", pa.list_(text)),
        *((name, text) for name in ("text", "link")),
    ]


# In a notebook ----------------------------------------------------------------------------------------


def _html_of(result: SearchResult) -> str:
    """The answer as an HTML table: no scripts, all text escaped, pictures as data URIs.

    Pictures are made at once, and only from files that are unchanged since indexing.
    """
    count = number_of(len(result), "moment")
    head = f"{count} for “{escape(result.question)}”: {result.answer.replace('_', ' ')}"
    if result.doubt:
        head += f" ({escape(result.doubt)})"
    rows = [_html_row(result, rank, scored) for rank, scored in result.numbered[:_MOST_ROWS]]
    notes = [escape(note) for note in result.notes]
    if len(result) > _MOST_ROWS:
        notes.append(f"and {len(result) - _MOST_ROWS} more")
    return (
        f"<div><p><b>{head}</b></p><table>{''.join(rows)}</table>"
        + "".join(f"<p>{note}</p>" for note in notes)
        + "</div>"
    )


def _html_row(result: SearchResult, rank: int, scored: ScoredMoment) -> str:
    record = result.videos[scored.video_id]
    picture = _picture(record, result.instant(scored))
    image = "" if picture is None else _framed(picture, scored.evidence.values())
    name, title = escape(result.name(scored)), escape(unambiguous(scored.title))
    confidence = "" if scored.confidence is None else f"{scored.confidence:.2f}"
    cells = [
        str(rank),
        image,
        f"<b>{name}</b>" + (f"<br>{title}" if title and title != name else ""),
        f"{format_time(scored.start)} - {format_time(scored.end)}",
        confidence,
        "<br>".join(
            f"{escape(stream)}: {escape(unambiguous(stream_named(stream).evidence_text(piece)))}"
            for stream, piece in scored.evidence.items()
        ),
    ]
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def _framed(picture: str, pieces: Iterable[Evidence]) -> str:
    """A picture with a frame around each piece of evidence in it."""
    image = f'<img alt="" width="{_PIXELS_WIDE}" style="display:block" src="{picture}">'
    frames = ""
    for left, top, right, bottom in (piece.box for piece in pieces if piece.box is not None):
        shares = {"left": left, "top": top, "width": right - left, "height": bottom - top}
        place = ";".join(f"{name}:{100 * share:.1f}%" for name, share in shares.items())
        frames += f'<span style="position:absolute;outline:2px solid #f5a623;{place}"></span>'
    return f'<div style="position:relative;width:{_PIXELS_WIDE}px">{image}{frames}</div>'


def _picture(record: VideoRecord, at: float) -> str | None:
    """A data URI; None without a picture, or if the file is gone or has changed."""
    if not record.has_picture:
        return None
    try:
        status = source_path(record.path).stat()
        if (status.st_size, status.st_mtime_ns) != (record.size, record.modified_ns):
            return None
        return _data_uri(record.path, record.modified_ns, at)
    except (WhenaboutsError, OSError):
        return None


@lru_cache(maxsize=200)
def _data_uri(path: str, modified_ns: int, at: float) -> str:
    return "data:image/jpeg;base64," + b64encode(thumbnail(source_path(path), at, _PIXELS_WIDE)).decode()
