"""Any features into our own store, item by item, with what is known of them written down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.features.source import FeatureSource
from whenabouts.features.store import Written, write_store
from whenabouts.types import UsageError

DTYPES = ("float16", "float32", "float64")


def convert(
    source: FeatureSource,
    path: str | Path,
    *,
    facts: Mapping[str, Any] | None = None,
    dtype: str | None = None,
) -> Written:
    """Write a source as our own store; one item is in memory at a time.

    Numbers stay as they are unless `dtype` names another type. `facts` are added to the source's
    fingerprint: names of its fields, or others. Raises UsageError where something is at `path` already, or
    where a fact contradicts what the source says of itself; then nothing is written.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is not stored; accepted: {', '.join(DTYPES)}")
    stated = source.fingerprint
    for name, value in (facts or {}).items():
        known = getattr(stated, name, None) if name not in stated.extra else stated.extra[name]
        if known is not None and name != "extra" and known != value:
            raise UsageError(f"{source.path}: {name} is {known!r} there, not {value!r}; leave it out")
    fingerprint = stated.told(facts or {}, "--set")
    rows = ((item, source.get(item)) for item in source)
    return write_store(Path(path), rows, fingerprint, None if dtype is None else np.dtype(dtype))
