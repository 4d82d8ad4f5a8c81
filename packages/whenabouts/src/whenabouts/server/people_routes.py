"""Routes for people: who speaks and is seen, in the corpus and in a video; rename, merge and forget them.

Anyone with access may read. Changes need `Settings.changes_people`, which the server's owner sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request

from whenabouts.budget import Budget
from whenabouts.corpus import Corpus
from whenabouts.people.naming import NameTaken, NoSuchPerson, NothingToUndo, People
from whenabouts.server.errors import ServerError, printable, problems
from whenabouts.server.schemas import (
    ChangeBody,
    ForgetRequest,
    MergeRequest,
    NameRequest,
    NoQuery,
    PeopleBody,
    PersonBody,
    TurnBody,
    TurnsBody,
    TurnsOfStream,
    VideoId,
)
from whenabouts.server.service import read_corpus, record_of, service_of
from whenabouts.streams import stream as stream_named
from whenabouts.workplace.guests import INDEX

router = APIRouter(prefix="/api")
MOST_PEOPLE = 1000
Answer = TypeVar("Answer")
# Other changes end soon; an index run does not.
_WAIT_SECONDS = 2.0


@router.get("/people", responses=problems(), summary="Who speaks and who is seen")
async def people(request: Request, _: NoQuery) -> PeopleBody:
    """Lists at most 1,000 people, by stream, the longest present first. `where` filters a search by one."""

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

    return await read_corpus(request, read)


@router.post("/people/name", responses=problems(404, 409, 507), summary="Rename a person")
async def name(request: Request, body: NameRequest, _: NoQuery) -> ChangeBody:
    """`person` is the present name. A name in use is refused (409 `name_taken`); merge the two instead."""
    await _changed(request, lambda people: people.name(body.person, body.name))
    return ChangeBody(done=printable(f"{body.person} is {body.name}"))


@router.post("/people/merge", responses=problems(404, 409, 507), summary="Merge two people")
async def merge(request: Request, body: MergeRequest, _: NoQuery) -> ChangeBody:
    """The clips of `other` become clips of `person`."""
    await _changed(request, lambda people: people.merge(body.person, body.other))
    return ChangeBody(done=printable(f"{body.other} is {body.person}"))


@router.post("/people/undo", responses=problems(409, 507), summary="Undo the last change of names")
async def undo(request: Request, _: NoQuery) -> ChangeBody:
    """Undoes up to twenty changes, one per call. Forgetting someone clears the list."""
    undone = await _changed(request, lambda people: people.undo())
    return ChangeBody(done=printable(f"undone: {undone}"))


@router.post("/people/forget", responses=problems(404, 409, 507), summary="Forget a person for good")
async def forget(request: Request, body: ForgetRequest, _: NoQuery) -> ChangeBody:
    """Erases all clips and vectors of a person from disk at once. This cannot be undone."""
    erased = await _changed(request, lambda people: people.forget(body.person))
    return ChangeBody(done=printable(f"forgot {body.person}"), erased=erased)


def _may_change(request: Request) -> bool:
    """Whether this client may change people."""
    return service_of(request).settings.changes_people and INDEX in request.scope["guest"].scopes


async def _changed(request: Request, change: Callable[[People], Answer]) -> Answer:
    """The result of `change`, run as the corpus's writer.

    Raises ServerError, and CorpusBusy while another process writes.
    """
    service = service_of(request)
    if not service.settings.changes_people:
        problem = "this server does not change people; start it with `serve --change-people` to allow that"
        raise ServerError(403, "read_only", problem)

    def write(corpus: Corpus) -> Answer:
        try:
            # Forgetting must finish, however long it takes, even if the client leaves.
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
async def turns(request: Request, video_id: VideoId, _: NoQuery) -> TurnsBody:
    """Lists the turns and sightings in a video, by stream and start; none if nobody was indexed."""

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

    return await read_corpus(request, read)
