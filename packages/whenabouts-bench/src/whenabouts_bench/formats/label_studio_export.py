"""Exports of Label Studio, as JSON or JSON-MIN: tasks with their annotations."""

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
    """One person's annotation of a task.

    `person` is Label Studio's number, address or object for them. `values` maps controls to choices (a list,
    or the only one), a number, or the object of a region.
    """

    origin: Origin
    person: Any
    values: Mapping[str, Any]


def read_export(path: Path) -> Iterator[tuple[Origin, dict[str, Any], Iterator[Entered]]]:
    """(place, data, annotations that were not cancelled) of each task of an export.

    Raises FormatError, with the task, if the file is not an export.
    """
    document, origin = read_json(path), Origin(path)
    if not isinstance(document, list):
        raise origin.error("is not an export", accepted=ACCEPTED)
    for number, fields in enumerate(document):
        place = origin.at(number)
        data = place.object(fields, ACCEPTED).get("data", fields)
        yield place, data if isinstance(data, dict) else {}, _entered(place, fields)


def _entered(place: Origin, fields: Mapping[str, Any]) -> Iterator[Entered]:
    if "data" not in fields:  # JSON-MIN: the controls stand in the task itself
        yield Entered(place.at("annotator"), fields.get("annotator"), fields)
        return
    for number, annotation in enumerate(place.at("annotations").array(fields.get("annotations"), ACCEPTED)):
        origin = place.at("annotations", number)
        annotation = origin.object(annotation, ACCEPTED)
        if annotation.get("was_cancelled"):
            continue
        values = {}
        for n, result in enumerate(origin.at("result").array(annotation.get("result"), ACCEPTED)):
            result = origin.at("result", n).object(result)
            value = _plain(origin.at("result", n, "value"), result.get("value"))
            values[str(result.get("from_name"))] = value
        yield Entered(origin.at("completed_by"), annotation.get("completed_by"), values)


def _plain(origin: Origin, value: Any) -> Any:
    """The value of a control without its kind, as in JSON-MIN; regions unchanged."""
    value = origin.object(value)
    return next((value[kind] for kind in ("choices", "rating", "number") if kind in value), value)
