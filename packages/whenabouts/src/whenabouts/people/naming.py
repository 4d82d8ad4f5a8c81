"""People: who the labels of a stream are, across videos; naming, merging and forgetting them.

A stream with a `filter_key` labels its clips: by a name where its source gives one ("CMP"), else by a label
of one video ("voice 2 (talk-00ff00ff)"). Which labels are one person is a small fact of the corpus, label ->
name, that outlives indexing again. Where clips have vectors, labels of new videos are joined to the person
whose mean vector is nearest, if it is near enough (`person_linking.py`). What was named by hand is never
renamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
"""By stream: the name of the person that a label is; a label that is not there is called by itself."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is heard or seen: the `labels` of a stream that are one, and where.

    `videos` are ids, `clips` how many turns or sightings there are, `seconds` how long they are together.
    """

    name: str
    stream: str
    labels: tuple[str, ...]
    videos: tuple[str, ...]
    clips: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "stream": self.stream,
            "labels": list(self.labels),
            "videos": list(self.videos),
            "clips": self.clips,
            "seconds": round(self.seconds, 3),
        }


class NoSuchPerson(UsageError):
    """Nobody of the corpus has that name."""


class NameTaken(UsageError):
    """Somebody else of the same stream has that name already: the two may be one person."""


class NothingToUndo(UsageError):
    """No change of names is left that could be taken back."""


class People:
    """The people of a corpus. Reading sees the store as it is; what changes names takes the writer's lock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, tuple[Any, pa.Table]] = {}

    @property
    def streams(self) -> dict[str, str]:
        """The streams that label people, by the key of their condition."""
        return filter_streams(self._store.streams)

    def listed(self, stream: str | None = None) -> list[Person]:
        """Everybody, by stream, those heard or seen longest first."""
        names = self._names()
        chosen = [name for name in self.streams.values() if stream in (None, name)]
        return [person for name in chosen for person in self._of(name, names.get(name, {}))]

    def _of(self, stream: str, names: Mapping[str, str]) -> list[Person]:
        rows = self._labelled(stream)
        labels = rows["text"].to_pylist()
        people = [names.get(label, label) for label in labels]
        seconds = rows["end"].to_numpy() - rows["start"].to_numpy()
        unique, owner = np.unique(np.array(people, object).astype(str), return_inverse=True)
        clips = np.bincount(owner, minlength=len(unique))
        lengths = np.bincount(owner, weights=seconds, minlength=len(unique))
        videos, own = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for person, label, video_id in zip(people, labels, rows["video_id"].to_pylist(), strict=True):
            videos[person].add(video_id)
            own[person].add(label)
        persons = [
            Person(
                name,
                stream,
                tuple(sorted(own[name], key=natural_key)),
                tuple(sorted(videos[name], key=natural_key)),
                int(clips[place]),
                float(lengths[place]),
            )
            for place, name in enumerate(unique.tolist())
        ]
        return sorted(persons, key=lambda person: (-person.seconds, natural_key(person.name)))

    def turns(self, stream: str, video_id: str) -> list[tuple[float, float, str]]:
        """Start, end and name of each turn or sighting in a video, by start."""
        names = self._names().get(stream, {})
        block = self._store.clips_of(stream, [video_id], vectors=False)
        rows = zip(block.start.tolist(), block.end.tolist(), block.text, strict=True)
        return sorted((start, end, names.get(label, label)) for start, end, label in rows)

    def spans(self, stream: str, condition: Condition) -> Spans:
        """When those speak, or are seen, whose name is the one of a condition, whatever its operator."""
        names = self._names().get(stream, {})
        rows = self._labelled(stream)
        labels = rows["text"].to_pylist()
        fits = {label: condition.names(names.get(label, label)) for label in set(labels)}
        kept = np.array([fits[label] for label in labels], np.bool_)
        ids = [video_id for video_id, keep in zip(rows["video_id"].to_pylist(), kept, strict=True) if keep]
        return Spans.of(ids, rows["start"].to_numpy()[kept], rows["end"].to_numpy()[kept])

    def allowed(self, condition: Condition, records: Iterable[VideoRecord]) -> tuple[Spans, str]:
        """What of some videos a condition on people leaves, and a note where it fits nobody.

        Of a video whose own facts fit the condition (`--meta speaker=Ada`), it is all of it.
        """
        stream = self.streams[condition.key]
        records = list(records)
        whole = [
            record.video_id
            for record in records
            if condition.key in record.metadata and condition.accepts(record.metadata)
        ]
        spans = self.spans(stream, condition)
        note = "" if whole else self.note_on(stream, condition)
        if condition.operator == "!=":
            return spans.outside(record.video_id for record in records), note
        if condition.operator != "=":
            raise UsageError(
                f"{condition.key}{condition.operator}{condition.value}: people have names, no order"
            )
        return spans.with_whole(whole), note

    def note_on(self, stream: str, condition: Condition) -> str:
        """What to say where nobody's name fits a condition: whom there is; "" where somebody's does."""
        people = self.listed(stream)
        if any(condition.names(person.name) for person in people):
            return ""
        names = [person.name for person in people[:_SHOWN_NAMES]]
        more = f" and {len(people) - _SHOWN_NAMES} more" if len(people) > _SHOWN_NAMES else ""
        listed = f"there are {', '.join(names)}{more}" if names else "nobody has been found yet"
        return f"no {condition.key} is called {condition.value!r}; {listed} (`whenabouts people` lists all)"

    def _labelled(self, stream: str) -> pa.Table:
        """Video, start, end and label of all clips of a stream; read once for each version of it."""
        state = self._store.state_of(stream)
        if self._rows.get(stream, (None, None))[0] != state:
            self._rows[stream] = state, self._store.labels(stream)
        return self._rows[stream][1]

    # Names ---------------------------------------------------------------------------------------

    def name(self, person: str, name: str) -> int:
        """Give a person, by the present name, another; how many streams know that person.

        Raises NoSuchPerson, NameTaken, and UsageError for what is no name.
        """
        name = checked_name(name)

        def change(names: Names) -> int:
            same = self._with(person)
            taken = [p.stream for p in self.listed() if p.name == name and p.name != person]
            if doubled := sorted({own.stream for own in same} & set(taken)):
                raise NameTaken(
                    f"somebody of {' and '.join(doubled)} is called {name!r} already; if it is one person: "
                    f"whenabouts people merge {name!r} {person!r}"
                )
            return _rename(names, same, name)

        return self._changed(f"name {person!r} {name!r}", change)

    def merge(self, person: str, other: str) -> int:
        """Let the clips of `other` be those of `person`; how many streams that changed."""

        def change(names: Names) -> int:
            self._with(person)
            if person == other:
                raise UsageError(f"{person!r} cannot be merged with itself; name two people")
            return _rename(names, self._with(other), person)

        return self._changed(f"merge {person!r} {other!r}", change)

    def undo(self) -> str:
        """Take the last change of names back; what it was. Raises NothingToUndo."""
        with self._store.writing():
            fact = dict(self._store.fact(_FACT) or {})
            changes = list(fact.get("changes", []))
            if not changes:
                raise NothingToUndo(
                    "there is nothing to undo: no name was changed, or somebody was forgotten since"
                )
            last = changes.pop()
            names = self._names()
            for stream, before in last["before"].items():
                own = names.setdefault(stream, {})
                for label, name in before.items():
                    if name is None:
                        own.pop(label, None)
                    else:
                        own[label] = name
            self._store.put_fact(_FACT, {"names": names, "changes": changes})
        return str(last["what"])

    def forget(self, person: str) -> int:
        """Take a person out for good, with all vectors: how many clips. It cannot be undone.

        No file of the corpus holds the vectors any more when this returns; what was named before cannot be
        undone either, for that would keep the name.
        """
        with self._store.writing():
            names = self._names()
            labels = {
                stream: [label for label, name in own.items() if name == person]
                for stream, own in names.items()
            }
            # Of whom a crash left nothing but the name, that goes.
            if not any(labels.values()) or any(own.name == person for own in self.listed()):
                for own in self._with(person):
                    person = own.name
                    labels[own.stream] = [*labels.get(own.stream, ()), *own.labels]
            names = {
                stream: {label: name for label, name in own.items() if name != person}
                for stream, own in names.items()
            }
            erased = {stream: set(own) for stream, own in labels.items() if own}
            return self._store.erase(erased, {_FACT: {"names": names, "changes": []}})

    def drop_stream(self, stream: str) -> None:
        """Forget all names that were given in a stream, because it is taken out."""
        names = self._names()
        if names.pop(stream, None) is not None:
            self._store.erase({}, {_FACT: {"names": names, "changes": []}})

    def _with(self, person: str) -> list[Person]:
        """A person in each stream that knows one of that name. Raises NoSuchPerson where none does."""
        people = self.listed()
        same = [own for own in people if own.name == person]
        if not same:
            folded = [own for own in people if own.name.casefold() == person.casefold()]
            if len({own.name for own in folded}) == 1:
                return folded
            names = ", ".join(own.name for own in people[:_SHOWN_NAMES]) or f"nobody: {_how_to_know()}"
            raise NoSuchPerson(
                f"nobody is called {person!r}; there is {names} (`whenabouts people` lists all)"
            )
        return same

    def _names(self) -> Names:
        fact = self._store.fact(_FACT) or {}
        return {stream: dict(names) for stream, names in fact.get("names", {}).items()}

    def _changed(self, what: str, change: Callable[[Names], int]) -> int:
        """Change the names under the writer's lock, so that it can be undone."""
        with self._store.writing():
            names, before = self._names(), self._names()
            count = change(names)
            self._keep(names, before, what)
        return count

    def _keep(self, names: Names, before: Names, what: str) -> None:
        changed = {
            stream: {
                label: before.get(stream, {}).get(label)
                for label in {*own, *before.get(stream, {})}
                if own.get(label) != before.get(stream, {}).get(label)
            }
            for stream, own in names.items()
        }
        changes = [*(self._store.fact(_FACT) or {}).get("changes", [])]
        changes.append({"what": what, "before": {stream: own for stream, own in changed.items() if own}})
        self._store.put_fact(_FACT, {"names": names, "changes": changes[-_KEPT_CHANGES:]})

    # Linking -------------------------------------------------------------------------------------

    def link(self) -> int:
        """Join labels that have not been looked at to the people they are nearest to; how many were.

        Of streams whose clips have vectors. Two labels of one video are never joined: the stream told them
        apart. A label that is near nobody is a new person.
        """
        joined = 0
        with self._store.writing():
            names = self._names()
            for stream in self.streams.values():
                if self._store.stream(stream).dimension:
                    joined += self._link(stream, names.setdefault(stream, {}))
            if joined:
                changes = [*(self._store.fact(_FACT) or {}).get("changes", [])]
                self._store.put_fact(_FACT, {"names": names, "changes": changes})
        return joined

    def _link(self, stream: str, names: dict[str, str]) -> int:
        rows = self._labelled(stream)
        if set(rows["text"].to_pylist()) <= names.keys():
            return 0
        least = float(self._store.stream(stream).settings.get("same_person", 1.0))
        return join_labels(label_vectors(self._store, stream), names, least)


def _how_to_know() -> str:
    """What makes people known, whichever streams there are."""
    return " or ".join(stream.remedy for stream in all_streams().values() if stream.filter_key)


def _rename(names: Names, people: Iterable[Person], name: str) -> int:
    streams: Sequence[Person] = list(people)
    for own in streams:
        names.setdefault(own.stream, {}).update(dict.fromkeys(own.labels, name))
    return len(streams)


def checked_name(name: str) -> str:
    """A name as it is kept: on one line, without signs that nobody sees. Raises UsageError for none."""
    shown = " ".join("".join(sign if sign.isprintable() else " " for sign in printable(name)).split())
    if not shown:
        raise UsageError(f"{name!r} is no name; give letters that can be seen")
    if len(shown) > LONGEST_NAME:
        raise UsageError(
            f"the name is {number_of(len(shown), 'character')} long; {LONGEST_NAME} are the most"
        )
    return shown
