"""LanceDB as the store needs it: a lean import, connections, errors that speak.

`import lancedb` takes about one second of processor time, half of it for the generated REST client of
namespaces, whose API classes nothing here (nor in an embedded LanceDB) touches. `import_lancedb` leaves
that package's body to be run by whoever first asks it for a name; measured 1.07 s -> 0.55 s.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from whenabouts.product.index.records import DiskFull, StoreError
from whenabouts.types import WhenaboutsError

_DEFERRED = "lance_namespace_urllib3_client"
# The kinds of exceptions that LanceDB raises for what happens on disk or in the network.
LANCE_ERRORS = (RuntimeError, OSError, ValueError)


def import_lancedb() -> ModuleType:
    """The `lancedb` module, imported without the REST client it does not need here."""
    if "lancedb" not in sys.modules:
        # Rust logs notes on empty partitions to standard error; nothing is printed from a library.
        os.environ.setdefault("LANCEDB_LOG", "error")
        _defer(_DEFERRED)
    return importlib.import_module("lancedb")


def _defer(name: str) -> None:
    """Let package `name` be there, and run its body only when a name in it is used."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)

    def load_and_get(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        module.__dict__.pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__dict__["__getattr__"] = load_and_get
    sys.modules[name] = module


def is_remote(place: str) -> bool:
    """Whether `place` is an object store's URI and not a folder."""
    return "://" in place and not place.startswith("file://")


def folder_of(place: str) -> Path:
    """The folder of a local place; `file://` is understood."""
    return Path(place.removeprefix("file://")).expanduser()


def connect(place: str, storage_options: Mapping[str, str] | None) -> Any:
    """A LanceDB connection to a folder that is there, or to an object store."""
    lancedb = import_lancedb()
    options = dict(storage_options) if storage_options else None
    return lancedb.connect(place if is_remote(place) else str(folder_of(place)), storage_options=options)


def open_table(db: Any, name: str) -> Any | None:
    """A table, or None where it is not there."""
    try:
        return db.open_table(name)
    except ValueError as error:
        if "not found" in str(error):
            return None
        raise


@contextlib.contextmanager
def speaking(place: str, action: str) -> Iterator[None]:
    """Turn what LanceDB and the system raise into errors that name the corpus, the cause and the remedy."""
    try:
        yield
    except WhenaboutsError:
        raise
    except LANCE_ERRORS as error:
        raise explained(place, action, error) from error


def explained(place: str, action: str, error: BaseException) -> StoreError:
    """An error of LanceDB or of the system as one that names the corpus, the cause and the remedy."""
    cause = _cause(error)
    if "No space left" in cause or "os error 28" in cause or "StorageFull" in cause:
        return DiskFull(
            f"{place}: the disk is full{_room(place)}; what was indexed before is kept. "
            "Free some space and run the same command again"
        )
    if "Permission denied" in cause or "os error 13" in cause:
        return StoreError(f"{place}: cannot {action}: permission denied; check who owns the folder")
    return StoreError(f"{place}: cannot {action}: {cause}")


def _cause(error: BaseException) -> str:
    """The first lines of an error, without the source positions of the Rust code."""
    text = " ".join(str(error).split())
    return text.split(", /", 1)[0][:600]


def _room(place: str) -> str:
    if is_remote(place):
        return ""
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(folder_of(place)).free / 1e6:.1f} MB free)"
    return ""
