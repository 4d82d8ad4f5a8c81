"""Routes for people: who speaks and who is seen, in the corpus and in a video. They change nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from whenabouts.product.corpus import Corpus
from whenabouts.product.server.errors import printable, problems
from whenabouts.product.server.schemas import (
    NoParameters,
    PeopleBody,
    PersonBody,
    TurnBody,
    TurnsBody,
    TurnsOfStream,
)
from whenabouts.product.server.service import record_of, service_of
from whenabouts.product.streams import stream as stream_named

router = APIRouter(prefix="/api")
MOST_PEOPLE = 1000


@router.get("/people", responses=problems(), summary="Who speaks and who is seen")
async def people(request: Request, _: Annotated[NoParameters, Query()]) -> PeopleBody:
    """By stream, those heard or seen longest first, at most 1,000; `where` takes KEY=NAME of each."""
    service = service_of(request)

    def read(corpus: Corpus) -> PeopleBody:
        listed = corpus.people.listed()
        return PeopleBody(
            data=[
                PersonBody(
                    name=printable(person.name),
                    stream=person.stream,
                    where=f"{stream_named(person.stream).filter_key}={printable(person.name)}",
                    videos=len(person.videos),
                    clips=person.clips,
                    seconds=round(person.seconds, 3),
                )
                for person in listed[:MOST_PEOPLE]
            ],
            total=len(listed),
        )

    return await service.read(service.reads, request, read)


@router.get("/videos/{video_id}/people", responses=problems(404), summary="Who speaks and is seen when")
async def turns(
    request: Request, video_id: Annotated[str, Path(max_length=300)], _: Annotated[NoParameters, Query()]
) -> TurnsBody:
    """The turns and sightings in a video, by stream and start; none where the corpus knows of nobody."""
    service = service_of(request)

    def read(corpus: Corpus) -> TurnsBody:
        record = record_of(corpus, video_id)
        people = corpus.people
        return TurnsBody(
            video_id=video_id,
            data=[
                TurnsOfStream(
                    stream=name,
                    title=stream_named(name).title,
                    turns=[
                        TurnBody(start=start, end=end, name=printable(person))
                        for start, end, person in people.turns(name, video_id)
                    ],
                )
                for name in people.streams.values()
                if name in record.streams
            ],
        )

    return await service.read(service.reads, request, read)
