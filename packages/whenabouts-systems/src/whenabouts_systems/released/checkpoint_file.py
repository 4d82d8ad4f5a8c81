"""Read tensors and plain settings from files of `torch.save`, old and new, without running their code.

The released programs save `{"model": state_dict, "model_cfg": settings, "epoch": number}`. The settings' key
is "opt" in the DETR family, and "config" in GMMFormer's, whose parameters' key is "state_dict"; the ranked
programs' is "model_state_dict". HERO's file has the parameters alone. The settings are an object of easydict,
a package that need not be installed. PyTorch writes a zip file with a pickle and an entry for each tensor's
storage. Before version 1.6 it wrote several pickles, followed by the storages.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from whenabouts.intake.files import FormatError
from whenabouts.intake.opening import open_regular
from whenabouts.intake.pickled import (
    MOST_PICKLE_BYTES,
    Call,
    ForeignObject,
    Name,
    Persistent,
    PickleRefused,
    read_pickle,
)

ACCEPTED = "a checkpoint that a released program wrote with torch.save"
_PARAMETERS = ("model", "state_dict", "model_state_dict")
_SETTINGS = ("model_cfg", "opt", "config")
_ZIP_BEGINS = b"PK\x03\x04"
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_STORAGES = {
    f"{module}.{name}Storage": dtype for name, dtype in _TYPES.items() for module in ("torch", "torch.cuda")
}
_TENSOR_CALLS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_PARAMETER_CALL = "torch._utils._rebuild_parameter"
_MOST_DIMENSIONS = 16
_LARGEST = 1 << 62
_CALLS = frozenset(
    {
        *_TENSOR_CALLS,
        _PARAMETER_CALL,
        "collections.OrderedDict",
        # Calls in settings and optimizers, which are not read.
        "_codecs.encode",
        "copy_reg._reconstructor",
        "copyreg._reconstructor",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.dtype",
        "pathlib.PosixPath",
        "torch.Size",
        "torch.device",
    }
)


@dataclass(frozen=True)
class Checkpoint:
    """Content of a file: `tensors` by name (float32), `settings` with plain values, the epoch if known."""

    path: Path
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    epoch: int | None = None


@dataclass(frozen=True)
class _Storage:
    """`count` values of a type, stored in the file under `key`."""

    key: str
    dtype: torch.dtype
    count: int


@dataclass(frozen=True)
class _View:
    """Where a parameter's values are in a storage; offset and strides count values."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def read_checkpoint(path: Path) -> Checkpoint:
    """The tensors and settings of a file of `torch.save`.

    Raises FormatError for a file that is missing, damaged or not written by `torch.save`, or that asks for a
    call that is not allowed (no call is made), has a parameter that is not a tensor, or has tensors larger
    than the file.
    """
    try:
        with open_regular(path) as stream:
            if zipfile.is_zipfile(stream):
                return _read_zip(path, stream)
            stream.seek(0)
            if stream.read(len(_ZIP_BEGINS)) == _ZIP_BEGINS:  # its directory is at the end
                raise FormatError(path, "is a zip file that is cut off; fetch it again")
            stream.seek(0)
            return _read_pickles(path, stream)
    except PickleRefused as error:
        raise FormatError(path, f"{error}; no code of the file was run", accepted=ACCEPTED) from None
    except zipfile.BadZipFile as error:  # `is_zipfile` raises it for an archive of several disks
        raise FormatError(path, f"is a damaged zip file ({error}); fetch it again") from None
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None


def _read_zip(path: Path, stream: IO[bytes]) -> Checkpoint:
    """Read a file of PyTorch 1.6 or later."""
    try:
        with zipfile.ZipFile(stream) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise FormatError(path, "is a zip file, but not of torch.save", accepted=ACCEPTED)
            root = pickles[0].removesuffix("data.pkl")
            byte_order = f"{root}byteorder"
            _check_byte_order(path, byte_order not in names or _entry(path, archive, byte_order) == b"little")
            pickle = _entry(path, archive, pickles[0], MOST_PICKLE_BYTES)
            contents = _Contents(path, read_pickle(io.BytesIO(pickle), _CALLS))
            values = {
                key: _values(path, storage, _entry(path, archive, f"{root}data/{key}"))
                for key, storage in contents.storages.items()
            }
    except (
        *(zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError),
        *(ValueError, OverflowError, struct.error, zlib.error),
    ) as error:
        raise FormatError(path, f"is a damaged zip file ({error}); fetch it again") from None
    return contents.checkpoint(values)


def _entry(path: Path, archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    """The bytes of an entry. PyTorch never compresses them, so they are not larger than the file."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise FormatError(path, f"lacks its entry {name!r}: it is damaged; fetch it again") from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise FormatError(
            path, f"has a compressed entry {name!r}, which torch.save does not write", accepted=ACCEPTED
        )
    if most is not None and info.file_size > most:
        raise FormatError(path, f"has {info.file_size} bytes of pickle in {name!r}; at most {most} are read")
    return archive.read(info)


def _read_pickles(path: Path, stream: IO[bytes]) -> Checkpoint:
    """Read a file of PyTorch before 1.6."""
    if read_pickle(stream, ()) != _LEGACY_MAGIC:
        raise FormatError(path, "is a pickle, but not of torch.save", accepted=ACCEPTED)
    if read_pickle(stream, ()) != _LEGACY_PROTOCOL:
        raise FormatError(path, "was written by an unknown version of PyTorch", accepted=ACCEPTED)
    system = read_pickle(stream, ())
    _check_byte_order(path, isinstance(system, dict) and system.get("little_endian") is True)
    contents = _Contents(path, read_pickle(stream, _CALLS))
    keys, storages = read_pickle(stream, ()), contents.storages
    values: dict[str, Tensor] = {}
    for key in keys if isinstance(keys, list) else ():
        if not isinstance(key, str) or key not in storages:
            raise FormatError(path, "has a storage that no tensor uses", accepted=ACCEPTED)
        storage = storages[key]
        head = stream.read(8)
        if len(head) < 8 or struct.unpack("<q", head)[0] != storage.count:
            raise FormatError(path, "is cut off or damaged among its tensors; fetch it again")
        values[key] = _values(path, storage, stream.read(storage.count * storage.dtype.itemsize))
    return contents.checkpoint(values)


def _check_byte_order(path: Path, is_little: bool) -> None:
    if not is_little:
        raise FormatError(path, "was written on a machine of the other byte order; save it again on this one")


def _values(path: Path, storage: _Storage, data: bytes) -> Tensor:
    """The values of a storage, flat."""
    if not storage.count:
        return torch.empty(0, dtype=storage.dtype)
    needed = storage.count * storage.dtype.itemsize
    if len(data) < needed:
        raise FormatError(
            path, f"is cut off: storage {storage.key!r} has {len(data)} of its {needed} bytes; fetch it again"
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, needed).copy()).view(storage.dtype)


class _Contents:
    """The content of the main pickle: the places of parameters in storages, the plain settings, the epoch."""

    def __init__(self, path: Path, value: Any) -> None:
        self._path, self._file_bytes = path, path.stat().st_size
        if not isinstance(value, dict):
            raise FormatError(
                path, f"holds a {type(value).__name__}, not parameters by name", accepted=ACCEPTED
            )
        key = next((key for key in _PARAMETERS if key in value), None)
        parameters = value if key is None else value[key]
        if not isinstance(parameters, dict) or not parameters:
            raise FormatError(path, f"has no parameters under the key {key or 'model'!r}", accepted=ACCEPTED)
        self._views = {str(name): self._view(str(name), tensor) for name, tensor in parameters.items()}
        self._refuse_copies()
        settings: Any = next((value[key] for key in _SETTINGS if key in value), {})
        settings = settings.items if isinstance(settings, ForeignObject) else settings
        pairs: Iterable[tuple[Any, Any]] = settings.items() if isinstance(settings, dict) else ()
        self._settings = {str(name): setting for name, setting in pairs if _is_plain(setting)}
        epoch = value.get("epoch")
        self._epoch = epoch if type(epoch) is int else None

    @property
    def storages(self) -> dict[str, _Storage]:
        """The storages of the parameters, by key."""
        return {view.storage.key: view.storage for view in self._views.values()}

    def checkpoint(self, values: Mapping[str, Tensor]) -> Checkpoint:
        """The checkpoint with the values of the storages; tensors are copies. Raises FormatError."""
        tensors = {}
        for name, view in self._views.items():
            if view.storage.key not in values:
                raise self._fault(name, "lacks its values in this file; fetch it again")
            try:
                tensor = values[view.storage.key].as_strided(view.size, view.stride, view.offset)
                tensors[name] = tensor.to(torch.float32, copy=True).contiguous()
            except (RuntimeError, OverflowError):  # an empty tensor with other sizes out of range
                raise self._fault(name, "has a size or stride that no tensor can have") from None
        return Checkpoint(self._path, tensors, self._settings, self._epoch)

    def _refuse_copies(self) -> None:
        """Raise FormatError if many parameters share values, since each is copied."""
        count = sum(prod(view.size) for view in self._views.values())
        if count > self._file_bytes:  # tied weights of two bytes a value pass
            raise FormatError(
                self._path,
                f"has parameters of {count} values together, but only {self._file_bytes} bytes",
            )

    def _fault(self, name: str, problem: str, accepted: str = "") -> FormatError:
        return FormatError(self._path, f"parameter {name[:100]!r} {problem}", accepted=accepted)

    def _view(self, name: str, value: Any) -> _View:
        """The place of a parameter's values. Raises FormatError for a number that no tensor can have."""
        if isinstance(value, Call) and value.path == _PARAMETER_CALL and value.arguments:
            value = value.arguments[0]
        if not (isinstance(value, Call) and value.path in _TENSOR_CALLS and len(value.arguments) >= 4):
            kind = value.path if isinstance(value, Call | ForeignObject | Name) else type(value).__name__
            raise self._fault(name, f"is not a tensor but {kind}", ACCEPTED)
        persistent, offset, size, stride = value.arguments[:4]
        storage = self._storage(name, persistent)
        counts = [offset, *size, *stride] if isinstance(size, tuple) and isinstance(stride, tuple) else [None]
        are_plain = all(type(count) is int and 0 <= count < _LARGEST for count in counts)
        if not are_plain or len(size) != len(stride) or len(size) > _MOST_DIMENSIONS:
            raise self._fault(name, "has a size or stride that no tensor can have")
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if prod(size) > storage.count or (prod(size) and last >= storage.count):
            raise self._fault(name, f"has size {size}, but the file has {storage.count} values for it")
        return _View(storage, offset, size, stride)

    def _storage(self, name: str, value: Any) -> _Storage:
        """The storage with a persistent id ("storage", type, key, device, count); old files append a view."""
        id = value.id if isinstance(value, Persistent) else None
        if not isinstance(id, tuple) or len(id) < 5 or id[0] != "storage" or not isinstance(id[1], Name):
            raise self._fault(name, "has no values in this file", ACCEPTED)
        dtype, key, count = _STORAGES.get(id[1].path), id[2], id[4]
        if dtype is None or not isinstance(key, str) or type(count) is not int or count < 0:
            raise self._fault(
                name, f"is stored as {id[1].path}", "torch.FloatStorage and the other plain types"
            )
        if len(id) > 5 and id[5] is not None:
            raise self._fault(name, "is a view of another storage; such parameters are not read")
        if count * dtype.itemsize > self._file_bytes:
            raise self._fault(name, f"claims {count} values, but the file has {self._file_bytes} bytes")
        return _Storage(key, dtype, count)


def _is_plain(value: Any) -> bool:
    """Whether a setting is a number, a text, a boolean, None, or a short list of integers or texts."""
    if isinstance(value, list | tuple):
        return len(value) <= 100 and all(type(item) in (int, str) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
