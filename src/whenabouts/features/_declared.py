"""What a folder's owner wrote down of its features: `fingerprint.json` beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whenabouts.features.protocol import Place
from whenabouts.formats.opened import FormatError, read_json

FINGERPRINT = "fingerprint.json"


def declared(place: Place) -> Mapping[str, Any]:
    """The facts in a folder's `fingerprint.json`; none where there is no such file."""
    if FINGERPRINT not in place.names:
        return {}
    path = place.path / FINGERPRINT
    facts = read_json(path)
    if not isinstance(facts, dict):
        raise FormatError(path, "holds a list or a bare value", accepted="one JSON object")
    extra = facts.get("extra")
    if extra is not None and not isinstance(extra, dict):
        raise FormatError(path, "is", field="extra", value=extra, accepted="a JSON object")
    known = {name: value for name, value in facts.items() if value is not None}
    return {**known, **(extra or {})}
