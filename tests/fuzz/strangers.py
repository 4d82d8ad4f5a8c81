"""Corpora of strangers: any value in any cell, and damaged files without a list of checksums.

LanceDB ends the process for some damaged files. A stranger's corpus is read in another process first, so a
process that opens it and ends is a finding.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.apart import Apart
from tests.fuzz.bytes import damaged
from tests.fuzz.damage import make_corpus

_MOST_BYTES = 400 << 20
_CELL = "cell "
_TEXTS = (
    "", "[", "null", "{}", "[]", "7", '"a"', "[" * 3000, '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}",
    "\x1b[31m", "../../x", "/etc/passwd", "a\nb", "\u202e", "NaN", "-1", "9" * 400,
    '{"subtitle": 7}', '{"subtitle": null}',
    '{"version": 99}', '{"version": "x"}', '{"name": "../x", "model": 7}', "[[]]", "[1, 2, 3]",
    "x" * 100_000,
)  # fmt: skip
_NUMBERS = (0, -1, 1 << 62, -(1 << 62), 1)
_FLOATS = (0.0, -1.0, 1e308, float("nan"), float("inf"), -float("inf"))


def read(place: Path) -> None:
    """Open a corpus and look at all of it, as `search`, `stats`, `show` and `doctor` do."""
    from whenabouts.diagnosis import examine
    from whenabouts.index.store import Store

    store = Store.open(place)
    records = store.videos()
    for record in records[:3]:
        _ = dict(record.metadata), dict(record.streams), record.video_id
    ids = [record.video_id for record in records]
    for stream in store.streams.values():
        store.clips_of(stream.name, ids)
    store.match_text("subtitle", "line 2 of video 7", 20)
    store.fact("calibration:subtitle")
    examine(str(place))


def hostile_row(place: Path, rng: random.Random) -> str:
    """Put another value into one cell of one table."""
    import lancedb
    import pyarrow as pa

    tables = lancedb.connect(place)
    name = rng.choice([path.stem for path in sorted(place.glob("*.lance"))])
    table = tables.open_table(name)
    rows = table.to_arrow()
    column = rng.choice(rows.schema.names)
    number, field = rows.schema.get_field_index(column), rows.schema.field(column)
    values: list[Any] = rows.column(column).to_pylist()
    at = rng.randrange(len(values))
    new = _value(field.type, values[at], rng)
    values[at] = new
    try:
        changed = rows.set_column(number, field, pa.array(values, field.type))
        tables.create_table(name, changed, mode="overwrite")
    except (pa.ArrowException, ValueError, TypeError, RuntimeError, OSError, OverflowError):
        return "nothing"
    return f"{name}.{column} = {new!r:.60}"


def _value(kind: Any, old: Any, rng: random.Random) -> Any:
    import pyarrow as pa

    if rng.random() < 0.2:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if isinstance(old, str) and old[:1] in ("{", "[") and rng.random() < 0.5:
            return _changed_json(old, rng)
        return rng.choice(_TEXTS)
    if pa.types.is_integer(kind):
        return rng.choice(_NUMBERS)
    if pa.types.is_floating(kind):
        return rng.choice(_FLOATS)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [rng.choice(_FLOATS)] * len(old or ())
    return old


def _changed_json(text: str, rng: random.Random) -> str:
    value = json.loads(text)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    if keys:
        value[rng.choice(list(keys))] = rng.choice((None, -1, "x", [], {}, 1e308, True, "../x", 1 << 63))
    return json.dumps(value)


class Attack:
    """Reads one hostile corpus a trial."""

    def __init__(self, folder: Path) -> None:
        self._whole, self._place = folder / "whole.corpus", folder / "stranger.corpus"
        make_corpus(self._whole)
        self._apart = Apart(read, _MOST_BYTES)

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Change a cell, or bytes of a file, and read all of it."""
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(self._whole, self._place)
        (self._place / "checksums.json").unlink(missing_ok=True)
        if rng.random() < 0.6:
            way = _CELL + hostile_row(self._place, rng)
        else:
            files = sorted(path for path in self._place.rglob("*") if path.is_file())
            path = rng.choice(files)
            data, way = damaged(path.read_bytes(), rng, rng.choice(files).read_bytes())
            path.write_bytes(data)
            way = f"{way} {path.relative_to(self._place).parent}"
        came, findings = self._apart(self._place)
        return Counter({came: 1}), [f"{way}: {finding}" for finding in findings]
