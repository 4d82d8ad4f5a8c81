"""Routes for collections of moments and for saved searches."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import compress
from pathlib import Path as FilePath
from typing import Annotated, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from whenabouts.corpus import Corpus
from whenabouts.index.records import VideoRecord
from whenabouts.server.errors import ServerError, printable, problems, safe_errors
from whenabouts.server.export_routes import DOWNLOAD, check_format, sent_list
from whenabouts.server.files import respond
from whenabouts.server.proxied import Address
from whenabouts.server.schemas import MOST_MOMENTS, ListOptions, MomentName, NoQuery, Seconds, Strict
from whenabouts.server.search_routes import moment_of
from whenabouts.server.service import Service, read_corpus, record_of, service_of
from whenabouts.server.video_routes import binary, content_of, title_of, urls_of
from whenabouts.shown import mostly_in
from whenabouts.streams import stream as stream_named
from whenabouts.types import Moment
from whenabouts.video.cut import CUT_VERSION
from whenabouts.workplace.cached import cached_name
from whenabouts.workplace.collections import (
    LONGEST_NAME,
    LONGEST_NOTE,
    LONGEST_TAG,
    MOST_TAGS,
    ChangedMeanwhile,
    Collection,
    Item,
    NameTaken,
    NoSuchCollection,
)
from whenabouts.workplace.searches import LONGEST_QUESTION, NoSuchSearch

router = APIRouter(prefix="/api")
MOST_FILM_SECONDS = 3600.0
_WORDS = 500
_VIDEOS_A_QUERY = 100
Answer = TypeVar("Answer")
Changed = TypeVar("Changed")
CollectionId = Annotated[str, Path(max_length=LONGEST_NAME)]
ItemId = Annotated[str, Path(max_length=40)]
# A blank name is refused where collections and searches are stored, in words for users.
_Name = Annotated[str, Field(max_length=LONGEST_NAME)]
_Tag = Annotated[str, Field(max_length=LONGEST_TAG)]
_Note = Annotated[str, Field(max_length=LONGEST_NOTE)]
# The bound lets pydantic read the text, and so refuse half of a character, which no answer can hold.
_Text = Annotated[str, Field(max_length=LONGEST_QUESTION)]


class NewCollection(Strict):
    """The name and note of a new collection."""

    name: _Name
    note: _Note = ""


class CollectionFields(Strict):
    """The name and note of a collection; null: not given."""

    name: _Name | None = None
    note: _Note | None = None


class CollectionChange(CollectionFields):
    """A new name or note of a collection; null keeps it. 409 unless its present ones are `seen`."""

    seen: CollectionFields | None = None


class NewItems(Strict):
    """Moments to append to a collection, and the query that found them."""

    moments: list[MomentName] = Field(min_length=1, max_length=MOST_MOMENTS)
    query: str = Field(default="", max_length=2000)


class ItemFields(Strict):
    """Times, note and tags of a moment; null: not given."""

    start: Seconds | None = None
    end: Seconds | None = None
    note: _Note | None = None
    tags: list[_Tag] | None = Field(default=None, max_length=MOST_TAGS)


class ItemChange(ItemFields):
    """New times, note or tags of a moment; null keeps them. 409 unless its present ones are `seen`."""

    seen: ItemFields | None = None


class ItemMove(Strict):
    """Where a moment goes: before an id, or to the end (null), of `to` if given. `keep`: as a copy."""

    before: str | None = Field(default=None, max_length=40)
    to: str | None = Field(default=None, max_length=LONGEST_NAME)
    keep: bool = False


class ItemBody(BaseModel):
    """A moment of a collection. Its video is `gone` from the corpus, or its file `replaced` since."""

    id: str
    video_id: str
    name: str
    title: str
    start: float
    end: float
    note: str
    tags: list[str]
    query: str
    text: str
    gone: bool
    replaced: bool
    thumbnail_url: Address | None
    clip_url: Address | None
    video_url: Address | None


class CollectionLine(BaseModel):
    """A collection in the list. `changed`: seconds since 1970; `seconds`: total length.

    `problem`: why an invalid one cannot be opened, and what to do; empty for a valid one.
    """

    id: str
    name: str
    note: str
    changed: float
    count: int
    seconds: float
    problem: str = ""


class CollectionsBody(BaseModel):
    """All collections, most recently changed first."""

    data: list[CollectionLine]


class CollectionBody(CollectionLine):
    """A collection with its moments in order."""

    items: list[ItemBody]


class ListParameters(ListOptions):
    """Those of other lists, and an edit list by default."""

    format: str = Field(default="edl", min_length=1, max_length=20, pattern=r"^[a-z0-9]+$")


class NewSearch(Strict):
    """A search to save: the page's parameters, and the names of the moments that the user has seen."""

    name: _Name
    question: dict[_Text, _Text] = Field(max_length=40)
    moments: list[_Text] = Field(default_factory=list, max_length=MOST_MOMENTS)


class SavedSearchBody(BaseModel):
    """A saved search. `moments` are the names of those seen at the time `saved` (seconds since 1970).

    `problem` says why an invalid search cannot be used; "" for a valid one.
    """

    name: str
    question: dict[str, str]
    saved: float
    moments: list[str]
    problem: str = ""


class SavedSearchesBody(BaseModel):
    """All saved searches, by name."""

    data: list[SavedSearchBody]


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except NoSuchCollection as error:
        raise ServerError(404, "no_such_collection", str(error)) from None
    except NoSuchSearch as error:
        raise ServerError(404, "no_such_search", str(error)) from None
    except NameTaken as error:
        raise ServerError(409, "name_taken", str(error), field="name") from None
    except ChangedMeanwhile as error:
        raise ServerError(409, "changed_meanwhile", str(error), field="seen") from None


async def _after(
    request: Request, change: Callable[[Corpus], Changed], shown: Callable[[Corpus, Changed], Answer]
) -> Answer:
    """What `shown` makes of the corpus after `change` and of its result."""

    def job(corpus: Corpus) -> Answer:
        with _refusals():
            changed = change(corpus)
        return shown(corpus, changed)

    return await read_corpus(request, job)


def _shown(corpus: Corpus, collection: Collection) -> CollectionBody:
    records = _records(corpus, collection.items)
    words = _words(corpus, collection.items, records)
    items = []
    for item in collection.items:
        record = records.get(item.video_id)
        video_url, thumbnail_url = urls_of(record, item.moment.middle) if record else (None, None)
        base = f"/api/videos/{quote(item.video_id, safe='')}"
        shown = ItemBody(
            **item.to_json(),
            name=record.file_name if record else "",
            title=title_of(record) if record else printable(item.video_id),
            text=printable(" ".join(words[item.id]))[:_WORDS],
            gone=record is None,
            replaced=corpus.is_replaced(item),
            thumbnail_url=thumbnail_url,
            video_url=video_url,
            clip_url=f"{base}/clip?start={item.start:.3f}&end={item.end:.3f}" if video_url else None,
        )
        items.append(shown)
    return CollectionBody(**collection.to_json() | {"count": len(items), "items": items})


def _records(corpus: Corpus, items: Sequence[Item]) -> dict[str, VideoRecord]:
    """The ledger rows of the items' videos by id, without those that are no longer in the corpus."""
    records = corpus.store.ledger().of(item.video_id for item in items)
    return {record.video_id: record for record in records if record.state != "failed"}


def _words(
    corpus: Corpus, items: Sequence[Item], records: Mapping[str, VideoRecord]
) -> Mapping[str, list[str]]:
    """Item id -> its spoken passages. Each query reads those of many videos, so a long list takes few."""
    words = defaultdict[str, list[str]](list)
    for name in (name for name in corpus.streams if stream_named(name).transcript):
        ids = [video_id for video_id, record in records.items() if name in record.streams]
        for first in range(0, len(ids), _VIDEOS_A_QUERY):
            block = corpus.store.clips_of(name, ids[first : first + _VIDEOS_A_QUERY], vectors=False)
            rows_of = {video_id: block.rows(place) for place, video_id in enumerate(block.video_ids)}
            for item in items:
                if (rows := rows_of.get(item.video_id)) is not None:
                    inside = mostly_in(block.start[rows], block.end[rows], item.moment)
                    words[item.id] += compress(block.text[rows], inside)
    return words


@router.get("/collections", responses=problems(), summary="All collections")
async def collections(request: Request, _: NoQuery) -> CollectionsBody:
    """Lists all collections, most recently changed first."""
    return await read_corpus(request, _listed)


def _listed(corpus: Corpus, _: None = None) -> CollectionsBody:
    return CollectionsBody(data=[CollectionLine(**each.to_json()) for each in corpus.collections.listed()])


@router.post("/collections", responses=problems(409, 507), summary="Create a collection")
async def create(request: Request, body: NewCollection, _: NoQuery) -> CollectionBody:
    """Creates an empty collection."""
    return await _after(request, lambda corpus: corpus.collections.create(body.name, body.note), _shown)


@router.get("/collections/{collection}", responses=problems(404), summary="A collection")
async def collection(request: Request, collection: CollectionId, _: NoQuery) -> CollectionBody:
    """Returns a collection, by id or name, with its moments in order."""
    return await _after(request, lambda corpus: corpus.collections.get(collection), _shown)


@router.patch("/collections/{collection}", responses=problems(404, 409, 507), summary="Rename a collection")
async def describe(
    request: Request, collection: CollectionId, body: CollectionChange, _: NoQuery
) -> CollectionBody:
    """Changes a collection's name, its note, or both."""
    new = body.model_dump(exclude={"name"}) | {"new_name": body.name}
    return await _after(request, lambda corpus: corpus.collections.describe(collection, **new), _shown)


@router.delete("/collections/{collection}", responses=problems(404, 507), summary="Delete a collection")
async def delete(request: Request, collection: CollectionId, _: NoQuery) -> CollectionsBody:
    """Deletes a collection; the videos stay. Returns the remaining collections."""
    return await _after(request, lambda corpus: corpus.collections.delete(collection), _listed)


@router.post("/collections/{collection}/items", responses=problems(404, 507), summary="Add moments to it")
async def add(request: Request, collection: CollectionId, body: NewItems, _: NoQuery) -> CollectionBody:
    """Appends moments to a collection, in the given order."""

    def change(corpus: Corpus) -> Collection:
        moments = [moment_of(name, "moments") for name in body.moments]
        for moment in moments:
            record_of(corpus, moment.video_id)
        return corpus.collections.add(collection, moments, query=body.query)

    return await _after(request, change, _shown)


@router.patch(
    "/collections/{collection}/items/{item}", responses=problems(404, 409, 507), summary="Change a moment"
)
async def change(
    request: Request, collection: CollectionId, item: ItemId, body: ItemChange, _: NoQuery
) -> CollectionBody:
    """Changes a moment's times, note or tags."""
    new = body.model_dump()
    return await _after(request, lambda corpus: corpus.collections.change(collection, item, **new), _shown)


@router.post(
    "/collections/{collection}/items/{item}/move", responses=problems(404, 507), summary="Move a moment"
)
async def move(
    request: Request, collection: CollectionId, item: ItemId, body: ItemMove, _: NoQuery
) -> CollectionBody:
    """Moves or copies a moment before another one, or to the end. Returns the collection in the path."""
    place = body.model_dump()
    return await _after(request, lambda corpus: corpus.collections.move(collection, item, **place), _shown)


@router.delete(
    "/collections/{collection}/items/{item}", responses=problems(404, 507), summary="Remove a moment"
)
async def remove(request: Request, collection: CollectionId, item: ItemId, _: NoQuery) -> CollectionBody:
    """Removes a moment; later ones move up."""
    return await _after(request, lambda corpus: corpus.collections.remove(collection, [item]), _shown)


@router.get(
    "/collections/{collection}/export",
    responses=problems(404, 409, 410) | DOWNLOAD,
    response_class=Response,
    summary="A collection as a list for editors and players",
)
async def export_collection(
    request: Request, collection: CollectionId, parameters: Annotated[ListParameters, Query()]
) -> Response:
    """Sends a collection as `whenabouts export --collection` writes it."""
    service = service_of(request)
    check_format(parameters.format)

    def read(corpus: Corpus) -> Response:
        kept, _ = _filled(corpus, collection)
        moments, notes = corpus.moments_of(kept.items)
        return sent_list(service, corpus, moments, parameters, name=kept.name, title=kept.name, notes=notes)

    return await service.read(service.searches, request, read)


@router.get(
    "/collections/{collection}/film",
    responses=problems(404, 409, 410, 416, 507) | binary("video/mp4"),
    response_class=Response,
    summary="A collection as one film",
)
async def film(request: Request, collection: CollectionId, _: NoQuery) -> Response:
    """Joins the moments of a collection that have a recording in one new MP4 file of at most an hour."""
    service = service_of(request)

    def read(corpus: Corpus) -> tuple[str, list[tuple[VideoRecord, Moment]]]:
        kept, records = _filled(corpus, collection, kinds=("media",))
        parts = [(records[item.video_id], item.moment) for item in kept.items if item.video_id in records]
        for record, _moment in parts:
            service.folders.open(record).close()
        return kept.name, parts

    name, parts = await service.read(service.reads, request, read)
    if sum(part[1].duration for part in parts) > MOST_FILM_SECONDS:
        most = f"a film may last at most {MOST_FILM_SECONDS:g} s here"
        raise ServerError(400, "film_too_long", f"{most}; use `whenabouts cut --collection` for more")
    facts = [f"{'/'.join(content_of(record))} {at.start:.3f} {at.end:.3f}" for record, at in parts]
    key = cached_name("", "film", CUT_VERSION, *facts) + ".mp4"
    opened = await service.encoded_once("film", key, partial(_join, service, parts))
    return respond(request, opened, media_type="video/mp4", name=f"{name}.mp4", tag=key[:32])


def _filled(
    corpus: Corpus, name: str, kinds: Sequence[str] = ("media", "transcript")
) -> tuple[Collection, dict[str, VideoRecord]]:
    """A collection and its videos of some kinds. Raises ServerError for no video or too many moments."""
    with _refusals():
        kept = corpus.collections.get(name)
    records = {key: each for key, each in _records(corpus, kept.items).items() if each.kind in kinds}
    if not records:
        raise ServerError(404, "empty_collection", f"no moment in {kept.name!r} has a video here")
    if len(kept.items) > MOST_MOMENTS:
        too_many = f"{len(kept.items)} moments, but the server takes at most {MOST_MOMENTS}"
        problem = f"{too_many}; use the `whenabouts` command"
        raise ServerError(400, "too_many_moments", problem)
    return kept, records


def _join(service: Service, parts: Sequence[tuple[VideoRecord, Moment]], out: FilePath) -> None:
    """Write a film."""
    with contextlib.ExitStack() as stack:
        cuts = [(stack.enter_context(service.folders.held(record)), at.start, at.end) for record, at in parts]
        with safe_errors(cuts[0][0], out, *(path for path, _, _ in cuts[1:])):
            service.decoders.join(cuts, out)


@router.get("/saved-searches", responses=problems(), summary="Saved searches")
async def saved_searches(request: Request, _: NoQuery) -> SavedSearchesBody:
    """Lists all saved searches, by name."""
    return await read_corpus(request, _saved)


def _saved(corpus: Corpus, _: None = None) -> SavedSearchesBody:
    listed = corpus.saved_searches.listed()
    bodies = (SavedSearchBody(**asdict(each) | {"moments": sorted(each.moments)}) for each in listed)
    return SavedSearchesBody(data=list(bodies))


@router.post("/saved-searches", responses=problems(507), summary="Save a search")
async def save_search(request: Request, body: NewSearch, _: NoQuery) -> SavedSearchesBody:
    """Saves a search, in place of one with the same name. Returns all saved searches."""
    return await _after(
        request, lambda corpus: corpus.saved_searches.save(body.name, body.question, body.moments), _saved
    )


@router.delete("/saved-searches/{name:path}", responses=problems(404, 507), summary="Delete a saved search")
async def delete_search(request: Request, name: CollectionId, _: NoQuery) -> SavedSearchesBody:
    """Deletes a saved search. Returns the remaining ones."""
    return await _after(request, lambda corpus: corpus.saved_searches.delete(name), _saved)
