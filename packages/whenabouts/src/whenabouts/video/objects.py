"""Videos on an object store, read in ranges: `s3://bucket/key` is accepted wherever a path to a video is.

An `ObjectPath` is a path that knows its size and time by asking the store; `open_source` opens it, or any
other path, for reading. What is read is kept in blocks, a few at a time: a film is never copied whole, and a
container's index at the end of it costs one block. The store, its region and the keys are those of the usual
environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP=true, …).

The client is that of pyarrow, which LanceDB brings along. It reads profiles, also those whose keys come from
a program (`credential_process`); obstore does not.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from whenabouts.intake.opening import open_regular
from whenabouts.intake.remote_faults import StoreAway, why_refused
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SCHEME = "s3://"
_COLLAPSED = "s3:/"
_BLOCK_BYTES = 2 << 20
_MOST_BLOCKS = 8
_MOST_KEY_BYTES = 1024
_MOST_OBJECTS = 2_000_000
_CONNECT_SECONDS, _REQUEST_SECONDS = 10.0, 60.0
_ATTEMPTS = 5


@dataclass(slots=True)
class Refusals:
    """How often stores and disks refused to be read in this process, and the last reason.

    In the middle of a film a decoder takes a refusal for damage, so its callers check here.
    """

    count: int = 0
    reason: str = ""

    def note(self, reason: str) -> None:
        """Count a refusal, and keep its reason for `check`."""
        self.count, self.reason = self.count + 1, reason

    def check(self, since: int, path: Path | str) -> None:
        """Raise StoreAway if a store or disk refused to be read since the count `since`."""
        if self.count > since:
            raise StoreAway(f"{path}: {self.reason}")


refusals = Refusals()


class ObjectPath(PosixPath):
    """An object in a store, or a prefix, as a path that is written `s3://bucket/key`."""

    def __str__(self) -> str:
        return SCHEME + super().__str__()[len(_COLLAPSED) :]

    def __fspath__(self) -> str:
        return str(self)

    @property
    def key(self) -> str:
        """Bucket and key, as the client takes them."""
        return str(self)[len(SCHEME) :]

    def absolute(self) -> ObjectPath:
        return self

    def resolve(self, strict: bool = False) -> ObjectPath:
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size and time of the object; its inode changes with either. Raises OSError."""
        with _speaking(self):
            info = _store().get_file_info(self.key)
        if info.type.name != "File":
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self))
        return _status(info.size, info.mtime_ns or 0)

    def lstat(self) -> os.stat_result:
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the object exists, or one below it. Raises OSError if the store does not answer."""
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the object exists. Raises OSError if the store does not answer."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether this is a prefix of keys and not a key."""
        with _speaking(self):
            return bool(_store().get_file_info(self.key).type.name == "Directory")

    def is_symlink(self) -> bool:
        return False


def source_path(place: str | os.PathLike[str]) -> Path:
    """The path of a video: an `ObjectPath` for `s3://bucket/key`, else a local path.

    >>> source_path("s3://films/a/b.mp4"), source_path("a/b.mp4").name
    (ObjectPath('s3://films/a/b.mp4'), 'b.mp4')
    """
    text = os.fspath(place)
    if not text.startswith(_COLLAPSED):
        return Path(text)
    return ObjectPath(_COLLAPSED + text.removeprefix(_COLLAPSED).lstrip("/"))


def check_place(place: str) -> None:
    """Raise UsageError for an invalid place: another scheme, no bucket, a part `..`."""
    scheme, colon, key = place.partition("://")
    if not colon or "/" in scheme:
        return
    if scheme != "s3":
        raise UsageError(f"{place}: videos are read from folders and s3://bucket/…, not from {scheme}://")
    if not key.strip("/") or _is_strange(key.rstrip("/")):
        raise UsageError(
            f"{place!r} names no bucket and key; write s3://bucket/folder or s3://bucket/key.mp4"
        )


def objects_below(
    place: ObjectPath, *, recursive: bool = True
) -> Iterator[tuple[ObjectPath, os.stat_result] | str]:
    """The objects below a place, or only directly below it, with their status; an unsupported key as text.

    Unsupported are keys with empty parts, `.` or `..`, control characters, or more than 1024 bytes: as a path
    they would be another object. Raises OSError, also for too many objects.
    """
    from pyarrow.fs import FileSelector

    with _speaking(place):
        infos = _store().get_file_info(FileSelector(place.key, recursive=recursive))
    if len(infos) > _MOST_OBJECTS:
        reason = f"{len(infos):,} objects; give folders of at most {_MOST_OBJECTS:,}"
        raise OSError(errno.EFBIG, reason, str(place))
    for info in infos:
        if info.type.name == "File":
            if _is_strange(info.path):
                yield info.path
            else:
                yield ObjectPath(_COLLAPSED + info.path), _status(info.size, info.mtime_ns or 0)


def open_source(path: Path) -> BinaryIO:
    """A video or its subtitles, open for reading; the caller closes it. Raises OSError."""
    place = source_path(path)
    if not isinstance(place, ObjectPath):
        return open_regular(place)
    return io.BufferedReader(ObjectReader(place), 1 << 16)


def tag_hash(path: ObjectPath) -> str:
    """A hash for the content of an object without reading it: BLAKE2b-128 of the store's tag and size.

    Objects uploaded in the same parts have the same tag. Raises OSError.
    """
    with _speaking(path), _store().open_input_file(path.key) as file:
        facts = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
        size = file.size()
    tag = str(facts.get("etag", "")).strip('"')
    if not tag:
        raise OSError(errno.EIO, "the store gives no tag (ETag) for it", str(path))
    return blake2b(f"etag:{size}:{tag}".encode(), digest_size=16).hexdigest()


class ObjectReader(io.RawIOBase):
    """The bytes of an object, read in blocks; the last few are cached."""

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path = path
        with _speaking(path):
            self._file = _store().open_input_file(path.key)
            self.size = int(self._file.size())
        self._at = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise OSError(errno.EINVAL, "no such place in a file", str(self._path))
        self._at = base + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if self._at >= self.size:
            return 0
        number, offset = divmod(self._at, _BLOCK_BYTES)
        piece = self._block(number)[offset : offset + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            begin = number * _BLOCK_BYTES
            length = min(_BLOCK_BYTES, self.size - begin)
            with _speaking(self._path):
                data = bytes(self._file.read_at(length, begin))
            if len(data) != length:
                raise OSError(errno.EIO, "changed or cut off while it was read", str(self._path))
            self._blocks[number] = data
            if len(self._blocks) > _MOST_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def close(self) -> None:
        if not self.closed and hasattr(self, "_blocks"):  # it was opened
            self._blocks.clear()
            self._file.close()
        super().close()


def _status(size: int, modified_ns: int) -> os.stat_result:
    # Ceph's gateway gives fractions of a second in listings, but not for a single object.
    seconds = modified_ns // 1_000_000_000
    number = int.from_bytes(blake2b(b"%d:%d" % (size, seconds), digest_size=7).digest()) | 1
    facts = (stat.S_IFREG | 0o444, number, 1, 1, 0, 0, size, seconds, seconds, seconds)
    return os.stat_result(facts, {"st_mtime_ns": seconds * 1_000_000_000})


def _is_strange(key: str) -> bool:
    """Whether bucket and key are unsupported."""
    return (
        not key.isprintable()
        or len(key.encode("utf-8", "surrogatepass")) > _MOST_KEY_BYTES
        or any(part in ("", ".", "..") for part in key.split("/"))
    )


@contextlib.contextmanager
def _speaking(path: ObjectPath) -> Iterator[None]:
    """Turn errors of the client into OSErrors whose reason names the remedy."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", str(path)) from error
    except (OSError, ValueError) as error:
        if getattr(error, "filename", None):
            raise
        text = " ".join(str(error).split())
        reason = why_refused(text)
        refusals.note(reason or text[:300])
        raise OSError(errno.EIO, refusals.reason, str(path)) from error


def _store() -> Any:
    """The client for the environment's store. Raises OSError for http:// without permission."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((os.environ[name] for name in names if os.environ.get(name)), "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    # Changed keys, such as temporary ones, need another client.
    who = tuple(os.environ.get(f"AWS_{name}", "") for name in ("ACCESS_KEY_ID", "SESSION_TOKEN", "PROFILE"))
    return _store_of(endpoint, region, who)


@cache
def _store_of(endpoint: str, region: str, who: tuple[str, ...]) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    scheme, _, host = endpoint.rstrip("/").rpartition("://")
    if scheme == "http" and os.environ.get("AWS_ALLOW_HTTP", "").lower() not in ("1", "true", "yes"):
        raise OSError(errno.EACCES, why_refused("URL scheme is not allowed") or "", endpoint)
    options: dict[str, Any] = {"endpoint_override": host, "scheme": scheme or "https"} if host else {}
    return S3FileSystem(
        **options,
        **({"region": region or "us-east-1"} if region or host else {}),
        anonymous=os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes"),
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )
