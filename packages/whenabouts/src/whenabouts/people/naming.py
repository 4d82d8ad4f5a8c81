"""People of a corpus: maps the labels of a stream to people across videos; names, merges and forgets them.

A stream with a `filter_key` labels its clips: by a name if its source gives one ("CMP"), else by a label
unique to the video ("voice 2 (talk-00ff00ff)"). The map label -> name is stored with the corpus and survives
indexing again. If clips have vectors, labels of new videos are joined to the person with the nearest mean
vector above a threshold (`linking.py`). Linking never changes names given by hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from whenabouts.index.filters import Condition
from whenabouts.index.records import VideoRecord, natural_key, printable
from whenabouts.index.spans import Spans
from whenabouts.index.store import Store
from whenabouts.people.linking import join_labels, label_vectors
from whenabouts.streams import all_streams, filter_streams
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    import pyarrow as pa

_FACT = "people"
LONGEST_NAME = 200
_KEPT_CHANGES = 20
_SHOWN_NAMES = 20

Names = dict[str, dict[str, str]]
"""The person's name by stream and label. A label without an entry serves as the name."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is heard or seen: the `labels` of a stream that are this person, and where.

    `videos` are ids, `clips` is the number of turns or sightings, `seconds` their total length.
    """

    name: str
    stream: str
    labels: tuple[str, ...]
    videos: tuple[str, ...]
    clips: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 3)}


class NoSuchPerson(UsageError):
    """Nobody in the corpus has that name."""


class NameTaken(UsageError):
    """Another person of the same stream has that name; the two may be one."""


class NothingToUndo(UsageError):
    """There is no change of names to undo."""


class People:
    """The people of a corpus. Reading uses the store's snapshot; changes take the writer's lock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, tuple[Any, pa.Table]] = {}

    @property
    def streams(self) -> dict[str, str]:
        """The streams that label people, by the key of their condition."""
        return filter_streams(self._store.streams)

    def listed(self, stream: str | None = None) -> list[Person]:
        """All people, by stream, longest time first."""
        names = self._names()
        chosen = [name for name in self.streams.values() if stream in (None, name)]
        return [person for name in chosen for person in self._of(name, names.get(name, {}))]

    def _of(self, stream: str, names: Mapping[str, str]) -> list[Person]:
        import pyarrow.compute as pc

        rows = self._labelled(stream)
        timed = rows.append_column("seconds", pc.subtract(rows["end"], rows["start"]))
        grouped = timed.group_by(["text", "video_id"], use_threads=False)
        parts = defaultdict[str, list[dict[str, Any]]](list)
        for part in grouped.aggregate([("seconds", "count"), ("seconds", "sum")]).to_pylist():
            parts[names.get(part["text"], part["text"])].append(part)
        persons = [
            Person(
                name,
                stream,
                tuple(sorted({part["text"] for part in of_person}, key=natural_key)),
                tuple(sorted({part["video_id"] for part in of_person}, key=natural_key)),
                sum(part["seconds_count"] for part in of_person),
                sum(part["seconds_sum"] for part in of_person),
            )
            for name, of_person in sorted(parts.items())
        ]
        return sorted(persons, key=lambda person: (-person.seconds, natural_key(person.name)))

    def turns(self, stream: str, video_id: str) -> list[tuple[float, float, str]]:
        """Start, end and name of each turn or sighting in a video, by start."""
        import pyarrow.compute as pc

        names = self._names().get(stream, {})
        rows = self._labelled(stream)
        rows = rows.filter(pc.equal(rows["video_id"], video_id))
        return sorted(
            (row["start"], row["end"], names.get(row["text"], row["text"])) for row in rows.to_pylist()
        )

    def spans(self, stream: str, condition: Condition) -> Spans:
        """The time ranges of people whose name matches a condition, whatever its operator."""
        import pyarrow as pa

        names = self._names().get(stream, {})
        rows = self._labelled(stream)
        labels = rows["text"].dictionary_encode().combine_chunks()
        fits = [condition.names(names.get(label, label)) for label in labels.dictionary.to_pylist()]
        kept = rows.filter(pa.array(fits, pa.bool_()).take(labels.indices))
        return Spans.of(kept["video_id"].to_pylist(), kept["start"].to_numpy(), kept["end"].to_numpy())

    def allowed(self, condition: Condition, records: Iterable[VideoRecord]) -> tuple[Spans, str]:
        """The ranges of some videos that a condition on people allows, and a note if it matches nobody.

        A video whose metadata match (`--meta speaker=Ada`) is allowed as a whole with "=", and left out with
        "!=". Raises UsageError for other operators.
        """
        if condition.operator not in ("=", "!="):
            raise UsageError(
                f"{condition.key}{condition.operator}{condition.value}: names have no order; use = or !="
            )
        stream, is_name = self.streams[condition.key], replace(condition, operator="=")
        named = {record.video_id: is_name.accepts(record.metadata) for record in records}
        spans = self.spans(stream, condition)
        note = "" if any(named.values()) else self.note_on(stream, condition)
        if condition.operator == "!=":
            return spans.outside(video_id for video_id, is_named in named.items() if not is_named), note
        return spans.with_whole(video_id for video_id, is_named in named.items() if is_named), note

    def note_on(self, stream: str, condition: Condition) -> str:
        """A note listing people if no name matches a condition; "" otherwise."""
        people = self.listed(stream)
        if any(condition.names(person.name) for person in people):
            return ""
        names = [person.name for person in people[:_SHOWN_NAMES]]
        more = f" and {len(people) - _SHOWN_NAMES} more" if len(people) > _SHOWN_NAMES else ""
        listed = f"there are {', '.join(names)}{more}" if names else "nobody has been found yet"
        return f"no {condition.key} is called {condition.value!r}; {listed} (`whenabouts people` lists all)"

    def _labelled(self, stream: str) -> pa.Table:
        """Video, start, end and label of all clips of a stream, cached per version."""
        state = self._store.state_of(stream)
        if self._rows.get(stream, (None, None))[0] != state:
            self._rows[stream] = state, self._store.labels(stream)
        return self._rows[stream][1]

    # Names ---------------------------------------------------------------------------------------

    def name(self, person: str, name: str) -> int:
        """Rename a person; returns the number of streams with that person.

        Raises NoSuchPerson, NameTaken, and UsageError for an invalid name.
        """
        name = checked_name(name)

        def change(names: Names) -> int:
            same = self._with(person)
            used = [] if same[0].name == name else [p.stream for p in self.listed() if p.name == name]
            if doubled := sorted({person.stream for person in same} & set(used)):
                raise NameTaken(
                    f"{name!r} is already a name in {' and '.join(doubled)}; if it is the same person: "
                    f"whenabouts people merge {name!r} {person!r}"
                )
            return _rename(names, same, name)

        return self._changed(f"name {person!r} {name!r}", change)

    def merge(self, person: str, other: str) -> int:
        """Give the clips of `other` to `person`; returns the number of changed streams.

        Raises NoSuchPerson, and UsageError if both names mean one person.
        """

        def change(names: Names) -> int:
            kept, others = self._with(person)[0].name, self._with(other)
            if others[0].name == kept:
                raise UsageError(f"{person!r} cannot be merged with itself; name two people")
            return _rename(names, others, kept)

        return self._changed(f"merge {person!r} {other!r}", change)

    def undo(self) -> str:
        """Undo the last change of names; returns its description. Raises NothingToUndo."""
        with self._store.writing():
            changes = self._changes()
            if not changes:
                raise NothingToUndo(
                    "there is nothing to undo: no name was changed, or somebody or a stream was erased since"
                )
            last = changes.pop()
            names = self._names()
            for stream, before in last["before"].items():
                restored = {**names.get(stream, {}), **before}
                names[stream] = {label: name for label, name in restored.items() if name is not None}
            self._store.put_fact(_FACT, {"names": names, "changes": changes})
        return str(last["what"])

    def forget(self, person: str) -> int:
        """Erase a person with all vectors; returns the number of erased clips. It cannot be undone.

        When this returns, no file of the corpus holds the vectors. Earlier changes of names can no longer be
        undone, because their record holds the name. If the process dies half-way, readers no longer see the
        person, and the next writer finishes (the same command does). Raises NoSuchPerson.
        """
        command = f"forget {person}"
        with self._store.writing():
            finished = self._store.finished_erasing(command)
            if finished is not None and not any(each.name == person for each in self.listed()):
                return int(finished)
            names, labels = self._names(), dict[str, list[str]]()
            for each in self._with(person):
                person = each.name
                labels[each.stream] = [*each.labels]
            for stream, of_stream in names.items():
                named = [label for label, name in of_stream.items() if name == person]
                labels[stream] = sorted({*labels.get(stream, ()), *named})
                names[stream] = {label: name for label, name in of_stream.items() if name != person}
            erased = {stream: some for stream, some in labels.items() if some}
            return self._store.erase(erased, {_FACT: {"names": names, "changes": []}}, command=command)

    def names_without(self, stream: str) -> dict[str, Any]:
        """The facts to store when a stream is erased: all names but its own; {} if it has no names."""
        names = self._names()
        if names.pop(stream, None) is None:
            return {}
        return {_FACT: {"names": names, "changes": []}}

    def _with(self, person: str) -> list[Person]:
        """The people of that name, one per stream, ignoring case if that leaves one name.

        Raises NoSuchPerson if there are none.
        """
        people = self.listed()
        same = [each for each in people if each.name == person]
        if not same:
            folded = [each for each in people if each.name.casefold() == person.casefold()]
            if len({each.name for each in folded}) == 1:
                return folded
            remedies = (stream.remedy for stream in all_streams().values() if stream.filter_key)
            shown = ", ".join(each.name for each in people[:_SHOWN_NAMES])
            names = shown or f"nobody: {' or '.join(remedies)}"
            raise NoSuchPerson(
                f"nobody is called {person!r}; there is {names} (`whenabouts people` lists all)"
            )
        return same

    def _names(self) -> Names:
        fact = self._store.fact(_FACT) or {}
        return {stream: dict(names) for stream, names in fact.get("names", {}).items()}

    def _changed(self, what: str, change: Callable[[Names], int]) -> int:
        """Change the names under the writer's lock, so that `undo` can restore them."""
        with self._store.writing():
            names, before = self._names(), self._names()
            replaced: dict[str, dict[str, str | None]] = {}
            count = change(names)
            for stream, of_stream in names.items():
                old = before.get(stream, {})
                labels = [label for label in {*of_stream, *old} if of_stream.get(label) != old.get(label)]
                if labels:
                    replaced[stream] = {label: old.get(label) for label in labels}
            changes = [*self._changes(), {"what": what, "before": replaced}]
            self._store.put_fact(_FACT, {"names": names, "changes": changes[-_KEPT_CHANGES:]})
        return count

    def _changes(self) -> list[dict[str, Any]]:
        """The changes of names that can be undone, oldest first."""
        return list((self._store.fact(_FACT) or {}).get("changes", []))

    # Linking -------------------------------------------------------------------------------------

    def link(self) -> int:
        """Join new labels to the nearest people; returns the number of new labels.

        Only streams whose clips have vectors are linked. Two labels of one video are never joined, because
        the stream already distinguished them. A label that is near nobody becomes a new person.
        """
        joined = 0
        with self._store.writing():
            names = self._names()
            for stream in self.streams.values():
                if self._store.stream(stream).dimension:
                    joined += self._link(stream, names.setdefault(stream, {}))
            if joined:
                self._store.put_fact(_FACT, {"names": names, "changes": self._changes()})
        return joined

    def _link(self, stream: str, names: dict[str, str]) -> int:
        rows = self._labelled(stream)
        if set(rows["text"].to_pylist()) <= names.keys():
            return 0
        least = float(self._store.stream(stream).settings.get("same_person", 1.0))
        return join_labels(label_vectors(self._store, stream), names, least)


def _rename(names: Names, people: Sequence[Person], name: str) -> int:
    for person in people:
        of_stream = names.setdefault(person.stream, {})
        # Labels of removed videos are renamed too, because the videos may be indexed again.
        labels = (label for label, current in of_stream.items() if current == person.name)
        of_stream |= dict.fromkeys((*person.labels, *labels), name)
    return len(people)


def checked_name(name: str) -> str:
    """A name on one line, without invisible characters. Raises UsageError for an empty or long one."""
    shown = " ".join("".join(sign if sign.isprintable() else " " for sign in printable(name)).split())
    if not shown:
        raise UsageError(f"{name!r} is not a name; give letters that can be seen")
    if len(shown) > LONGEST_NAME:
        raise UsageError(
            f"the name is {number_of(len(shown), 'character')} long; {LONGEST_NAME} are the most"
        )
    return shown
