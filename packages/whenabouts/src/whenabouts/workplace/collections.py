"""Collections: moments in a chosen order, each with a note and tags.

An item stores the video's id and times, not the words. The words are read from the corpus when the item is
shown, so indexing again updates them, and removing the video removes them. The corpus may come from someone
else, so its rows are not trusted: an invalid collection is listed with its fault, and can only be deleted.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whenabouts.index.records import StoreError
from whenabouts.types import LONGEST_SECONDS, Moment, ScoredMoment, UsageError
from whenabouts.workplace.database import Database

LONGEST_NAME = 200
LONGEST_NOTE = 2_000
MOST_TAGS = 20
LONGEST_TAG = 100
MOST_ITEMS = 10_000
MOST_COLLECTIONS = 1_000
Seen = Mapping[str, Any] | None
_ID = re.compile("[0-9a-f]{12}")
_ITEMS = "SELECT * FROM items LEFT JOIN contents ON contents.item = items.id"


class NoSuchCollection(UsageError):
    """No collection has that name, or no item that id."""


class NameTaken(UsageError):
    """Another collection has the name."""


class ChangedMeanwhile(UsageError):
    """A value is no longer the one that the writer saw."""


@dataclass(frozen=True, slots=True)
class Item:
    """A moment of a collection, [start, end) in seconds; `query` is the question that found it, or "".

    `content` is the hash of the video's file when the moment was added or trimmed, "" if it is not known.
    """

    id: str
    video_id: str
    start: float
    end: float
    note: str = ""
    tags: tuple[str, ...] = ()
    query: str = ""
    content: str = ""

    @property
    def moment(self) -> Moment:
        return Moment(self.video_id, self.start, self.end)

    def to_json(self) -> dict[str, Any]:
        facts = dataclasses.asdict(self) | {"tags": list(self.tags)}
        return {name: value for name, value in facts.items() if name != "content"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list of collections; `seconds` is the total length, `changed` a Unix time.

    `problem` says why an invalid collection cannot be opened, and what to do; it is "" for a valid one.
    """

    id: str
    name: str
    note: str
    changed: float
    count: int
    seconds: float
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection with its items in order."""

    id: str
    name: str
    note: str
    changed: float
    items: tuple[Item, ...]

    @property
    def seconds(self) -> float:
        return sum(item.end - item.start for item in self.items)

    def to_json(self) -> dict[str, Any]:
        items = [item.to_json() for item in self.items]
        return dataclasses.asdict(self) | {"seconds": self.seconds, "items": items}


class Collections:
    """The collections of a corpus. Each method that changes something does so in one transaction.

    Collections are addressed by name or id. `inside` clips a moment to its video, or raises UsageError;
    `content_of` gives the hash of a video's file. All methods raise StoreError if the database file cannot
    be used.
    """

    def __init__(
        self,
        database: Database,
        inside: Callable[[Moment], Moment] | None = None,
        content_of: Callable[[str], str] = lambda video_id: "",
    ) -> None:
        self._database, self._inside, self._content_of = database, inside, content_of

    def listed(self) -> list[Listed]:
        """All collections, most recently changed first. Invalid ones have a `problem`."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT * FROM collections ORDER BY changed DESC, name").fetchall()
            return [_listed(connection, row) for row in rows]

    def get(self, name: str) -> Collection:
        """One collection. Raises NoSuchCollection."""
        with self._database.reading() as connection:
            if connection is None:
                raise _unknown(name, [])
            return _read(connection, name)

    def count_of(self, video_ids: Sequence[str]) -> int:
        """How many collected moments are of these videos."""
        with self._database.reading() as connection:
            query = "SELECT COUNT(*) FROM items WHERE video_id IN (SELECT value FROM json_each(?))"
            counted = connection and connection.execute(query, (json.dumps(video_ids),))
            return int(counted.fetchone()[0]) if counted else 0

    def create(self, name: str, note: str = "") -> Collection:
        """Create an empty collection. Raises NameTaken, and UsageError for an invalid name."""
        with self._database.changing() as connection:
            return _read(connection, _create(connection, name, note))

    def describe(
        self, name: str, *, new_name: str | None = None, note: str | None = None, seen: Seen = None
    ) -> Collection:
        """Change a collection's name or note; `seen` as in `change`. Raises NameTaken, too."""
        with self._database.changing() as connection:
            row = _row(connection, name)
            _check_seen(seen, dict(row))
            if new_name is not None and checked_name(new_name) != row["name"]:
                _check_free(connection, new_name)
            change = "UPDATE collections SET name = coalesce(?, name), note = coalesce(?, note) WHERE id = ?"
            connection.execute(change, (new_name and new_name.strip(), note and _note(note), row["id"]))
            return _changed(connection, row["id"])

    def delete(self, name: str) -> None:
        """Delete a collection with its items; the videos stay. Raises NoSuchCollection."""
        with self._database.changing() as connection:
            row = _listed_row(connection, name)
            connection.execute("DELETE FROM collections WHERE rowid = ?", (row["rowid"],))

    def add(
        self, name: str, moments: Iterable[Moment | ScoredMoment], *, query: str = "", create: bool = False
    ) -> Collection:
        """Append moments, scored ones too. Raises UsageError (too many), NoSuchCollection unless `create`."""
        with self._database.changing() as connection:
            if create and _find(connection, name) is None:
                _create(connection, name, "")
            row = _row(connection, name)
            new = [each.moment if isinstance(each, ScoredMoment) else each for each in moments]
            if other := next((each for each in new if not isinstance(each, Moment)), None):
                raise UsageError(f"{other!r} is not a moment; Corpus.moment reads names of moments")
            _check_room(row, _count(connection, row["id"]) + len(new))
            for moment in map(self._new, new):
                video, content = moment.video_id, self._content_of(moment.video_id)
                item = Item("", video, moment.start, moment.end, query=query[:LONGEST_NOTE], content=content)
                _append(connection, row["id"], item)
            return _changed(connection, row["id"])

    def change(
        self,
        name: str,
        item: str,
        *,
        start: float | None = None,
        end: float | None = None,
        note: str | None = None,
        tags: Sequence[str] | None = None,
        seen: Seen = None,
    ) -> Collection:
        """Change an item's times, note or tags. Raises NoSuchCollection, UsageError.

        Raises ChangedMeanwhile unless the item still has the values `seen`; None stands for any value.
        """
        with self._database.changing() as connection:
            row = _row(connection, name)
            now = _item(connection, row, item)
            _check_seen(seen, now.to_json())
            texts = {"note": note and _note(note), "tags": tags and _tags(tags)}
            given: dict[str, Any] = {"start": start, "end": end} | texts
            new = dataclasses.replace(now, **{key: to for key, to in given.items() if to is not None})
            if (moment := new.moment) != now.moment:
                moment = self._new(moment)
                content = self._content_of(now.video_id)
                connection.execute("INSERT OR REPLACE INTO contents VALUES (?, ?)", (now.id, content))
            facts = (moment.start, moment.end, new.note, json.dumps(new.tags), now.id)
            connection.execute("UPDATE items SET start = ?, end = ?, note = ?, tags = ? WHERE id = ?", facts)
            return _changed(connection, row["id"])

    def move(
        self, name: str, item: str, before: str | None, *, to: str | None = None, keep: bool = False
    ) -> Collection:
        """Move an item, or a copy (`keep`), before another one or to the end (None), of `to` or `name`.

        Returns the collection `name`. Raises NoSuchCollection, and UsageError if `to` is full.
        """
        with self._database.changing() as connection:
            row = _row(connection, name)
            target = row if to is None else _row(connection, to)
            kept = _item(connection, row, item)
            moved = _append(connection, target["id"], kept) if keep else kept.id
            order = [each.id for each in _items(connection, target) if each.id != moved]
            _check_room(target, len(order) + 1)
            if before != moved or target["id"] != row["id"]:
                at = len(order) if before is None else order.index(_item(connection, target, before).id)
                connection.execute("UPDATE items SET collection = ? WHERE id = ?", (target["id"], moved))
                _order(connection, [*order[:at], moved, *order[at:]])
                _changed(connection, target["id"])
            return _changed(connection, row["id"])

    def reorder(self, name: str, order: Sequence[int]) -> Collection:
        """Reorder the items; `order` has their present numbers, from 1, in the new order.

        Raises NoSuchCollection, and UsageError if a number is missing or repeated.
        """
        with self._database.changing() as connection:
            row = _row(connection, name)
            items = _items(connection, row)
            if sorted(order) != list(range(1, len(items) + 1)):
                raise UsageError(f"order: give each number from 1 to {len(items)} once")
            _order(connection, [items[number - 1].id for number in order])
            return _changed(connection, row["id"])

    def remove(self, name: str, items: Iterable[str]) -> Collection:
        """Remove items. Raises NoSuchCollection, and removes nothing, if one does not exist."""
        with self._database.changing() as connection:
            row = _row(connection, name)
            gone = {_item(connection, row, item).id for item in items}
            connection.executemany("DELETE FROM items WHERE id = ?", [(item,) for item in gone])
            return _changed(connection, row["id"])

    def _new(self, moment: Moment) -> Moment:
        _check_times(moment)
        moment = moment if self._inside is None else self._inside(moment)
        if round(moment.start, 3) >= round(moment.end, 3):  # times are shown and cut to the millisecond
            raise UsageError(f"{moment.name} is shorter than a millisecond")
        return moment


def checked_name(name: str) -> str:
    """A name, stripped. Raises UsageError if it is empty, too long, unprintable or only dots."""
    name = name.strip()
    # Clients would take a name of dots in an address for a folder.
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or not name.strip("."):
        accepted = f"use 1 to {LONGEST_NAME} printable characters, not dots alone"
        raise UsageError(f"{name[:40]!r} is not a name; {accepted}")
    return name


def _check_seen(seen: Seen, now: Mapping[str, Any]) -> None:
    for name, value in (seen or {}).items():
        if value is not None and value != now[name]:
            raise ChangedMeanwhile(f"someone else has changed the {name} to {now[name]!r}; read it again")


def _check_times(moment: Moment) -> None:
    if moment.end > LONGEST_SECONDS:
        raise UsageError(
            f"{moment.end:.6g} s is longer than any recording; give an end up to {LONGEST_SECONDS:.0f} s"
        )


def _note(text: str) -> str:
    if len(text) > LONGEST_NOTE:
        raise UsageError(f"the note has {len(text)} characters; at most {LONGEST_NOTE} are allowed")
    return text


def _tags(tags: Sequence[str]) -> list[str]:
    plain = list(dict.fromkeys(filter(None, (tag.strip() for tag in tags))))
    if len(plain) > MOST_TAGS or any(len(tag) > LONGEST_TAG or not tag.isprintable() for tag in plain):
        accepted = f"at most {MOST_TAGS} of {LONGEST_TAG} printable characters are allowed"
        raise UsageError(f"too many or too long tags; {accepted}")
    if several := next((tag for tag in plain if "," in tag), None):
        raise UsageError(f"{several!r} is not a tag, because commas separate tags; give each tag by itself")
    return plain


def _find(connection: sqlite3.Connection, name: str) -> sqlite3.Row | None:
    """The collection with an id or a name, ids first, both as they are listed."""
    name = name.strip()
    # SQLite does not find text that is not UTF-8 by the text that is shown.
    rows = connection.execute("SELECT rowid, * FROM collections")
    matching = (row for row in rows if name in (row["name"], row["id"]))
    return min(matching, key=lambda row: bool(row["id"] != name), default=None)


def _listed_row(connection: sqlite3.Connection, name: str) -> sqlite3.Row:
    """A collection, valid or not. Raises NoSuchCollection."""
    row = _find(connection, name)
    if row is None:
        names = connection.execute("SELECT name FROM collections ORDER BY changed DESC LIMIT 20")
        raise _unknown(name, [each["name"] for each in names])
    return row


def _row(connection: sqlite3.Connection, name: str) -> sqlite3.Row:
    """A collection whose items can be looked up by its id. Raises NoSuchCollection, StoreError."""
    row = _listed_row(connection, name)
    _check_id(row["id"], row["name"])
    return row


def _check_id(id: str, collection: str) -> None:
    if not _ID.fullmatch(id):
        raise StoreError(f"the collection {collection[:LONGEST_NAME]!r} has an invalid id; delete it")


def _unknown(name: str, names: Sequence[str]) -> NoSuchCollection:
    present = f"choose from {', '.join(map(repr, names))}" if names else "there are none yet"
    return NoSuchCollection(f"no collection is called {name[:LONGEST_NAME]!r}; {present}")


def _check_free(connection: sqlite3.Connection, name: str) -> None:
    name = checked_name(name)
    if connection.execute("SELECT 1 FROM collections WHERE ? IN (name, id)", (name,)).fetchone():
        raise NameTaken(f"another collection has the name or id {name!r}; choose another name")


def _create(connection: sqlite3.Connection, name: str, note: str) -> str:
    _check_free(connection, name)
    if connection.execute("SELECT COUNT(*) FROM collections").fetchone()[0] >= MOST_COLLECTIONS:
        raise UsageError(f"there are {MOST_COLLECTIONS} collections, the most allowed; delete one first")
    facts = (secrets.token_hex(6), checked_name(name), _note(note), time.time())
    connection.execute("INSERT INTO collections VALUES (?, ?, ?, ?)", facts)
    return facts[0]


def _count(connection: sqlite3.Connection, collection: str) -> int:
    counted = connection.execute("SELECT COUNT(*) FROM items WHERE collection = ?", (collection,))
    return int(counted.fetchone()[0])


def _items(connection: sqlite3.Connection, collection: sqlite3.Row) -> list[Item]:
    rows = connection.execute(f"{_ITEMS} WHERE collection = ? ORDER BY place", (collection["id"],))
    return [_item_of(row, collection["name"]) for row in rows]


def _item(connection: sqlite3.Connection, collection: sqlite3.Row, item: str) -> Item:
    row = connection.execute(f"{_ITEMS} WHERE collection = ? AND id = ?", (collection["id"], item)).fetchone()
    if row is None:
        raise NoSuchCollection(f"the collection has no moment {item[:40]!r}; someone may have removed it")
    return _item_of(row, collection["name"])


def _item_of(row: sqlite3.Row, collection: str) -> Item:
    facts = {name: row[name] for name in ("id", "video_id", "start", "end", "note", "query")}
    try:
        # Earlier versions took tags with commas, which lists and the page read as several.
        parts = (part.strip() for tag in json.loads(row["tags"]) for part in str(tag).split(","))
        tags = tuple(filter(None, parts))
        item = Item(**facts, tags=tags, content=row["content"] or "")
        "".join(item.tags).encode()  # JSON may hold half of a character
        _check_times(item.moment)
    except (ValueError, TypeError, RecursionError, UsageError) as error:
        name = collection[:LONGEST_NAME]
        raise StoreError(f"the collection {name!r} contains an invalid moment ({error}); delete it") from None
    _check_id(item.id, collection)
    return item


def _listed(connection: sqlite3.Connection, row: sqlite3.Row) -> Listed:
    facts = {name: row[name] for name in ("id", "name", "note", "changed")}
    try:
        _check_id(row["id"], row["name"])
        items = _items(connection, row)
    except StoreError as error:
        return Listed(**facts, count=_count(connection, row["id"]), seconds=0.0, problem=str(error))
    return Listed(**facts, count=len(items), seconds=sum(item.moment.duration for item in items))


def _check_room(collection: sqlite3.Row, count: int) -> None:
    if count > MOST_ITEMS:
        raise UsageError(f"{collection['name']!r} would have {count} moments, but at most {MOST_ITEMS} fit")


def _append(connection: sqlite3.Connection, collection: str, item: Item) -> str:
    """Append an item, or a copy of one, to a collection; returns its id."""
    id, tags = secrets.token_hex(6), json.dumps(item.tags)
    place = "(SELECT coalesce(max(place), -1) + 1 FROM items WHERE collection = ?2)"
    facts = (id, collection, item.video_id, item.start, item.end, item.note, tags, item.query)
    connection.execute(f"INSERT INTO items VALUES (?1, ?2, {place}, ?3, ?4, ?5, ?6, ?7, ?8)", facts)
    connection.execute("INSERT INTO contents VALUES (?, ?)", (id, item.content))
    return id


def _order(connection: sqlite3.Connection, items: Sequence[str]) -> None:
    connection.executemany("UPDATE items SET place = ? WHERE id = ?", enumerate(items))


def _read(connection: sqlite3.Connection, name: str) -> Collection:
    row = _row(connection, name)
    return Collection(row["id"], row["name"], row["note"], row["changed"], tuple(_items(connection, row)))


def _changed(connection: sqlite3.Connection, collection: str) -> Collection:
    connection.execute("UPDATE collections SET changed = ? WHERE id = ?", (time.time(), collection))
    return _read(connection, collection)
