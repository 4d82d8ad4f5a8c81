"""The route that asks a trained system why: words, borders, and where a moment stands in its list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from whenabouts.corpus import Corpus
from whenabouts.explanation import Borders, Explained
from whenabouts.server.errors import printable, problems
from whenabouts.server.schemas import CurveBody, ExplainBody, ExplainParameters, HeardBody, MomentBody
from whenabouts.server.search_routes import moment_of
from whenabouts.server.service import known_record, service_of
from whenabouts.types import Moment

router = APIRouter(prefix="/api")
_MOST_LOST_TO = 5


@router.get(
    "/explain", responses=problems(404, 409), summary="What a trained system made of a query and a moment"
)
async def explain(request: Request, asked: Annotated[ExplainParameters, Query()]) -> ExplainBody:
    """The words it heeded, how probable start and end are along the moment's video, what came first."""
    service = service_of(request)
    named, place = moment_of(asked.moment, "moment"), service.model(asked.model)

    def question(corpus: Corpus) -> ExplainBody:
        known_record(corpus, named.video_id)
        told = corpus.explain(asked.query, place, moment=named, k=asked.k)
        return _body(told.query, asked.model, named, told.systems[0])

    return await service.ask(service.searches, request, question)


def _body(query: str, model: str, moment: Moment, told: Explained) -> ExplainBody:
    rank, borders = told.rank_of(moment), told.borders
    along = {} if borders is None else borders.to_json()
    ahead = [one.moment for one in told.moments if rank is None or one.rank < rank]
    return ExplainBody(
        query=printable(query),
        model=model,
        video_id=moment.video_id,
        found=rank is not None,
        rank=rank,
        heard=None if told.heard is None else HeardBody.model_validate(told.heard.to_json()),
        said=[] if borders is None else _said(borders, moment),
        curves={name: _curve(along, along[f"{name}_probability"]) for name in ("start", "end") if along},
        shares={stream: _curve(along, share) for stream, share in along.get("stream_shares", {}).items()},
        lost_to=[
            MomentBody(video_id=one.video_id, start=round(one.start, 3), end=round(one.end, 3), text="")
            for one in ahead[:_MOST_LOST_TO]
        ],
        notes=[printable(note) for note in told.notes],
    )


def _said(borders: Borders, moment: Moment) -> list[str]:
    """Sentences about the borders and, where streams are weighed, about how much each counts there."""
    said = [f"It {line}." for line in borders.lines(moment)]
    share = borders.share_line(moment)
    return [*said, f"What counts there: {share}."] if share else said


def _curve(along: Mapping[str, Any], values: list[float]) -> CurveBody:
    """What is told of each clip, in the shape of match curves, so that whoever draws those draws these."""
    return CurveBody(start=along["clips"]["start"], end=along["clips"]["end"], score=values, confidence=[])
