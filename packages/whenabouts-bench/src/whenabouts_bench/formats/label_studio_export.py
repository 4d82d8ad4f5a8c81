"""Read the answers given in Label Studio (https://labelstud.io), for `build answers` and `judgements`.

An export is a JSON list of tasks. In format JSON each task has a list of annotations, one for each annotator,
with a result for each control of the labelling interface. In JSON-MIN a task is one annotation, and the
controls are its keys. Both formats are read into `Entered`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.intake.files import read_json
from whenabouts_bench.formats.json_records import Origin

ACCEPTED = "a JSON list of tasks, as Label Studio exports it (JSON or JSON-MIN)"


@dataclass(frozen=True, slots=True)
class Entered:
    """The answers that one annotator entered for one task.

    `person` identifies the annotator: a number, an e-mail address, or an object with both. `values` maps the
    name of each control to its choices (a list, or the only choice), its number, or the object of a region;
    in JSON-MIN it has the other keys of the task as well.
    """

    origin: Origin
    person: Any
    values: Mapping[str, Any]


def read_export(path: Path) -> Iterator[tuple[Origin, dict[str, Any], Iterator[Entered]]]:
    """The tasks, each as place in the file, data, and annotations; cancelled annotations are skipped.

    Raises FormatError, while it is read, if a part does not have the form of an export.
    """
    document, origin = read_json(path), Origin(path)
    if not isinstance(document, list):
        raise origin.error("is not an export", accepted=ACCEPTED)
    for number, fields in enumerate(document):
        place = origin.at(number)
        data = place.object(fields, ACCEPTED).get("data", fields)
        yield place, data if isinstance(data, dict) else {}, _entered(place, fields)


def only(value: Any) -> Any:
    """The only entry of a list, as in JSON-MIN; other values unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _entered(place: Origin, fields: Mapping[str, Any]) -> Iterator[Entered]:
    if "data" not in fields:  # JSON-MIN: the controls stand in the task itself
        yield Entered(place.at("annotator"), fields.get("annotator"), fields)
        return
    for number, annotation in enumerate(place.at("annotations").array(fields.get("annotations"), ACCEPTED)):
        origin = place.at("annotations", number)
        annotation = origin.object(annotation, ACCEPTED)
        if annotation.get("was_cancelled"):
            continue
        values = dict[str, Any]()
        for n, result in enumerate(origin.at("result").array(annotation.get("result"), ACCEPTED)):
            result = origin.at("result", n).object(result)
            value = _plain(origin.at("result", n, "value"), result.get("value"))
            name = str(result.get("from_name"))
            values[name] = [values[name], value] if name in values else value  # as several in JSON-MIN
        yield Entered(origin.at("completed_by"), annotation.get("completed_by"), values)


def _plain(origin: Origin, value: Any) -> Any:
    """{"choices": ["yes"]} -> ["yes"], likewise rating and number, as in JSON-MIN; regions unchanged."""
    value = origin.object(value)
    return next((value[kind] for kind in ("choices", "rating", "number") if kind in value), value)
