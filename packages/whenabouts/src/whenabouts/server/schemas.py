"""What requests may hold and what answers hold: the OpenAPI description is made from these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Base64Bytes, BaseModel, ConfigDict, Field

from whenabouts.export.transcript import TranscriptFormat
from whenabouts.index.filters import Condition
from whenabouts.people.naming import LONGEST_NAME
from whenabouts.search.library import Sort
from whenabouts.search.options import MOST_K
from whenabouts.search.questions import RuleName
from whenabouts.server.errors import Problem
from whenabouts.server.proxied import Address
from whenabouts.times import parse_date
from whenabouts.types import UsageError

MOST_QUERY_CHARACTERS = 2000
# A picture that is sent, before it is written in base64.
MOST_PICTURE_BYTES = 6 << 20
MOST_PAGE = 50
MOST_LISTED = 50
MOST_MOMENTS = 200
_LATEST = 31 * 86_400.0


def _read_by(parse: Callable[[str], object]) -> AfterValidator:
    """Refuse a text that `parse` refuses, in its words."""

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
        description='what to look for, in your own words; what stands in "quotes" must be said exactly so',
    ),
]
Date = Annotated[str, Field(min_length=4, max_length=40), _read_by(parse_date)]
Where = Annotated[str, Field(min_length=3, max_length=500), _read_by(Condition.parse)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
Seconds = Annotated[float, Field(ge=0, le=_LATEST, allow_inf_nan=False)]
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
PageToken = Annotated[
    str, Field(min_length=1, max_length=200, description="`next_page_token` of the page before")
]
PageLimit = Annotated[int, Field(ge=1, le=MOST_PAGE, description="results on a page")]
SegmentSeconds = Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)]


class Strict(BaseModel):
    """Parameters; any other is refused."""

    model_config = ConfigDict(extra="forbid")


class NoParameters(Strict):
    """A route that takes none."""


class Narrowing(Strict):
    """Which moments may answer."""

    within: list[Name] = Field(
        default_factory=list, max_length=MOST_LISTED, description="only in these videos: ids or file names"
    )
    stream: list[Name] = Field(default_factory=list, max_length=10, description="only by these streams")
    min_confidence: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    after: Date | None = Field(default=None, description="recorded at or after this date")
    before: Date | None = Field(default=None, description="recorded before this date")
    where: list[Where] = Field(
        default_factory=list, max_length=20, description="conditions on metadata: KEY=VALUE, KEY>=N …"
    )
    model: Name | None = Field(
        default=None, description="find with this trained system, one of `models` in /api/stats"
    )
    segments: SegmentSeconds | None = Field(
        default=None,
        description="with a model, for long videos: by segments of so many seconds, as `whenabouts index "
        "--segments` made them",
    )
    all: bool = Field(
        default=False,
        description="every place where all words and all quoted phrases are said, by video and time",
    )
    literal: list[Literal[RuleName, "all"]] = Field(
        default_factory=list,
        max_length=20,
        description='rules that are off ("all": every one), so that their words are searched as they stand',
    )


class LibraryParameters(Strict):
    """Which videos, by the dates of their recording and by facts."""

    after: Date | None = Field(default=None, description="recorded at or after this date")
    before: Date | None = Field(default=None, description="recorded before this date")
    where: list[Where] = Field(
        default_factory=list,
        max_length=20,
        description="conditions: KEY=VALUE, KEY>=N …; keys are those of metadata, name, path, duration, "
        "video.folder, video.stream, video.state and video.corpus",
    )


class SearchRequest(Narrowing):
    """A query, of words, of a moment that the answer is to be like, or of both; and what may answer it."""

    query: Query | None = None
    like: ExampleName | None = None
    k: int | None = Field(
        default=None,
        ge=1,
        le=MOST_K,
        description="at most so many moments: 10 if not given; with `all`, all places",
    )
    check: bool = Field(
        default=False,
        description="let the server's checker look at the best moments (`checker` in /api/stats)",
    )
    check_best: int = Field(default=5, ge=1, le=20, description="with `check`: so many moments")
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
        """Whether models look at the answer, which takes seconds."""
        return self.check or self.rerank or self.rewrite


class VerdictBody(BaseModel):
    """What the checker said of a moment, and where it would have it start and end (null: as it is)."""

    matches: bool
    reason: str
    start: float | None
    end: float | None


class CheckBody(BaseModel):
    """Which model looked at how many moments; `line` says how often it is wrong.

    `counts`: whether its word changed confidence and order. `rates` is what was measured of it here, null
    where nothing was.
    """

    model: str
    moments: int
    counts: bool
    line: str
    rates: dict[str, Any] | None


class RerankBody(BaseModel):
    """Which model put how many moments in order; `line` says it for people."""

    model: str
    moments: int
    line: str


class RewriteBody(BaseModel):
    """Which model wrote which other queries, that were searched as well."""

    model: str
    queries: list[str]


class RerankedBody(BaseModel):
    """The reranker's score of a moment, and its rank before."""

    score: float
    rank_before: int


class PageParameters(Strict):
    """Which page of a list."""

    page_limit: PageLimit = MOST_PAGE
    page_token: PageToken | None = None

    @property
    def subject(self) -> str:
        """What a page token belongs to: the request, whatever the length of a page."""
        left_out = {"page_limit", "page_token", "skip"}
        return json.dumps(self.model_dump(mode="json", exclude=left_out), sort_keys=True)


class SearchParameters(SearchRequest, PageParameters):
    """A search, and which page of its answer."""


class VideosParameters(LibraryParameters, PageParameters):
    """Which videos, in which order, and which page of them: by its token, or behind the first `skip`."""

    sort: Sort = "id"
    descending: bool = False
    skip: int = Field(default=0, ge=0, le=1 << 31, description="videos that are left out before the page")


class SearchBodyParameters(SearchParameters):
    """The same, with a picture that the answer is to be like."""

    picture: PictureBytes | None = None


class ExportParameters(Narrowing):
    """Either a query with its narrowing, or moments by name."""

    query: Query | None = None
    moments: str | None = Field(
        default=None, min_length=5, max_length=20_000, description="VIDEO_ID@START-END, with commas between"
    )
    format: str = Field(default="json", min_length=1, max_length=20, pattern=r"^[a-z0-9]+$")
    k: int | None = Field(default=None, ge=1, le=MOST_K, description="5 if not given; with `all`, all places")
    all_moments: bool = Field(
        default=False, description="all `k` moments of a query, also those that do not match it"
    )


class SpanParameters(Strict):
    """A stretch of a video; without one, all of it."""

    start: Seconds | None = None
    end: Seconds | None = None


class TranscriptParameters(Strict):
    """How the words of a video are written down."""

    format: TranscriptFormat = Field(default="vtt", description="subtitles (srt, vtt), or text without times")


class ClipParameters(Strict):
    """The stretch that is to be cut out, in seconds, [start, end)."""

    start: Seconds
    end: Seconds


class ThumbnailParameters(Strict):
    """Which instant, in seconds, and how wide in pixels."""

    at: Seconds = 0.0
    width: int = Field(default=320, ge=16, le=1280)


class CurvesParameters(Strict):
    """A query, and the streams that curves are drawn of (none: all)."""

    query: Query
    stream: list[Name] = Field(default_factory=list, max_length=10)


class HighlightsParameters(Strict):
    """A trained system with a saliency, and what is asked (nothing: highlights whatever one asks for)."""

    model: Name
    query: Query | None = None
    k: int = Field(default=5, ge=1, le=MOST_K)


class WhyParameters(Strict):
    """A query and a moment that should answer it."""

    query: Query
    moment: MomentName
    k: int = Field(default=10, ge=1, le=MOST_K)


class ExplainParameters(WhyParameters):
    """The same, and the trained system that explains it."""

    model: Name


class EvidenceBody(BaseModel):
    """The strongest place of one stream.

    `box`: where in the picture it is: left, top, right, bottom as shares of its width and height.
    `recognised`: how sure a recogniser was of the words, of speech or of text on the screen, from 0 to 1;
    null where they were written.
    """

    score: float
    start: float
    end: float
    text: str
    box: list[float] | None = None
    recognised: float | None = None


class RuleBody(BaseModel):
    """A rule that read a part of the query; `label` is for people. `literal` turns it off by its name."""

    name: RuleName
    label: str


class PartnerBody(BaseModel):
    """Where the other event is, if a query asks for two events in order; seconds."""

    start: float
    end: float


class ResultBody(BaseModel):
    """A moment, half-open [start, end) in seconds.

    `word`: "said here", "probably here", "maybe" or "unlikely"; `percent`: the confidence to show
    beside it, None where there is none or it would contradict the word. `labels`: what a stream's evidence
    without text is, such as "the picture"; "" where nothing need be said.
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
    folder: str | None = Field(description="where its file lies; null where paths are not shown")
    thumbnail_url: Address | None
    clip_url: Address | None
    video_url: Address | None
    link: Address


class PageInfo(BaseModel):
    """Where in the whole answer a page stands."""

    limit_per_page: int
    total_results: int
    next_page_token: str | None


class SearchPool(BaseModel):
    """How much was searched: videos, and their seconds."""

    total_count: int
    total_duration: float


class SearchedBody(BaseModel):
    """How many videos there were to search, and how many each stream searched; `text` says it for people.

    `not_searched`: videos that have what a stream reads, and of which it has nothing. `nothing_to_find`:
    videos of which no stream has anything.
    """

    videos: int
    streams: dict[str, int]
    not_searched: dict[str, int]
    nothing_to_find: int
    text: str


class PlacesBody(BaseModel):
    """Of a list of every place: how many there are, and how many were skipped before the first."""

    total: int
    skipped: int


class SearchBody(BaseModel):
    """The answer to a search; `doubt` says why it is "unsure", `calibration` how often it is wrong here.

    `word` is the answer as people say it: "said here", "probably here", "maybe" or "nothing like it". `query`
    are its words, `like` is what its moment or picture is called; "" where there is none.

    `confidence` is the probability that a moment is right, `confidence_interval` the range that it leaves
    open for the first one; `chance_percentile` is the share of unrelated queries that score lower.

    `understood` are the rules that read the query, and `words` the event that was searched for then.
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


class VideoBody(BaseModel):
    """A video in the list."""

    video_id: str
    title: str
    name: str
    kind: Literal["media", "transcript"]
    duration: float | None
    language: str
    streams: list[str]
    gone: bool = Field(description="whether its file is not there any more")
    state: Literal["fine", "damaged", "missing", "unreadable"]
    damage: str = Field(description="what could not be read")
    remedy: str = Field(description="how to mend it, in a sentence")
    words: str = Field(description="the first words of a video without a picture")
    folder: str | None = Field(description="where its file lies; null where paths are not shown")
    indexed: str = Field(description="when it was indexed last")
    recorded: str
    recorded_from: str = Field(description='the key of the metadata that says so, or "modified": the file')
    has_picture: bool
    thumbnail_url: Address | None
    video_url: Address | None


class VideosBody(BaseModel):
    """A page of the list of videos; `total` counts all, `stream_titles` is what people call each stream."""

    data: list[VideoBody]
    total: int
    page_info: PageInfo
    stream_titles: dict[str, str]


class FacetValueBody(BaseModel):
    """A value, how many videos have it, and the condition that narrows to them."""

    value: str
    title: str
    count: int
    where: str


class FacetBody(BaseModel):
    """The values of one key; `more` are left out."""

    key: str
    title: str
    values: list[FacetValueBody]
    more: int


class FacetsBody(BaseModel):
    """What some videos share, and how many they are; `root` is the folder that all videos lie below."""

    data: list[FacetBody]
    videos: int
    root: str | None


class RelocationRequest(BaseModel):
    """Where the file of a video is now."""

    model_config = ConfigDict(extra="forbid")
    path: Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]+$")]


class StreamOfVideo(BaseModel):
    """A stream that is indexed of a video; `since` is null if an earlier version did not keep it."""

    stream: str
    title: str
    since: str | None


class ChapterBody(BaseModel):
    """A part of a video, [start, end) in seconds; `title` is empty where the file names none."""

    start: float
    end: float
    title: str


class VideoDetails(VideoBody):
    """All that is known of a video; what its file says is null where the file is not there any more."""

    metadata: dict[str, Any]
    words_from: str
    indexed_streams: list[StreamOfVideo]
    shots: list[float] | None
    available: bool
    unavailable: Problem | None = Field(description="why its file is not available")
    place: str | None = Field(description="where its file was indexed, where paths are shown")
    content_type: str | None
    frame_rate: float | None
    width: int | None
    height: int | None
    codec: str | None
    has_audio: bool | None
    chapters: list[ChapterBody] = Field(description="as the file has them; none where it is not there")
    has_texts: bool = Field(description="whether text on the screen was looked for: /texts")


class CueBody(BaseModel):
    """Words and when they are said; `recognised` as in the evidence of a moment."""

    start: float
    end: float
    text: str
    recognised: float | None = None


class TextsOfStream(BaseModel):
    """The texts that a stream read in a video, by start; `title` is what people call the stream."""

    stream: str
    title: str
    texts: list[CueBody]


class TextsBody(BaseModel):
    """The words in the pictures of a video."""

    video_id: str
    data: list[TextsOfStream]


class CuesBody(BaseModel):
    """The spoken passages of a video, or of a stretch of it."""

    video_id: str
    data: list[CueBody]


class PersonBody(BaseModel):
    """Somebody who is heard or seen; `where` is the condition that narrows a search to that person."""

    name: str
    stream: str
    where: str
    videos: int
    clips: int
    seconds: float


class PeopleBody(BaseModel):
    """Who speaks and who is seen, how many there are in all, and whether this client may change it."""

    data: list[PersonBody]
    total: int
    may_change: bool


PersonName = Annotated[str, Field(min_length=1, max_length=2 * LONGEST_NAME, pattern=r"\S")]


class NameRequest(BaseModel):
    """A person, by the present name, and what to call the person from now on."""

    model_config = ConfigDict(extra="forbid")
    person: PersonName
    name: PersonName


class MergeRequest(BaseModel):
    """Two people who are one: the clips of `other` become those of `person`."""

    model_config = ConfigDict(extra="forbid")
    person: PersonName
    other: PersonName


class ForgetRequest(BaseModel):
    """Who is to be taken out for good."""

    model_config = ConfigDict(extra="forbid")
    person: PersonName


class ChangeBody(BaseModel):
    """What was done; `erased` is how many clips left the disk."""

    done: str
    erased: int = 0


class TurnBody(BaseModel):
    """Somebody speaks, or is seen, in [start, end)."""

    start: float
    end: float
    name: str


class TurnsOfStream(BaseModel):
    """The turns or sightings that a stream knows of, by start; `title` is what people call the stream."""

    stream: str
    title: str
    turns: list[TurnBody]


class TurnsBody(BaseModel):
    """Who speaks and who is seen in a video, and whether this client may change who they are."""

    video_id: str
    data: list[TurnsOfStream]
    may_change: bool


class CurveBody(BaseModel):
    """What each clip scored: columns of one length; the percentile is empty where not calibrated."""

    start: list[float]
    end: list[float]
    score: list[float]
    chance_percentile: list[float]


class CurveMoment(BaseModel):
    """A moment that a stream found on its curve."""

    stream: str
    start: float
    end: float
    score: float
    chance_percentile: float | None


class CurvesBody(BaseModel):
    """The match curve of each stream over one video, and the moments on them, best first."""

    query: str
    video_id: str
    curves: dict[str, CurveBody]
    moments: list[CurveMoment]
    stream_titles: dict[str, str]


class HighlightCurve(BaseModel):
    """How much each clip is worth seeing: columns of one length. More is better, the zero means nothing."""

    start: list[float]
    end: list[float]
    score: list[float]


class HighlightMoment(BaseModel):
    """A moment on a highlight curve."""

    start: float
    end: float
    score: float


class HighlightsBody(BaseModel):
    """The highlight curve of a video and its best moments, best first; `query` is "" where none was given."""

    query: str
    video_id: str
    curve: HighlightCurve
    moments: list[HighlightMoment]
    notes: list[str]


class TokenWeightsBody(BaseModel):
    """The words of a query, and by stream the weight of each; the weights of a stream add up to 1.

    `named` is false where the system cannot say which word a token is; tokens are then called by number.
    """

    words: list[str]
    named: bool
    weights: dict[str, list[float]]


class MomentBody(BaseModel):
    """A moment of a video, and the words in it."""

    video_id: str
    start: float
    end: float
    text: str


class ExplainBody(BaseModel):
    """What a trained system computed for a query and a moment.

    `rank` is that of the first result that is the moment, null where none of the first `k` is; `lost_to` are
    results ahead of it. `heard` are the token weights, null for a system that has none; `curves` are the
    probabilities of "start" and "end" along the video, none for a system that finds no moments; `shares` are
    each stream's share in each clip (together 1), none for a system that does not weigh streams by clip;
    `said` says it in sentences.
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
    """That the server answers."""

    status: Literal["ok"]
    version: str


class AccessBody(BaseModel):
    """Whose token was sent, "" for the owner's or none, and what it may do."""

    name: str
    scopes: list[str]
