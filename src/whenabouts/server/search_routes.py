"""Routes that ask: search, why, curves, export."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request

from whenabouts.corpus import Corpus
from whenabouts.search import SearchResult
from whenabouts.server.errors import ServerError, printable, problems
from whenabouts.server.schemas import (
    CurvesBody,
    CurvesParameters,
    EvidenceBody,
    PageInfo,
    ResultBody,
    SearchBody,
    SearchParameters,
    SearchPool,
    WhyParameters,
)
from whenabouts.server.service import Service, known_record, service_of
from whenabouts.server.video_routes import title_of, urls_of
from whenabouts.times import parse_moment
from whenabouts.types import Moment, ScoredMoment, UsageError

router = APIRouter(prefix="/api")


@router.get("/search", responses=problems(404, 409), summary="Ranked moments for a sentence")
async def search(request: Request, asked: Annotated[SearchParameters, Query()]) -> SearchBody:
    """At most `k` moments, best first, a page at a time, and whether there is an answer at all."""
    return await _search(request, asked)


@router.post("/search", responses=problems(404, 409, 413), summary="The same, asked with a JSON body")
async def search_by_body(request: Request, asked: SearchParameters) -> SearchBody:
    """For questions that are too long for an address."""
    return await _search(request, asked)


async def _search(request: Request, asked: SearchParameters) -> SearchBody:
    service = service_of(request)
    subject = asked.subject
    offset = service.pages.offset(subject, asked.page_token) if asked.page_token else 0

    def question(corpus: Corpus) -> SearchBody:
        result = service.search(corpus, asked)
        return _page(service, result, service.pool(corpus), asked, offset)

    return await service.ask(service.searches, request, question)


def _page(
    service: Service,
    result: SearchResult,
    pool: tuple[int, float],
    asked: SearchParameters,
    offset: int,
) -> SearchBody:
    end = offset + asked.page_limit
    shown = list(enumerate(result.moments, 1))[offset:end]
    more = service.pages.token(asked.subject, end) if end < len(result.moments) else None
    return SearchBody(
        query=result.query,
        answer=result.answer,
        doubt=result.doubt,
        notes=list(result.notes),
        data=[_result(result, rank, found) for rank, found in shown],
        page_info=PageInfo(
            limit_per_page=asked.page_limit, total_results=len(result.moments), next_page_token=more
        ),
        search_pool=SearchPool(total_count=pool[0], total_duration=pool[1]),
        calibration=None if result.calibration is None else dict(result.calibration),
    )


def _result(result: SearchResult, rank: int, found: ScoredMoment) -> ResultBody:
    """A moment for programs: rounded as `search --json` rounds."""
    moment = found.moment
    record = result.videos[moment.video_id]
    start, end = round(moment.start, 3), round(moment.end, 3)
    video_url, thumbnail_url = urls_of(record, _instant_of(found))
    base = f"/api/videos/{quote(moment.video_id, safe='')}"
    clip_url = f"{base}/clip?start={start:.3f}&end={end:.3f}" if record.kind == "media" else None
    return ResultBody(
        rank=rank,
        video_id=moment.video_id,
        title=title_of(record),
        start=start,
        end=end,
        score=found.score,
        confidence=found.confidence,
        text=printable(found.text),
        evidence={
            name: EvidenceBody(
                score=piece.score,
                start=round(piece.start, 3),
                end=round(piece.end, 3),
                text=printable(piece.text),
            )
            for name, piece in found.evidence.items()
        },
        thumbnail_url=thumbnail_url,
        clip_url=clip_url,
        video_url=video_url,
        link=f"{video_url or base}#t={start:.3f},{end:.3f}",
    )


def _instant_of(found: ScoredMoment) -> float:
    """The key frame of a moment: the middle of what was seen, else of the whole."""
    seen = found.evidence.get("vision")
    return (seen.start + seen.end) / 2 if seen else found.moment.middle


@router.get("/why", responses=problems(404, 409), summary="Why a known moment was, or was not, found")
async def why(request: Request, asked: Annotated[WhyParameters, Query()]) -> dict[str, Any]:
    """What `whenabouts doctor why` says, as its `--json` prints it."""
    service = service_of(request)
    named = moment_of(asked.moment, "moment")

    def question(corpus: Corpus) -> dict[str, Any]:
        known_record(corpus, named.video_id)
        return corpus.why(asked.query, named, k=asked.k).to_json()

    return await service.ask(service.searches, request, question)


@router.get(
    "/videos/{video_id}/curves",
    responses=problems(404),
    response_model=CurvesBody,
    summary="What each clip of a video scores for a sentence",
)
async def curves(
    request: Request,
    video_id: Annotated[str, Path(max_length=300)],
    asked: Annotated[CurvesParameters, Query()],
) -> dict[str, Any]:
    """The match curve of each stream, and the moments that were found on it."""
    service = service_of(request)

    def question(corpus: Corpus) -> dict[str, Any]:
        known_record(corpus, video_id)
        unknown = [name for name in asked.stream if name not in corpus.streams]
        if unknown:
            raise ServerError(
                404, "no_such_stream", f"this corpus has no stream {unknown[0][:50]!r}", field="stream"
            )
        return corpus.curves(asked.query, video_id, asked.stream).to_json()

    return await service.ask(service.searches, request, question)


def moment_of(name: str, field: str) -> Moment:
    """A moment as it was named, by the video's id."""
    try:
        return Moment(*parse_moment(name))
    except UsageError as error:
        raise ServerError(400, "invalid_moment", str(error), field=field) from None
