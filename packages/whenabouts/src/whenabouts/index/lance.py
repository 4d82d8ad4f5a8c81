"""Imports LanceDB quickly, connects to corpora, and turns its errors into readable ones.

`import lancedb` takes 2.6 s of processor time on a slow machine, most of it for a generated REST client that
is never used here, and for comparing signatures of methods. `import_lancedb` takes 0.9 s: it runs the
client's code only when a name in it is used, and compares nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from whenabouts.index.records import DiskFull, NewerCorpus, NotACorpus, StoreError, StoreRefused
from whenabouts.intake.lacks import check_files, check_room, lack_of
from whenabouts.intake.remote_faults import why_refused
from whenabouts.lines import one_line
from whenabouts.types import WhenaboutsError
from whenabouts.video.files import printable, real_place, with_home

_DEFERRED = ("lance_namespace_urllib3_client", "lance_namespace_urllib3_client.models")
# The types that LanceDB raises for faults of disk or network, except panics (`is_panic`).
LANCE_ERRORS = (RuntimeError, OSError, ValueError)
# Other kinds of storage are refused, because LanceDB would ask a cloud service for a token before reading.
_SCHEMES = ("file", "s3")
# Free address space that LanceDB and a search need (1.1 GB), and file handles of the import. If memory runs
# out later, in the encoder, threads of LanceDB end the process or hang.
_ROOM_BYTES = 1152 << 20
_FILES = 10


def import_lancedb() -> ModuleType:
    """The `lancedb` module, imported without its REST client."""
    if "lancedb" not in sys.modules:
        check_room(_ROOM_BYTES)
        check_files(_FILES)
        # Else LanceDB logs notes on empty partitions to standard error; a library should print nothing.
        os.environ.setdefault("LANCEDB_LOG", "error")
        for name in _DEFERRED:
            _defer(name)
        with _signatures_unchecked():
            importlib.import_module("lancedb")
    return sys.modules["lancedb"]


@contextlib.contextmanager
def _signatures_unchecked() -> Iterator[None]:
    """Meanwhile `overrides.override`, which LanceDB uses before Python 3.12, compares nothing."""
    if sys.version_info >= (3, 12):
        yield
        return
    import overrides

    def marked(method: Any) -> Any:
        method.__override__ = True
        return method

    checked, overrides.override = overrides.override, marked  # type: ignore[assignment]
    try:
        yield
    finally:
        overrides.override = checked


def _defer(name: str) -> None:
    """Put package `name` into `sys.modules`, and run its body only when a name imported from it is used."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)

    def loaded(attribute: str) -> Any:
        if module.__dict__.pop("__getattr__", None):
            loader.exec_module(module)
        return getattr(module, attribute)

    def promised(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return _Deferred(attribute, loaded)

    module.__dict__["__getattr__"] = promised
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)


class _Deferred:
    """Stands for a class of a deferred package; importing it runs nothing, any use loads the package."""

    def __init__(self, name: str, loaded: Callable[[str], Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self._loaded = loaded

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._loaded(self.__name__)(*args, **named)

    def __getattr__(self, attribute: str) -> Any:
        # Signatures are compared while LanceDB is imported, by attributes that no class of the package has.
        if attribute.startswith("__") and "pydantic" not in attribute:
            raise AttributeError(f"{self.__name__} has no attribute {attribute!r}")
        return getattr(self._loaded(self.__name__), attribute)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._loaded(self.__name__))

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(cls, self._loaded(self.__name__))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type]:
        return (self._loaded(self.__name__),)


def check_scheme(place: str) -> None:
    """Raise NotACorpus for an unsupported kind of storage or a NUL character; uses no network."""
    scheme, colon, _ = place.partition("://")
    if "\0" in place:
        raise NotACorpus(f"{place!r} names no folder: it holds a NUL character")
    if colon and scheme not in _SCHEMES and "/" not in scheme:
        raise NotACorpus(
            f"{place}: storage of the kind {scheme}:// is not opened; name a folder, or s3://bucket/prefix"
        )


def is_remote(place: str) -> bool:
    """Whether `place` is the URI of an object store."""
    return place.startswith("s3://")


def folder_of(place: str) -> Path:
    """The folder of a local place or `file://` URI, with links and `..` resolved. Raises as `absolute`."""
    # Resolved, because LanceDB panics on a path with more `..` than there are folders above it.
    return Path(real_place(with_home(place.removeprefix("file://"))))


def links_below(folder: Path) -> Iterator[Path]:
    """The symbolic links in a folder and its subfolders; links are not followed. Raises OSError."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))


def refuse_links(place: str) -> None:
    """Raise NotACorpus for a corpus folder with symbolic links: clean-up could delete their targets."""
    if is_remote(place):
        return
    folder = folder_of(place)
    if not os.path.lexists(folder / "corpus.lance"):
        return
    # A writer's clean-up may delete a folder meanwhile.
    with contextlib.suppress(FileNotFoundError):
        for link in links_below(folder):
            raise NotACorpus(
                f"{place} holds a link, {printable(link)}; a corpus must hold no links, because clean-up "
                "could delete a link's target. Replace the link by its target, or delete the link"
            )


def connect(place: str, storage_options: Mapping[str, str] | None) -> Any:
    """A LanceDB connection to an existing folder or an object store."""
    lancedb = import_lancedb()
    options = dict(storage_options) if storage_options else None
    return lancedb.connect(place if is_remote(place) else str(folder_of(place)), storage_options=options)


def open_table(db: Any, name: str) -> Any | None:
    """A LanceDB table, or None if it does not exist."""
    try:
        return db.open_table(name)
    except ValueError as error:
        if "not found" in str(error):
            return None
        raise


def rows_of_queries(table: Any, queries: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """The rows of each query, as an Arrow table; the queries run at the same time.

    Each of `queries` builds a query from the asynchronous table. The synchronous table would take 1 to 2 ms
    more processor time: it hands a search to LanceDB's thread four times, and asks for the schema twice.
    """
    import asyncio

    from lancedb.background_loop import LOOP

    async def together() -> list[Any]:
        return await asyncio.gather(*(query(table._table).to_arrow() for query in queries))

    rows: list[Any] = LOOP.run(together())
    return rows


@contextlib.contextmanager
def speaking(place: str, action: str) -> Iterator[None]:
    """Turn errors of LanceDB and the system into StoreErrors with corpus, cause and remedy (`explained`)."""
    try:
        yield
    except BaseException as error:
        if not is_of_storage(error):
            raise
        raise explained(place, action, error) from error


def is_of_storage(error: BaseException) -> bool:
    """Whether an error has a type that LanceDB or the system raises, and is not one of whenabouts."""
    return not isinstance(error, WhenaboutsError) and (isinstance(error, LANCE_ERRORS) or is_panic(error))


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of Rust code.

    `pyo3_runtime.PanicException` is no subclass of Exception, `pyo3_async_runtimes.RustPanic` is; neither can
    be imported by its name.
    """
    return type(error).__name__ in ("PanicException", "RustPanic")


def explained(place: str, action: str, error: BaseException) -> StoreError:
    """The StoreError for an error of LanceDB or the system: "PLACE: cannot ACTION: cause and remedy"."""
    cause = _cause(error)
    if "Read-only file system" in cause or "os error 30" in cause:
        return StoreError(
            f"{place}: the disk is read-only now; what was indexed before is kept. Check the disk (after an "
            "error a system may make it read-only), mount it for writing, and run the same command again"
        )
    if "No space left" in cause or "os error 28" in cause or "StorageFull" in cause:
        return DiskFull(
            f"{place}: the disk is full{_room(place)}; what was indexed before is kept. "
            "Free some space and run the same command again"
        )
    if is_remote(place) and (reason := why_refused(str(error))):
        # A caller tries again after an answer that broke off (StoreError), not after a complete refusal.
        kind = StoreError if "IncompleteBody" in str(error) else StoreRefused
        return kind(f"{place}: cannot {action}: {reason}")
    if "feature" in cause and "upgrade" in cause.lower():
        return NewerCorpus(
            f"{place}: a newer version of Lance wrote its tables: upgrade whenabouts ({cause})"
        )
    if "Permission denied" in cause or "os error 13" in cause:
        return StoreError(f"{place}: cannot {action}: permission denied; check who owns the folder")
    if lack := lack_of(error):
        return StoreError(f"{place}: cannot {action}: {lack}")
    if is_panic(error):
        cause = (
            f"LanceDB gave up ({cause}); the corpus may be damaged: restore it from a copy, or index again"
        )
    return StoreError(f"{place}: cannot {action}: {cause}")


def _cause(error: BaseException) -> str:
    """An error as one line of at most 600 characters, cut at ", /": there a position in Rust code begins."""
    text = one_line(str(error))
    return text.split(", /", 1)[0][:600]


def _room(place: str) -> str:
    if is_remote(place):
        return ""
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(folder_of(place)).free / 1e6:.1f} MB free)"
    return ""
