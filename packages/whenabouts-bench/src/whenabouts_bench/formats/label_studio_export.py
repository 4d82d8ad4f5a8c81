"""Exports of Label Studio, as JSON or JSON-MIN: its tasks, each with what people entered there."""

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
    """What one person entered in a task.

    `person` is the number, the address or the object that Label Studio has for them. `values` has, by the
    name of the control, choices (a list, or the only one), a number, or the object of a region.
    """

    origin: Origin
    person: Any
    values: Mapping[str, Any]


def read_export(path: Path) -> Iterator[tuple[Origin, dict[str, Any], Iterator[Entered]]]:
    """Each task of an export: where it stands, its data, and what people entered but did not cancel.

    Raises FormatError, naming the task, for what is no export.
    """
    document, origin = read_json(path), Origin(path)
    if not isinstance(document, list):
        raise origin.error("is no export", accepted=ACCEPTED)
    for number, fields in enumerate(document):
        place = origin.at(number)
        data = place.object(fields, ACCEPTED).get("data", fields)
        yield place, data if isinstance(data, dict) else {}, _entered(place, fields)


def _entered(place: Origin, fields: Mapping[str, Any]) -> Iterator[Entered]:
    if "data" not in fields:  # JSON-MIN: the controls stand in the task itself
        yield Entered(place.at("annotator"), fields.get("annotator"), fields)
        return
    for number, annotation in enumerate(place.at("annotations").array(fields.get("annotations"), ACCEPTED)):
        own = place.at("annotations", number)
        annotation = own.object(annotation, ACCEPTED)
        if annotation.get("was_cancelled"):
            continue
        values = {}
        for n, result in enumerate(own.at("result").array(annotation.get("result"), ACCEPTED)):
            result = own.at("result", n).object(result)
            values[str(result.get("from_name"))] = _plain(own.at("result", n, "value"), result.get("value"))
        yield Entered(own.at("completed_by"), annotation.get("completed_by"), values)


def _plain(origin: Origin, value: Any) -> Any:
    """The value of a control without the name of its kind, as JSON-MIN has it; a region as it is."""
    value = origin.object(value)
    return next((value[kind] for kind in ("choices", "rating", "number") if kind in value), value)
