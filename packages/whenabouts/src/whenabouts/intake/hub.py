"""Models of a hub: those on this machine, their description on the hub, and downloads on request.

Only `look_up` and `fetch` use the network, and only `whenabouts models get` calls these. Opening a model by
name uses this machine's copy (`folder_of`), or raises an error with that remedy.

A `Pin` beside a download records the revision, and each file with its size and hash. A name without a
revision means the pinned one from then on, and interrupted downloads are detected.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whenabouts import locking
from whenabouts.types import WhenaboutsError

_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors", "*/model*.safetensors")
_LEFT_OUT = ("onnx/*", "openvino/*", "*.fp16.*", "*.bf16.*")
_CARDS = ("LICENSE*", "README.md")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_PIN, _BEGUN = "whenabouts.json", "whenabouts-begun.json"
_PATIENCE_SECONDS = 15.0
# Free space that is left to the file system.
_SPARE_BYTES = 64 << 20


class HubError(WhenaboutsError):
    """A model is not on this machine, or the hub did not give it; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model that whenabouts can use, for `whenabouts models list`.

    `name` is the argument of `models get`; `packages` are modules that contain it, the preferred one first
    (empty: it comes from the hub); `alias` is another name for it. Size and licence come from the files and
    the hub.
    """

    name: str
    purpose: str
    packages: tuple[str, ...] = ()
    alias: str = ""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, with the `sha256` of its content, or `blob`, its SHA-1 in git ("": unknown)."""

    path: str
    size: int
    sha256: str = ""
    blob: str = ""

    def fits(self, file: Path) -> bool:
        """Whether a file on disk is this one, by size and hash."""
        if file.stat().st_size != self.size:
            return False
        if not self.sha256 and not self.blob:
            return True
        with file.open("rb") as stream:
            if self.sha256:
                return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256
            digest = hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
            while block := stream.read(1 << 20):
                digest.update(block)
            return digest.hexdigest() == self.blob


@dataclass(frozen=True, slots=True)
class Pin:
    """A downloaded repository: its revision (a commit), its licence ("": not stated), its files."""

    repository: str
    revision: str
    licence: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def weights(self) -> tuple[HubFile, ...]:
        """The files with weights, whose hashes identify the model."""
        return tuple(file for file in self.files if file.path.endswith((".safetensors", ".bin", ".onnx")))


def is_name(name: str) -> bool:
    """True for `name`, `owner/name` and both with `@revision`."""
    return len(name) <= 200 and ".." not in name and _NAME.fullmatch(name) is not None


def not_here(name: str, why: str = "its weights are not on this machine") -> str:
    """The message for a model that is not on this machine."""
    return (
        f"{name}: {why}, and nothing is downloaded unasked; `whenabouts models get {name}` fetches it "
        "(size and licence are shown first), or give the path of a folder that holds it"
    )


def folder_of(name: str, is_whole: Callable[[Path], bool]) -> Path:
    """The folder of a hub name in the hub's cache, without using the network.

    `is_whole` checks whether a folder has the files that the caller needs. Raises HubError, saying whether
    the model is missing, there in another revision, or incomplete.
    """
    repository, _, revision = name.partition("@")
    pin = pin_of(repository)
    commit = revision or (pin.revision if pin else None)
    folder = _snapshot(repository, commit)
    begun = pin_of(repository, _BEGUN)
    if begun is not None and (folder is None if commit is None else commit == begun.revision):
        raise HubError(not_here(name, "its download is not finished"))
    if folder is None:
        others = _revisions(repository)
        if revision and others:
            raise HubError(not_here(name, f"it is here at revision {others[0][:12]}, not at {revision}"))
        raise HubError(not_here(name))
    lacking = [] if pin is None or folder.name != pin.revision else _lacking(folder, pin)
    if lacking:
        raise HubError(not_here(name, f"{lacking[0].path} of it is missing on this machine"))
    if not is_whole(folder):
        raise HubError(not_here(name, "files of it are missing on this machine"))
    return folder


def _snapshot(repository: str, revision: str | None) -> Path | None:
    """The cached folder of a revision (a commit, a branch or a tag; None: the main one)."""
    place = _place(repository)
    commit = revision or "main"
    with contextlib.suppress(OSError, ValueError):
        commit = (place / "refs" / commit).read_text(encoding="ascii").strip()
    folder = place / "snapshots" / commit
    return folder if folder.is_dir() else None


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _place(repository: str) -> Path:
    return _cache() / ("models--" + repository.replace("/", "--"))


def _revisions(repository: str) -> list[str]:
    snapshots = _place(repository) / "snapshots"
    return sorted(folder.name for folder in snapshots.iterdir()) if snapshots.is_dir() else []


def _lacking(folder: Path, pin: Pin) -> list[HubFile]:
    """The files of a pin that are missing from its folder or incomplete."""
    return [
        file
        for file in pin.files
        if not (folder / file.path).is_file() or (folder / file.path).stat().st_size != file.size
    ]


def pin_of(repository: str, file: str = _PIN) -> Pin | None:
    """The stored pin of a repository; None if missing or unreadable."""
    try:
        value = json.loads((_place(repository) / file).read_text(encoding="utf-8"))
        files = tuple(HubFile(**file) for file in value.pop("files"))
        return Pin(files=files, **value)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def pins() -> list[Pin]:
    """All pins, by name."""
    found_in = (path.parent.name for path in sorted(_cache().glob(f"models--*/{_PIN}")))
    names = (name.removeprefix("models--").replace("--", "/") for name in found_in)
    return [pin for name in names if (pin := pin_of(name)) is not None]


def is_fetched(pin: Pin) -> bool:
    """Whether all files of a pin are here."""
    folder = _place(pin.repository) / "snapshots" / pin.revision
    return folder.is_dir() and not _lacking(folder, pin)


def look_up(name: str, only: Sequence[str] = ()) -> Pin:
    """The hub's description of a model, with the files that would be fetched (`only` these, if given).

    Raises HubError if the hub cannot be reached, or has no such model or no safe one.
    """
    from huggingface_hub import HfApi, constants

    repository, _, revision = name.partition("@")
    try:
        info = HfApi(endpoint=constants.ENDPOINT).model_info(
            repository, revision=revision or None, files_metadata=True, timeout=_PATIENCE_SECONDS
        )
    except Exception as error:  # the hub's client and its network library raise various kinds
        raise HubError(_refused(name, error)) from error
    offered = [file for sibling in info.siblings or () if (file := _file(sibling)) is not None]
    chosen = _chosen(name, offered, only)
    return Pin(info.id or repository, str(info.sha), _licence(info), tuple(chosen))


def _file(sibling: Any) -> HubFile | None:
    """A file as the hub describes it; None without a size or with a name outside its folder."""
    path, size = str(sibling.rfilename), sibling.size
    if not isinstance(size, int) or size < 0 or Path(path).is_absolute() or ".." in Path(path).parts:
        return None
    return HubFile(path, size, str((sibling.lfs or {}).get("sha256") or ""), str(sibling.blob_id or ""))


def _licence(info: Any) -> str:
    card = info.card_data.to_dict() if info.card_data is not None else {}
    stated = card.get("license_name") or card.get("license")
    tags = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    return str(stated or (tags[0] if tags else ""))


def _chosen(name: str, offered: Sequence[HubFile], only: Sequence[str]) -> list[HubFile]:
    if only:
        missing = [path for path in only if path not in {file.path for file in offered}]
        if missing:
            raise HubError(f"{name}: the hub has no file {missing[0]!r} there")
        return [file for file in offered if file.path in only]
    names = [file.path for file in offered]
    patterns = [*_FILES, *_CARDS]
    if any(fnmatch.fnmatch(path, "vocabulary.*") for path in names):
        patterns.append("model.bin")  # CTranslate2's format, which runs no code
    chosen = [file for file in offered if _fits(file.path, patterns) and not _fits(file.path, _LEFT_OUT)]
    if not any(file.path.endswith((".safetensors", ".bin")) for file in chosen):
        pickles = [path for path in names if _fits(path, _PICKLES)]
        held = f"only {', '.join(pickles[:3])}, which can run code when opened" if pickles else "no weights"
        raise HubError(
            f"{name}: holds {held}; take a revision or a model with model.safetensors, or name a file with "
            f"--file"
        )
    return chosen


def _fits(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def fetch(pin: Pin) -> Path:
    """Download the files of a look-up, resuming an interrupted download. Returns the folder.

    Each file is checked against the hub's size and hash before it takes its place. Raises HubError if there
    is no room, the hub breaks off, a file differs, or another process fetches the same model.
    """
    place = _place(pin.repository)
    folder = place / "snapshots" / pin.revision
    _check_room(pin, folder)
    try:
        _write_begun(pin)
        held = locking.hold(place, ".whenabouts.lock")
        if held is None:
            raise HubError(f"{pin.repository}: another command is fetching it; wait until it is done")
        try:
            with _quiet_but_on_a_terminal():
                for file in _lacking(folder, pin):
                    _fetch_file(pin, file, place)
            (place / _BEGUN).replace(place / _PIN)
        finally:
            held.release()
    except HubError:
        raise
    except OSError as error:
        raise HubError(_broken_off(pin, error)) from error
    except Exception as error:  # the hub's client and its network library raise various kinds
        raise HubError(_refused(pin.repository, error)) from error
    return folder


def _fetch_file(pin: Pin, file: HubFile, place: Path) -> None:
    """Put one file into the hub's cache in its client's layout: content by hash, a link by name.

    That client restarts a file in each process, so files are downloaded here.
    """
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    link = place / "snapshots" / pin.revision / file.path
    name = file.sha256 or file.blob or hashlib.sha256(f"{pin.revision} {file.path}".encode()).hexdigest()
    blob, part = place / "blobs" / name, place / "blobs" / f"{name}.whenabouts-part"
    for parent in (blob.parent, link.parent):
        parent.mkdir(parents=True, exist_ok=True)
    if not (blob.is_file() and file.fits(blob)):
        with part.open("ab") as stream:
            if stream.tell() > file.size:
                stream.truncate(0)
            http_get(
                hf_hub_url(pin.repository, file.path, revision=pin.revision),
                stream,
                resume_size=stream.tell(),
                headers=build_hf_headers(library_name="whenabouts"),
                expected_size=file.size,
            )
        if not file.fits(part):
            part.unlink()
            raise HubError(
                f"{pin.repository}: {file.path} is not the file that the hub described (its hash differs), "
                "so it was not kept; call `whenabouts models get` again"
            )
        part.replace(blob)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))


def _check_room(pin: Pin, folder: Path) -> None:
    needed = sum(file.size for file in (_lacking(folder, pin) if folder.is_dir() else pin.files))
    place = _cache()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed and needed + _SPARE_BYTES > free:
        raise HubError(
            f"{pin.repository}: needs {needed / 1e6:,.0f} MB, and {place} has {free / 1e6:,.0f} MB free; "
            "make room, or set HF_HOME to a folder on another disk"
        )


def _write_begun(pin: Pin) -> None:
    """Record the download in progress, atomically; the earlier pin stays valid meanwhile."""
    place = _place(pin.repository)
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=place, delete=False, encoding="utf-8") as draft:
        json.dump(asdict(pin), draft, indent=1)
    Path(draft.name).replace(place / _BEGUN)


def _broken_off(pin: Pin, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{pin.repository}: the disk is full; make room and call `whenabouts models get` again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{pin.repository}: {_cache()} may not be written to; set HF_HOME to a folder of yours"
    return _refused(pin.repository, error)


def _refused(name: str, error: Exception) -> str:
    """The message for a failed request to the hub."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    hub = constants.ENDPOINT
    match error:
        case OfflineModeIsEnabled():
            return (
                f"{name}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, or give a folder's path"
            )
        case GatedRepoError():
            return f"{name}: its authors want their terms accepted at {hub}/{name} first; then set HF_TOKEN"
        case RepositoryNotFoundError():
            return f"{name}: {hub} has no such model, or it is private; check the name, or set HF_TOKEN"
        case RevisionNotFoundError():
            return f"{name}: {hub} has the model, but not this revision"
        case HfHubHTTPError():
            return f"{name}: {hub} refuses ({_first_line(error)}); try again later"
    return (
        f"{name}: {hub} cannot be reached, or broke off ({_first_line(error)}); check the network and call "
        "`whenabouts models get` again: what is here already is kept"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


_guard = threading.Lock()
_guarded = 0


@contextmanager
def nothing_downloaded() -> Iterator[None]:
    """Keep libraries from using the hub while a model is opened, in all threads."""
    from huggingface_hub import constants

    global _guarded
    with _guard:
        if _guarded == 0:
            _before.append(constants.HF_HUB_OFFLINE)
            constants.HF_HUB_OFFLINE = True
        _guarded += 1
    try:
        yield
    finally:
        with _guard:
            _guarded -= 1
            if _guarded == 0:
                constants.HF_HUB_OFFLINE = _before.pop()


_before: list[bool] = []


@contextmanager
def _quiet_but_on_a_terminal() -> Iterator[None]:
    """Suppress the hub's progress bars and log, unless standard error is a terminal."""
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if sys.stderr.isatty():
        yield
        return
    level, had_bars = hub_logging.get_verbosity(), not are_progress_bars_disabled()
    hub_logging.set_verbosity(logging.ERROR)
    disable_progress_bars()
    try:
        yield
    finally:
        hub_logging.set_verbosity(level)
        if had_bars:
            enable_progress_bars()
