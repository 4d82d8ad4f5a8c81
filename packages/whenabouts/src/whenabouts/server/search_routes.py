"""Routes that take a query: search, why a moment was or was not found, match curves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request

from whenabouts.corpus import Corpus
from whenabouts.curves import curves_of
from whenabouts.search.search_result import SearchResult, percent_beside
from whenabouts.search.understand import EncodedTexts
from whenabouts.server.errors import ServerError, printable, problems
from whenabouts.server.schemas import (
    CheckBody,
    CurvesBody,
    CurvesParameters,
    PageInfo,
    PlacesBody,
    RerankBody,
    ResultBody,
    RewriteBody,
    RuleBody,
    SearchBody,
    SearchBodyParameters,
    SearchedBody,
    SearchParameters,
    SearchPool,
    VideoId,
    WhyParameters,
)
from whenabouts.server.service import Service, check_streams, record_of, service_of, stream_titles
from whenabouts.server.video_routes import title_of, urls_of
from whenabouts.streams import stream as stream_named
from whenabouts.times import parse_moment
from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts.why import why as find_out_why

router = APIRouter(prefix="/api")


@router.get(
    "/search", responses=problems(404, 409), summary="Ranked moments for a sentence or an example moment"
)
async def search(request: Request, parameters: Annotated[SearchParameters, Query()]) -> SearchBody:
    """Returns at most `k` moments, best first, page by page, and whether any of them answers the query."""
    return await _search(request, parameters)


@router.post("/search", responses=problems(404, 409), summary="The same, with a JSON body")
async def search_by_body(request: Request, parameters: SearchBodyParameters) -> SearchBody:
    """Searches as GET does; for queries too long for an address, and for pictures."""
    return await _search(request, parameters)


async def _search(request: Request, parameters: SearchParameters) -> SearchBody:
    service = service_of(request)

    def read(corpus: Corpus, encoded: EncodedTexts | None = None) -> SearchBody:
        token, subject = parameters.page_token, service.pages.subject(corpus, parameters.subject)
        offset = service.pages.offset(subject, token) if token else 0
        result = service.search(corpus, parameters, encoded)
        return _page(service, corpus, result, parameters, offset)

    if parameters.asks_models:
        return await service.read(service.checks, request, read)
    is_searched = parameters.model is None and parameters.page_token is None
    return await service.answer(request, parameters.query or "" if is_searched else "", read)


def _page(
    service: Service, corpus: Corpus, result: SearchResult, parameters: SearchParameters, offset: int
) -> SearchBody:
    count, seconds = service.pool(corpus)
    end = offset + parameters.page_limit
    shown = result.numbered[offset:end]
    subject = service.pages.subject(corpus, parameters.subject)
    more = service.pages.token(subject, end) if end < len(result.moments) else None
    return SearchBody(
        query=result.query,
        understood=[RuleBody(**asdict(rule)) for rule in result.understood],
        words=result.words,
        like=result.like,
        answer=result.answer,
        word=result.word,
        confidence_interval=result.interval,
        doubt=service.paths.without_folders(result.doubt),
        notes=[service.paths.without_folders(note) for note in result.notes],
        data=[_result(service, result, rank, scored) for rank, scored in shown],
        page_info=PageInfo(
            limit_per_page=parameters.page_limit, total_results=len(result.moments), next_page_token=more
        ),
        search_pool=SearchPool(total_count=count, total_duration=seconds),
        searched=None if result.coverage is None else SearchedBody(**result.coverage.to_json()),
        places=None if result.places is None else PlacesBody(**asdict(result.places)),
        stream_titles=stream_titles(corpus),
        calibration=None if result.calibration is None else dict(result.calibration),
        check=None if result.check is None else CheckBody(**asdict(result.check)),
        rerank=None if result.rerank is None else RerankBody(**asdict(result.rerank)),
        rewrite=None if result.rewrite is None else RewriteBody(**result.rewrite.to_json()),
        spelling=result.spelling,
        titled={record.video_id: title_of(record) for record in result.titled},
    )


def _result(service: Service, result: SearchResult, rank: int, scored: ScoredMoment) -> ResultBody:
    """A moment for clients, rounded like `search --json`."""
    shown = result.moment_json(rank, scored)
    for piece in shown["evidence"].values():
        piece["text"] = printable(piece["text"])
    video_id, start, end = scored.moment.video_id, shown["start"], shown["end"]
    record = result.videos[video_id]
    video_url, thumbnail_url = urls_of(record, result.instant(scored))
    base = f"/api/videos/{quote(video_id, safe='')}"
    clip_url = f"{base}/clip?start={start:.3f}&end={end:.3f}" if record.kind == "media" else None
    facts = {
        "title": title_of(record),
        "percent": percent_beside(shown["word"], scored.confidence),
        "text": printable(scored.text),
        "labels": {name: stream_named(name).evidence_label for name in scored.evidence},
        "name": record.file_name,
        "folder": service.paths.folder_of(record),
        "thumbnail_url": thumbnail_url,
        "clip_url": clip_url,
        "video_url": video_url,
        "link": f"{video_url or base}#t={start:.3f},{end:.3f}",
    }
    return ResultBody(**shown | facts)


@router.get("/why", responses=problems(404, 409), summary="Why a moment was or was not found")
async def why(request: Request, parameters: Annotated[WhyParameters, Query()]) -> dict[str, Any]:
    """Returns the content of `whenabouts doctor why --json`."""
    service = service_of(request)
    moment = moment_of(parameters.moment, "moment")

    def read(corpus: Corpus) -> dict[str, Any]:
        record_of(corpus, moment.video_id)
        return find_out_why(corpus, parameters.query, moment, parameters.k).to_json()

    return await service.read(service.searches, request, read)


@router.get(
    "/videos/{video_id}/curves",
    responses=problems(404),
    response_model=CurvesBody,
    summary="The score of each clip of a video for a sentence",
)
async def curves(
    request: Request, video_id: VideoId, parameters: Annotated[CurvesParameters, Query()]
) -> dict[str, Any]:
    """Returns the match curve of each stream, and the moments found on it."""
    service = service_of(request)

    def read(corpus: Corpus) -> dict[str, Any]:
        record_of(corpus, video_id)
        check_streams(corpus, parameters.stream)
        over_video = curves_of(corpus, parameters.query, video_id, parameters.stream)
        return over_video.to_json() | {"stream_titles": stream_titles(corpus)}

    return await service.read(service.searches, request, read)


def moment_of(name: str, field: str) -> Moment:
    """Parse a moment's name. Raises ServerError 400."""
    try:
        return Moment(*parse_moment(name))
    except UsageError as error:
        raise ServerError(400, "invalid_moment", str(error), field=field) from None
