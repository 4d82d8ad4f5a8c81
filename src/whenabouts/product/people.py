"""People: who the labels of a stream are, across videos; naming, merging and forgetting them.

A stream with a `filter_key` labels its clips: by a name where its source gives one ("CMP"), else by a label
of one video ("voice 2 (talk-00ff00ff)"). Which labels are one person is a small fact of the corpus, label ->
name, that outlives indexing again. Where clips have vectors, labels of new videos are joined to the person
whose mean vector is nearest, if it is near enough (`link`). What was named by hand is never renamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.product.index.filters import Condition
from whenabouts.product.index.records import VideoRecord, natural_key, printable
from whenabouts.product.index.spans import Spans
from whenabouts.product.index.store import Store
from whenabouts.product.streams import filter_streams
from whenabouts.product.streams.protocol import label_in
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

        Raises UsageError for somebody who is not there, and for a name that somebody else of the stream has.
        """
        name = checked_name(name)

        def change(names: Names) -> int:
            same = self._with(person)
            taken = [p.stream for p in self.listed() if p.name == name and p.name != person]
            if doubled := sorted({own.stream for own in same} & set(taken)):
                raise UsageError(
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
        """Take the last change of names back; what it was. Raises UsageError where there is none."""
        with self._store.writing():
            fact = dict(self._store.fact(_FACT) or {})
            changes = list(fact.get("changes", []))
            if not changes:
                raise UsageError(
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
        """A person in each stream that knows one of that name. Raises UsageError where none does."""
        people = self.listed()
        same = [own for own in people if own.name == person]
        if not same:
            folded = [own for own in people if own.name.casefold() == person.casefold()]
            if len({own.name for own in folded}) == 1:
                return folded
            names = ", ".join(own.name for own in people[:_SHOWN_NAMES]) or "nobody: index with --speakers"
            raise UsageError(f"nobody is called {person!r}; there is {names} (`whenabouts people` lists all)")
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
        labels = set(rows["text"].to_pylist())
        if labels <= names.keys():
            return 0
        means, videos = _means(self._store, stream)
        least = float(self._store.stream(stream).settings.get("same_person", 1.0))
        return _joined_labels(means, videos, names, least)


def _joined_labels(
    means: Mapping[str, NDArray[np.float64]],
    videos: Mapping[str, set[str]],
    names: dict[str, str],
    least: float,
) -> int:
    """Give each label without a name that of the nearest person; how many labels now have one.

    `means` are sums of unit vectors by label, `least` the cosine from which two are one person. In order of
    the labels, so that the same videos give the same people.
    """
    width = len(next(iter(means.values()), np.zeros(0)))
    people: dict[str, int] = {}
    sums = np.zeros((len(means), width))
    seen_in: list[set[str]] = []

    def add(label: str, person: str) -> None:
        row = people.setdefault(person, len(people))
        if row == len(seen_in):
            seen_in.append(set())
        sums[row] += means[label]
        seen_in[row] |= videos[label]

    for label in means:
        if label in names:
            add(label, names[label])
    named = [label for label in means if label not in names and not _is_of_one_video(label, videos[label])]
    for label in named:
        names[label] = label
        add(label, label)
    count = len(named)
    for label in sorted(means.keys() - names.keys(), key=natural_key):
        length = np.linalg.norm(means[label])
        directions = sums[: len(people)]
        lengths = np.linalg.norm(directions, axis=1) * length
        cosine = np.where(lengths > 0, directions @ means[label] / np.where(lengths > 0, lengths, 1), -1.0)
        apart = np.array([not own.isdisjoint(videos[label]) for own in seen_in], np.bool_)
        cosine[apart] = -1.0
        best = int(np.argmax(cosine)) if len(cosine) else -1
        person = list(people)[best] if best >= 0 and cosine[best] >= least else label
        names[label] = person
        add(label, person)
        count += 1
    return count


def _is_of_one_video(label: str, videos: set[str]) -> bool:
    return len(videos) == 1 and label.endswith(label_in("", *videos))


def _means(store: Store, stream: str) -> tuple[dict[str, NDArray[np.float64]], dict[str, set[str]]]:
    """The sum of the vectors of each label, and the videos it is in; read in blocks of videos."""
    sums: dict[str, NDArray[np.float64]] = {}
    videos = defaultdict[str, set[str]](set)
    ids = [record.video_id for record in store.ledger().listed if stream in record.streams]
    for at in range(0, len(ids), 100):
        block = store.clips_of(stream, ids[at : at + 100])
        owner = np.repeat(np.arange(len(block.video_ids)), np.diff(block.offsets)).tolist()
        labels, number = np.unique(np.array(block.text, object).astype(str), return_inverse=True)
        added = np.zeros((len(labels), block.vectors.shape[1]))
        np.add.at(added, number, block.vectors)
        for place, label in enumerate(labels.tolist()):
            sums[label] = sums.get(label, 0.0) + added[place]
        for place, label in zip(owner, block.text, strict=True):
            videos[label].add(block.video_ids[place])
    return dict(sorted(sums.items(), key=lambda item: natural_key(item[0]))), videos


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
