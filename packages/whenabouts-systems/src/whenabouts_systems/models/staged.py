"""Read and write staged runs: a retriever of videos and a localizer of moments that answer together.

A folder with `system.json` is a staged run. `{"format": 1, "retriever": "prem_retriever", "localizer":
"prem_localizer"}` names the subfolders of the two trained systems (see `trained.py`). Such a folder may be
given wherever a trained system is expected.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts_systems.models import model_names, module_of
from whenabouts_systems.models.settings import read_record

SYSTEM = "system.json"
"""The file that makes a folder a staged run."""
FORMAT = 1
"""The version of `system.json` that this program writes and reads."""
_CONFIG, _CHOOSES, _FINDS = "config.json", "score_videos", "score_spans"
_ACCEPTED = "the name of a folder in this one, such as prem_localizer"


@dataclass(frozen=True)
class Stages:
    """The folders of a staged run; `retriever` None means that the localizer also chooses the videos."""

    retriever: Path | None
    localizer: Path


def is_staged(place: str | Path) -> bool:
    """Whether `place` is the folder of a staged run."""
    return (Path(place).expanduser() / SYSTEM).is_file()


def stages_of(place: str | Path) -> tuple[str | Path | None, str | Path]:
    """The retriever (or None) and the localizer of a place that names a trained system.

    A place that is not a staged run, such as another folder or a hub's owner/name, is a localizer alone.
    Raises as `read_stages`.
    """
    if not is_staged(place):
        return None, place
    stages = read_stages(place)
    return stages.retriever, stages.localizer


def retriever_of(place: str | Path) -> str | Path:
    """The retriever of a place that is given as a retriever: a staged run's retriever, or else its localizer.

    Any other place is returned unchanged. Raises as `read_stages`.
    """
    retriever, localizer = stages_of(place)
    return localizer if retriever is None else retriever


def localizer_of(place: str | Path) -> str | Path:
    """The localizer of a place that names a trained system.

    Raises as `read_stages`, but not for a missing retriever.
    """
    if not is_staged(place):
        return place
    path = Path(place).expanduser() / SYSTEM
    return _stage(path, "localizer", _read(path).localizer)


def fingerprint_of(localizer: str, retriever: str | None) -> str:
    """The fingerprint (16 digits) of a pair of systems, from both of theirs."""
    if retriever is None:
        return localizer
    return hashlib.sha256(f"{localizer} after {retriever}".encode()).hexdigest()[:16]


def read_stages(folder: str | Path) -> Stages:
    """The two folders that a staged run names.

    Raises FormatError if `system.json` is missing, of another version or malformed; if a name leads out of
    the folder, even through a link; if a named folder is missing; or if its system cannot do its part.
    """
    path = Path(folder).expanduser() / SYSTEM
    names = _read(path)
    stages = Stages(
        None if names.retriever is None else _stage(path, "retriever", names.retriever),
        _stage(path, "localizer", names.localizer),
    )
    _check_roles(path, stages)
    return stages


def _check_roles(path: Path, stages: Stages) -> None:
    """Raise FormatError if the retriever cannot choose videos, or the localizer cannot find moments."""
    first, last = stages.retriever, stages.localizer
    if first is None:
        return
    chooses, finds = _can(first, _CHOOSES), _can(last, _FINDS)
    if not chooses and not finds and _can(first, _FINDS) and _can(last, _CHOOSES):
        raise FormatError(
            path,
            f"names retriever and localizer the wrong way round: {first.name} chooses no videos and "
            f"{last.name} finds no moments; exchange the two names",
        )
    for fits, key, stage, lacks in (
        (chooses, "retriever", first, "a system that chooses no videos"),
        (finds, "localizer", last, "a system that finds no moments"),
    ):
        if not fits:
            raise FormatError(
                path, f"names {lacks}:", field=key, value=stage.name, accepted=f"the folder of a {key}"
            )


def _can(stage: Path, method: str) -> bool:
    """Whether the system in a folder has a method; True if the folder does not name its system."""
    try:
        name = read_json(stage / _CONFIG).get("system")
    except (FormatError, AttributeError):
        return True
    return name not in model_names() or hasattr(module_of(name).Model, method)


class _Names(msgspec.Struct, forbid_unknown_fields=True):
    """The content of `system.json`; `_stage` checks the names."""

    format: int
    localizer: Any = None
    retriever: Any = None


def _read(path: Path) -> _Names:
    """The content of a `system.json`. Raises FormatError."""
    return read_record(path, _Names, FORMAT, "the file as `whenabouts train` wrote it")


def write_stages(folder: str | Path, *, localizer: str, retriever: str | None = None) -> Path:
    """Write the `system.json` of a folder; the names are those of its subfolders.

    Raises FormatError, and writes nothing, if a name leads out of the folder or does not exist.
    """
    path = Path(folder) / SYSTEM
    named = (
        {"localizer": localizer} if retriever is None else {"retriever": retriever, "localizer": localizer}
    )
    for key, name in named.items():
        _stage(path, key, name)
    with write_atomically(path) as stream:
        stream.write((json.dumps({"format": FORMAT, **named}, indent=2, ensure_ascii=False) + "\n").encode())
    return path


def _stage(path: Path, key: str, name: Any) -> Path:
    """The folder that a name of the file at `path` stands for. Raises FormatError."""
    if not isinstance(name, str) or not _is_inside(name):
        raise FormatError(path, "names no subfolder:", field=key, value=name, accepted=_ACCEPTED)
    stage = path.parent / name
    if not stage.is_dir():
        raise FormatError(path, "there is no such folder:", field=key, value=name, accepted=_ACCEPTED)
    if not stage.resolve().is_relative_to(path.parent.resolve()):
        raise FormatError(
            path, "a link that leads out of this folder:", field=key, value=name, accepted=_ACCEPTED
        )
    return stage


def _is_inside(name: str) -> bool:
    """Whether a name is a relative path without "..", on any operating system."""
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and "\\" not in name and ":" not in name
    return plain and bool(parts) and not name.startswith("/") and ".." not in parts
