"""Routes for people: who speaks and who is seen, in the corpus and in a video; naming and forgetting them.

Whoever may ask may read; changing is for those whom the server's owner lets (`Settings.changes_people`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from whenabouts.budget import Budget
from whenabouts.corpus import Corpus
from whenabouts.people.naming import NameTaken, NoSuchPerson, NothingToUndo, People
from whenabouts.server.errors import ServerError, printable, problems
from whenabouts.server.schemas import (
    ChangeBody,
    ForgetRequest,
    MergeRequest,
    NameRequest,
    NoParameters,
    PeopleBody,
    PersonBody,
    TurnBody,
    TurnsBody,
    TurnsOfStream,
)
from whenabouts.server.service import record_of, service_of
from whenabouts.streams import stream as stream_named
from whenabouts.workplace.guests import INDEX

router = APIRouter(prefix="/api")
MOST_PEOPLE = 1000
# Another change is soon over; an index run is not.
_WAIT_SECONDS = 2.0


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
            may_change=_may_change(request),
        )

    return await service.read(service.reads, request, read)


@router.post("/people/name", responses=problems(404, 409, 507), summary="Give a person another name")
async def name(request: Request, body: NameRequest, _: Annotated[NoParameters, Query()]) -> ChangeBody:
    """By the present name; a name that somebody else has is refused (409 `name_taken`): merge the two."""

    def change(people: People) -> ChangeBody:
        people.name(body.person, body.name)
        return ChangeBody(done=printable(f"{body.person} is {body.name}"))

    return await _changed(request, change)


@router.post("/people/merge", responses=problems(404, 409, 507), summary="Let two people be one")
async def merge(request: Request, body: MergeRequest, _: Annotated[NoParameters, Query()]) -> ChangeBody:
    """The clips of `other` become those of `person`."""

    def change(people: People) -> ChangeBody:
        people.merge(body.person, body.other)
        return ChangeBody(done=printable(f"{body.other} is {body.person}"))

    return await _changed(request, change)


@router.post("/people/undo", responses=problems(409, 507), summary="Take the last change of names back")
async def undo(request: Request, _: Annotated[NoParameters, Query()]) -> ChangeBody:
    """Up to twenty of them, one at a time, until somebody is forgotten."""
    return await _changed(request, lambda people: ChangeBody(done=printable(f"undone: {people.undo()}")))


@router.post("/people/forget", responses=problems(404, 409, 507), summary="Take a person out for good")
async def forget(request: Request, body: ForgetRequest, _: Annotated[NoParameters, Query()]) -> ChangeBody:
    """With all clips and vectors, which leave the disk at once; it cannot be undone."""

    def change(people: People) -> ChangeBody:
        erased = people.forget(body.person)
        return ChangeBody(done=printable(f"forgot {body.person}"), erased=erased)

    return await _changed(request, change)


def _may_change(request: Request) -> bool:
    """Whether whoever asks may change people here."""
    return service_of(request).settings.changes_people and INDEX in request.scope["guest"].scopes


async def _changed(request: Request, change: Callable[[People], ChangeBody]) -> ChangeBody:
    """What `change` did as the corpus's writer. Raises ServerError; CorpusBusy while another writes."""
    service = service_of(request)
    if not service.settings.changes_people:
        problem = "this server changes no people; its owner lets clients with `serve --change-people`"
        raise ServerError(403, "read_only", problem)

    def write(corpus: Corpus) -> ChangeBody:
        try:
            # Forgetting goes on to its end, however long it takes and whoever leaves.
            with Budget(math.inf).spent_here(), corpus.store.writing(wait=_WAIT_SECONDS):
                return change(corpus.people)
        except NoSuchPerson as error:
            raise ServerError(404, "no_such_person", str(error), field="person") from None
        except NameTaken as error:
            raise ServerError(409, "name_taken", str(error), field="name") from None
        except NothingToUndo as error:
            raise ServerError(409, "nothing_to_undo", str(error)) from None

    return await service.read(service.reads, request, write)


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
            may_change=_may_change(request),
        )

    return await service.read(service.reads, request, read)
