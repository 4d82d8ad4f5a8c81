"""The bodies of requests and answers, from which the OpenAPI description is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import fastapi
from pydantic import (
    AfterValidator,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from whenabouts.export.transcript import TranscriptFormat
from whenabouts.index.filters import Condition
from whenabouts.people.naming import LONGEST_NAME
from whenabouts.search.library import Sort
from whenabouts.search.options import MOST_K
from whenabouts.search.questions import RuleName
from whenabouts.server.errors import Problem
from whenabouts.server.proxied import Address
from whenabouts.times import parse_date
from whenabouts.types import LONGEST_SECONDS, UsageError

MOST_QUERY_CHARACTERS = 2000
# Size of an uploaded picture before base64.
MOST_PICTURE_BYTES = 6 << 20
MOST_PAGE = 50
MOST_LISTED = 50
MOST_MOMENTS = 200


def _read_by(parse: Callable[[str], object]) -> AfterValidator:
    """A validator that refuses a text if `parse` raises UsageError, with the same message."""

    def check(text: str) -> str:
        try:
            parse(text)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


Query = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MOST_QUERY_CHARACTERS,
        pattern=r"\S",
        description='what to look for, in your own words; "quoted" words must be said exactly',
    ),
]
Date = Annotated[str, Field(min_length=4, max_length=40), _read_by(parse_date)]
Where = Annotated[str, Field(min_length=3, max_length=500), _read_by(Condition.parse)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
Best = Annotated[int, Field(ge=1, le=MOST_K)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
MomentName = Annotated[
    str,
    Field(
        min_length=5,
        max_length=400,
        pattern=r"^[^@]+@[0-9:.]+s?-[0-9:.]+s?$",
        description="VIDEO_ID@START-END, times in seconds or as h:mm:ss.mmm",
    ),
]
ExampleName = Annotated[
    str,
    Field(
        min_length=3,
        max_length=400,
        pattern=r"^[^@]+@[0-9:.]+s?(-[0-9:.]+s?)?$",
        description="moments like this one: VIDEO_ID@TIME or VIDEO_ID@START-END",
    ),
]
PictureBytes = Annotated[
    Base64Bytes,
    Field(
        max_length=MOST_PICTURE_BYTES,
        description="moments like this picture: a JPEG, PNG, WebP, GIF, BMP or TIFF file in base64",
    ),
]
PageLimit = Annotated[int, Field(ge=1, le=MOST_PAGE, description="results on a page")]
VideoId = Annotated[str, fastapi.Path(max_length=300)]
SegmentSeconds = Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)]


class Strict(BaseModel):
    """Parameters; unknown ones are refused, and so are true and false where a number is expected."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            raise ValueError("neither true nor false is accepted here")
        return value


class NoParameters(Strict):
    """For routes without parameters."""


NoQuery = Annotated[NoParameters, fastapi.Query()]


class LibraryParameters(Strict):
    """Which videos: by recording date and by facts."""

    after: Date | None = Field(default=None, description="recorded at or after this date")
    before: Date | None = Field(default=None, description="recorded before this date")
    where: list[Where] = Field(
        default_factory=list,
        max_length=20,
        description="conditions: KEY=VALUE, KEY>=N …; keys are those of metadata, name, path, duration, "
        "video.folder, video.stream, video.state and video.corpus",
    )


class Narrowing(LibraryParameters):
    """Which moments may answer."""

    within: list[Name] = Field(
        default_factory=list, max_length=MOST_LISTED, description="only in these videos: ids or file names"
    )
    stream: list[Name] = Field(default_factory=list, max_length=10, description="search only these streams")
    min_confidence: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    model: Name | None = Field(
        default=None, description="search with this trained system, one of `models` in /api/stats"
    )
    segments: SegmentSeconds | None = Field(
        default=None,
        description="with a model, for long videos: search segments of this length, as made by `whenabouts "
        "index --segments`",
    )
    all: bool = Field(
        default=False,
        description="list every place that has all words and all quoted phrases, by video and time",
    )
    literal: list[Literal[RuleName, "all"]] = Field(
        default_factory=list,
        max_length=20,
        description='rules to turn off ("all": every one); their words are then searched literally',
    )


class SearchRequest(Narrowing):
    """A query of words, of an example moment, or of both; and which moments may answer it."""

    query: Query | None = None
    like: ExampleName | None = None
    k: Best | None = Field(default=None, description="number of moments (default 10; with `all`: all places)")
    check: bool = Field(
        default=False,
        description="let the server's checker look at the best moments (`checker` in /api/stats)",
    )
    check_best: int = Field(default=5, ge=1, le=20, description="with `check`: how many moments")
    rerank: bool = Field(
        default=False,
        description="let the server's reranker order the first moments (`reranker` in /api/stats)",
    )
    rewrite: bool = Field(
        default=False,
        description="search also in the words of the server's rewriter (`rewriter` in /api/stats)",
    )

    @property
    def asks_models(self) -> bool:
        """Whether models also work on the answer, which takes seconds."""
        return self.check or self.rerank or self.rewrite


class VerdictBody(BaseModel):
    """The checker's verdict on a moment, and its proposed start and end (null: unchanged)."""

    matches: bool
    reason: str
    start: float | None
    end: float | None


class CheckBody(BaseModel):
    """The model that checked the first moments, and their number; `line` says how often it is wrong.

    `counts`: whether its verdict changed confidence and order. `rates`: its error rates measured on this
    corpus, null if there are none.
    """

    model: str
    moments: int
    counts: bool
    line: str
    rates: dict[str, Any] | None


class RerankBody(BaseModel):
    """The model that reordered the first moments, and their number; `line` says so in words."""

    model: str
    moments: int
    line: str


class RewriteBody(BaseModel):
    """The model that wrote further queries, and these queries, which were searched as well."""

    model: str
    queries: list[str]


class RerankedBody(BaseModel):
    """The reranker's score of a moment, and its rank before."""

    score: float
    rank_before: int


class PageParameters(Strict):
    """Which page of a list."""

    page_limit: PageLimit = MOST_PAGE
    page_token: str | None = Field(
        default=None, min_length=1, max_length=200, description="`next_page_token` of the previous page"
    )

    @property
    def subject(self) -> str:
        """What a page token is bound to: the request without the page's length and offset."""
        left_out = {"page_limit", "page_token", "skip"}
        return json.dumps(self.model_dump(mode="json", exclude=left_out), sort_keys=True)


class SearchParameters(SearchRequest, PageParameters):
    """A search, and which page of its answer to return."""


class VideosParameters(LibraryParameters, PageParameters):
    """Which videos, their order, and the page: by token, or after the first `skip`."""

    sort: Sort = "id"
    descending: bool = False
    skip: int = Field(default=0, ge=0, le=1 << 31, description="number of videos before the page")


class SearchBodyParameters(SearchParameters):
    """A search, and which page of its answer to return; the example may be a picture."""

    picture: PictureBytes | None = None


class ListOptions(Strict):
    """The format of a list, and what it says of its moments."""

    format: str = Field(default="json", min_length=1, max_length=20, pattern=r"^[a-z0-9]+$")
    notes: bool = Field(default=True, description="with notes and tags of a collection")
    from_zero: bool = Field(default=False, description="times count from 0, not from the camera's time code")


class ExportParameters(Narrowing, ListOptions):
    """Either a query with its filters, or moments by name."""

    query: Query | None = None
    moments: str | None = Field(
        default=None, min_length=5, max_length=20_000, description="VIDEO_ID@START-END, separated by commas"
    )
    k: Best | None = Field(default=None, description="number of moments (default 5; with `all`: all places)")
    all_moments: bool = Field(
        default=False, description="all `k` moments of a query, including those that do not match"
    )


class SpanParameters(Strict):
    """A time range of a video; without one, all of it."""

    start: Seconds | None = None
    end: Seconds | None = None


class TranscriptParameters(Strict):
    """The format of a transcript."""

    format: TranscriptFormat = Field(default="vtt", description="subtitles (srt, vtt), or text without times")


class ClipParameters(Strict):
    """The range to cut, in seconds, [start, end)."""

    start: Seconds
    end: Seconds


class ThumbnailParameters(Strict):
    """An instant in seconds, and a width in pixels."""

    at: Seconds = 0.0
    width: int = Field(default=320, ge=16, le=1280)


class CurvesParameters(Strict):
    """A query, and the streams to compute curves for (empty: all)."""

    query: Query
    stream: list[Name] = Field(default_factory=list, max_length=10)


class HighlightsParameters(Strict):
    """A trained system with a saliency head, and a query (null: general highlights)."""

    model: Name
    query: Query | None = None
    k: Best = 5


class WhyParameters(Strict):
    """A query and a moment that should answer it."""

    query: Query
    moment: MomentName
    k: Best = 10


class ExplainParameters(WhyParameters):
    """A query, a moment that should answer it, and the trained system to explain."""

    model: Name


class SpanBody(BaseModel):
    """A range of time, [start, end) in seconds."""

    start: float
    end: float


class EvidenceBody(SpanBody):
    """The best match of one stream.

    `box`: its place in the picture: left, top, right, bottom as shares of width and height. `recognised`: the
    recogniser's confidence in speech or on-screen text, from 0 to 1; null for text that was not recognised.
    """

    score: float
    text: str
    box: list[float] | None = None
    recognised: float | None = None


class RuleBody(BaseModel):
    """A rule that interpreted part of the query. Users see `label`; `literal` turns it off by `name`."""

    name: RuleName
    label: str


class PartnerBody(SpanBody):
    """Where the other event is, for a query about two events in order."""


class ResultBody(BaseModel):
    """A moment, half-open [start, end) in seconds.

    `word`: "said here", "written here", "probably here", "maybe" or "unlikely". `percent`: the confidence to
    show beside it; null if there is none or it would contradict the word. `labels`: describes evidence
    without text, such as "the picture"; "" if nothing need be shown.
    """

    rank: int
    video_id: str
    title: str
    start: float
    end: float
    score: float
    word: str
    percent: int | None
    confidence: float | None
    chance_percentile: float | None
    text: str
    evidence: dict[str, EvidenceBody]
    labels: dict[str, str]
    verdict: VerdictBody | None = Field(default=None, exclude_if=lambda verdict: verdict is None)
    reranked: RerankedBody | None = Field(default=None, exclude_if=lambda reranked: reranked is None)
    partner: PartnerBody | None = Field(default=None, exclude_if=lambda partner: partner is None)
    name: str
    folder: str | None = Field(description="folder of its file; null if paths are hidden")
    thumbnail_url: Address | None
    clip_url: Address | None
    video_url: Address | None
    link: Address


class PageInfo(BaseModel):
    """The position of a page in the whole answer."""

    limit_per_page: int
    total_results: int
    next_page_token: str | None


class SearchPool(BaseModel):
    """The videos of the corpus: their number and total seconds."""

    total_count: int
    total_duration: float


class SearchedBody(BaseModel):
    """How many videos could be searched, and how many each stream searched; `text` says it for users.

    `not_searched`: videos with input for a stream that did not index them. `nothing_to_find`: videos that
    none of the searched streams has indexed.
    """

    videos: int
    streams: dict[str, int]
    not_searched: dict[str, int]
    nothing_to_find: int
    text: str


class PlacesBody(BaseModel):
    """For a list of every place: how many there are, and how many were skipped before the first."""

    total: int
    skipped: int


class SearchBody(BaseModel):
    """The answer to a search. `doubt` says why it is "unsure", `calibration` how often it is wrong here.

    `word`: the answer in words, as of a moment or "nothing like it". `query`: the words of the query;
    `like`: the name of the example moment or picture; "" if there is none.

    `confidence`: probability that a moment is right; `confidence_interval`: its range for the first
    moment; `chance_percentile`: share of unrelated queries that score lower.

    `understood`: rules that interpreted the query; `words`: the event that was then searched for.
    """

    query: str
    understood: list[RuleBody]
    words: str
    like: str
    answer: Literal["match", "unsure", "no_match"]
    word: str
    confidence_interval: tuple[float, float] | None
    doubt: str
    notes: list[str]
    data: list[ResultBody]
    page_info: PageInfo
    search_pool: SearchPool
    searched: SearchedBody | None
    places: PlacesBody | None
    stream_titles: dict[str, str]
    calibration: dict[str, Any] | None
    check: CheckBody | None = Field(default=None, exclude_if=lambda check: check is None)
    rerank: RerankBody | None = Field(default=None, exclude_if=lambda rerank: rerank is None)
    rewrite: RewriteBody | None = Field(default=None, exclude_if=lambda rewrite: rewrite is None)
    spelling: str = Field(
        default="",
        exclude_if=lambda spelling: not spelling,
        description="the query as the corpus spells it, if it lacks a word of it",
    )
    titled: dict[str, str] = Field(
        default={},
        exclude_if=lambda titled: not titled,
        description="video id -> title, of videos that have all words of the query in title or file name",
    )


class VideoBody(BaseModel):
    """A video in the list."""

    video_id: str
    title: str
    name: str
    kind: Literal["media", "transcript"]
    duration: float | None
    language: str
    streams: list[str]
    gone: bool = Field(description="whether its file is missing")
    state: Literal["fine", "damaged", "missing", "unreadable"]
    damage: str = Field(description="what could not be read")
    remedy: str = Field(description="how to repair it, in a sentence")
    words: str = Field(description="the first words of a video without a picture")
    folder: str | None = Field(description="folder of its file; null if paths are hidden")
    indexed: str = Field(description="when it was last indexed")
    recorded: str
    recorded_from: str = Field(
        description='the metadata key that gives the date, or "modified" for that of the file'
    )
    has_picture: bool
    thumbnail_url: Address | None
    video_url: Address | None


class VideosBody(BaseModel):
    """A page of the list of videos. `total` counts all; `stream_titles` are the names shown to users.

    `by_words` are the streams that a sentence searches; others are compared with an example, or narrow.
    """

    data: list[VideoBody]
    total: int
    page_info: PageInfo
    stream_titles: dict[str, str]
    by_words: list[str]


class FacetValueBody(BaseModel):
    """A value, how many videos have it, and the condition that filters by it."""

    value: str
    title: str
    count: int
    where: str


class FacetBody(BaseModel):
    """The values of one key; `more` counts those left out."""

    key: str
    title: str
    values: list[FacetValueBody]
    more: int


class FacetsBody(BaseModel):
    """Values that videos share, and the number of videos. `root`: the common parent folder of all videos."""

    data: list[FacetBody]
    videos: int
    root: str | None


class RelocationRequest(Strict):
    """The new path of a moved file."""

    path: Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]+$")]


class StreamOfVideo(BaseModel):
    """A stream indexed for a video. `since` is null if an earlier version did not record it."""

    stream: str
    title: str
    since: str | None


class ChapterBody(SpanBody):
    """A chapter; `title` is empty if the file gives none."""

    title: str


class VideoDetails(VideoBody):
    """All facts of a video; those read from the file are null if it is missing."""

    metadata: dict[str, Any]
    words_from: str
    indexed_streams: list[StreamOfVideo]
    shots: list[float] | None
    available: bool
    unavailable: Problem | None = Field(description="why its file is unavailable")
    place: str | None = Field(description="path of its file when indexed; null if paths are hidden")
    content_type: str | None
    frame_rate: float | None
    start_timecode: str = Field(default="", description="time code of its first frame, if it states one")
    width: int | None
    height: int | None
    codec: str | None
    has_audio: bool | None
    chapters: list[ChapterBody] = Field(description="the file's chapters; empty if it is missing")
    has_texts: bool = Field(description="whether on-screen text was read: /texts")


class CueBody(SpanBody):
    """Words and when they are said. `recognised` as in the evidence of a moment."""

    text: str
    recognised: float | None = None


class TextsOfStream(BaseModel):
    """The texts that a stream read in a video, by start. `title` is shown to users."""

    stream: str
    title: str
    texts: list[CueBody]


class TextsBody(BaseModel):
    """The on-screen text of a video."""

    video_id: str
    data: list[TextsOfStream]


class CuesBody(BaseModel):
    """The spoken passages of a video or of a range in it."""

    video_id: str
    data: list[CueBody]


class PersonBody(BaseModel):
    """A person who is heard or seen. `where` is the condition that limits a search to that person."""

    name: str
    stream: str
    where: str
    videos: int
    clips: int
    seconds: float


class PeopleBody(BaseModel):
    """Who speaks and is seen, the total number, and whether this client may change people."""

    data: list[PersonBody]
    total: int
    may_change: bool


PersonName = Annotated[str, Field(min_length=1, max_length=2 * LONGEST_NAME, pattern=r"\S")]


class NameRequest(Strict):
    """A person's present name and new name."""

    person: PersonName
    name: PersonName


class MergeRequest(Strict):
    """Two names of one person: the clips of `other` become those of `person`."""

    person: PersonName
    other: PersonName


class ForgetRequest(Strict):
    """The person to forget for good."""

    person: PersonName


class ChangeBody(BaseModel):
    """What was done. `erased`: clips erased from disk."""

    done: str
    erased: int = 0


class TurnBody(SpanBody):
    """When a person speaks or is seen."""

    name: str


class TurnsOfStream(BaseModel):
    """A stream's turns or sightings, by start. `title` is shown to users."""

    stream: str
    title: str
    turns: list[TurnBody]


class TurnsBody(BaseModel):
    """Who speaks and is seen in a video, and whether this client may change people."""

    video_id: str
    data: list[TurnsOfStream]
    may_change: bool


class HighlightCurve(BaseModel):
    """How much each clip is worth seeing, as columns of equal length. Only differences have a meaning."""

    start: list[float]
    end: list[float]
    score: list[float]


class CurveBody(HighlightCurve):
    """The score of each clip, as columns of equal length. The percentile is empty if uncalibrated."""

    chance_percentile: list[float]


class CurveMoment(SpanBody):
    """A moment found on a stream's curve."""

    stream: str
    score: float
    chance_percentile: float | None


class CurvesBody(BaseModel):
    """Each stream's match curve over one video, and the moments on the curves, best first."""

    query: str
    video_id: str
    curves: dict[str, CurveBody]
    moments: list[CurveMoment]
    stream_titles: dict[str, str]


class HighlightMoment(SpanBody):
    """A moment on a highlight curve."""

    score: float


class HighlightsBody(BaseModel):
    """The highlight curve of a video and its best moments, best first. `query` is "" if none was given."""

    query: str
    video_id: str
    curve: HighlightCurve
    moments: list[HighlightMoment]
    notes: list[str]


class TokenWeightsBody(BaseModel):
    """The words of a query and, per stream, their weights, which add up to 1.

    `named` is false if the system cannot tell which word a token is; tokens are then numbered.
    """

    words: list[str]
    named: bool
    weights: dict[str, list[float]]


class MomentBody(SpanBody):
    """A moment of a video, and its words."""

    video_id: str
    text: str


class ExplainBody(BaseModel):
    """What a trained system computed for a query and a moment.

    - `rank`: of the first result that is the moment; null if none of the first `k` is. `lost_to`: results
      ahead of it.
    - `heard`: token weights; null for a system without them.
    - `curves`: probabilities of "start" and "end" along the video; empty for a system that finds no
      moments.
    - `shares`: each stream's share in each clip (sum 1); empty for a system that does not weigh streams
      by clip.
    - `said`: the explanation in sentences.
    """

    query: str
    model: str
    video_id: str
    in_list: bool = Field(serialization_alias="found")
    rank: int | None
    token_weights: TokenWeightsBody | None = Field(serialization_alias="heard")
    curves: dict[str, CurveBody]
    shares: dict[str, CurveBody]
    sentences: list[str] = Field(serialization_alias="said")
    lost_to: list[MomentBody]
    notes: list[str]


class HealthBody(BaseModel):
    """The server's status and version."""

    status: Literal["ok"]
    version: str


class AccessBody(BaseModel):
    """The name of the token's guest ("" for the owner or none), and its scopes."""

    name: str
    scopes: list[str]
