"""Measures several corpora as one, once: each corpus's own measurements hold for it alone.

The measurements are kept as notes of this user, because they belong to none of the corpora. They hold until
one of the corpora is measured again.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from whenabouts.calibration.measuring import is_due, measure
from whenabouts.index.side_by_side import SideBySide
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder
from whenabouts.intake.notes import Notes
from whenabouts.search.stored_calibration import load_calibration

NOTES = Notes("together", most=100)
# Threads of a server share one measurement.
_MEASURING = threading.Lock()


def is_measured(store: Store) -> bool:
    """Whether corpora side by side have been measured together; takes over what was noted about them.

    True for one corpus, which is measured when it is indexed.
    """
    if not isinstance(store, SideBySide):
        return True
    noted = "" if store.kept else NOTES.text(_parts(store))
    with contextlib.suppress(msgspec.MsgspecError):  # a damaged note is ignored
        for key, fact in msgspec.json.decode(noted or "{}", type=dict[str, dict[str, Any]]).items():
            store.keep_fact(key, fact)
    return not is_due(store, load_calibration(store))


def measure_once(store: SideBySide, encoders: Mapping[str, QueryEncoder]) -> None:
    """Measure corpora side by side together, unless that is done."""
    with _MEASURING:
        if not is_measured(store):
            measure(store, encoders)
            NOTES.add(_parts(store), json.dumps(store.kept))


def _parts(store: SideBySide) -> str:
    """A key for corpora in their present state: place and measurements (or else the version) of each."""
    return json.dumps([[part.place, part.facts("calibration:") or part.version] for part in store.stores])
