"""Where a model's files are, and what they are: hub names, local folders, hashes. No pickles."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.encoders.protocol import EncoderStatus, EncoderUnavailable, Role

_log = logging.getLogger(__name__)
_HUB_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors", "*/model*.safetensors")
_EXCLUDED = ("onnx/*", "openvino/*", "*.fp16.*", "*.bf16.*")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on this disk: its folder, and the name under which a person opens it again."""

    path: Path
    name: str


def looks_like_path(name: str) -> bool:
    """True for what can only be meant as a path, whether or not something is there."""
    return name.startswith(("/", "./", "../", "~", ".\\", "..\\")) or name in (".", "..")


def local_folder(name: str) -> Path | None:
    """The folder that `name` means, or None where there is none."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if path.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def is_hub_name(name: str) -> bool:
    """True for `name`, `owner/name` and both with `@revision`."""
    return len(name) <= 200 and not looks_like_path(name) and _HUB_NAME.fullmatch(name) is not None


def locate(name: str) -> ModelFolder:
    """The folder of a model given by path, or by hub name with or without `@revision`.

    What is in the hub's cache is used without asking the network. EncoderUnavailable names what is
    missing: the folder, the network, the revision, or weights in the safetensors format.
    """
    folder = local_folder(name)
    if folder is not None:
        _require_safetensors(folder, name)
        return ModelFolder(folder, str(folder))
    if not is_hub_name(name):
        raise EncoderUnavailable(
            f"{name!r}: there is no such folder, and it is no name of a model either "
            "(owner/name or owner/name@revision)"
        )
    return ModelFolder(_from_hub(name), name)


def _from_hub(name: str) -> Path:
    """The snapshot folder of a hub name, from the cache if it is whole, else downloaded."""
    repository, _, revision = name.partition("@")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise EncoderUnavailable(f"{name}: `pip install huggingface-hub`, or give a local folder") from error

    def fetch(local: bool) -> Path:
        return Path(
            snapshot_download(
                repository,
                revision=revision or None,
                local_files_only=local,
                allow_patterns=list(_PATTERNS),
                ignore_patterns=list(_EXCLUDED),
            )
        )

    def is_whole(folder: Path) -> bool:
        return (folder / "config.json").is_file() and bool(safetensors_files(folder))

    folder = _cached_or_downloaded(name, fetch, is_whole)
    _require_safetensors(folder, name)
    return folder


def hub_file(repository: str, file: str, name: str) -> Path:
    """One file of a repository, from the cache if it is there, else downloaded; `name` is for the message."""
    from huggingface_hub import hf_hub_download

    return _cached_or_downloaded(
        name, lambda local: Path(hf_hub_download(repository, file, local_files_only=local)), Path.is_file
    )


def _cached_or_downloaded(name: str, fetch: Callable[[bool], Path], is_whole: Callable[[Path], bool]) -> Path:
    """What `fetch(True)` has in the hub's cache if that is whole, else what `fetch(False)` downloads."""
    try:
        cached = fetch(True)
        if is_whole(cached):
            return cached
    except Exception as error:  # not in the cache: the library has many ways to say so
        _log.debug("%s is not in the cache: %s", name, error)
    try:
        with _bar_on_a_terminal_only():
            return fetch(False)
    except Exception as error:  # every fault of the network, the hub and its client ends up here
        raise EncoderUnavailable(_no_download(name, error)) from error


@contextmanager
def _bar_on_a_terminal_only() -> Iterator[None]:
    """The hub's progress bars, unless what they would be drawn on is a file or a pipe."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    switch = not sys.stderr.isatty() and not are_progress_bars_disabled()
    if switch:
        disable_progress_bars()
    try:
        yield
    finally:
        if switch:
            enable_progress_bars()


def _no_download(name: str, error: Exception) -> str:
    """The message for a model that cannot be fetched."""
    cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"{name}: its weights are not on this machine and could not be downloaded ({cause}). "
        "Check the name and the network (is HF_HUB_OFFLINE set?); or fetch it where there is a network with "
        "`hf download`, copy it here and give its path instead of the name"
    )


def safetensors_files(folder: Path) -> list[Path]:
    """The weight files of a model folder, sorted by name."""
    return sorted(folder.glob("model*.safetensors"))


def model_config(folder: Path) -> dict[str, Any] | None:
    """A model's config.json; None where there is none that can be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _require_safetensors(folder: Path, name: str) -> None:
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise EncoderUnavailable(f"{name}: {folder} has no config.json; give the folder that holds a model")
    if safetensors_files(folder):
        return
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    if pickles:
        raise EncoderUnavailable(
            f"{name}: {folder} has only {', '.join(pickles)}, which can run code when it is opened. "
            "Convert it to model.safetensors, or take a revision that has one"
        )
    raise EncoderUnavailable(f"{name}: {folder} has no model*.safetensors; the weights are missing")


def whole_model(folder: ModelFolder, dtype: Any) -> Any:
    """A model of `transformers` with every weight from the file; it would make up missing ones at random."""
    from transformers import AutoModel

    model, loading = AutoModel.from_pretrained(
        str(folder.path),
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    if missing := sorted(loading["missing_keys"]):
        raise EncoderUnavailable(
            f"{folder.name}: the weights lack {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + "; the download may be incomplete, or the configuration belongs to another model"
        )
    return model


def cache_folder() -> Path:
    """Where whenabouts may keep what it can compute again: WHENABOUTS_CACHE, else the user's cache folder."""
    own = os.environ.get("WHENABOUTS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own).expanduser() if own else Path(base).expanduser() / "whenabouts"


def weights_hash(files: Sequence[Path]) -> str:
    """SHA-256 of one file, or of the hashes of several; remembered by path, size and time of change."""
    if len(files) == 1:
        return _remembered_hash(files[0])
    together = hashlib.sha256()
    for file in files:
        together.update(f"{file.name} {_remembered_hash(file)}\n".encode())
    return together.hexdigest()


def content_mark(files: Iterable[Path]) -> str:
    """16 hex digits that change when one of these small files does; absent files count as empty."""
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        content = file.read_bytes() if file.is_file() else b""
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _remembered_hash(file: Path) -> str:
    real = file.resolve()
    state = real.stat()
    key = hashlib.blake2b(f"{real}|{state.st_size}|{state.st_mtime_ns}".encode(), digest_size=16).hexdigest()
    note = cache_folder() / "weights" / key
    try:
        remembered = note.read_text(encoding="ascii")
        if re.fullmatch("[0-9a-f]{64}", remembered):
            return remembered
    except (OSError, ValueError):
        pass  # not computed yet, or the note is damaged: compute it
    with real.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    _remember(note, digest)
    return digest


def _remember(note: Path, digest: str) -> None:
    """Write a note whole or not at all; a cache that cannot be written is no fault."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False, encoding="ascii") as draft:
            draft.write(digest)
        Path(draft.name).replace(note)
    except OSError as error:
        _log.debug("the hash of the weights is not remembered: %s", error)


def require(name: str, modules: Sequence[str], extra: str) -> None:
    """Raise EncoderUnavailable where a package is missing, before anything heavy is imported."""
    if missing := _missing(modules):
        raise EncoderUnavailable(
            f"{name}: needs {missing}, not installed here; `pip install 'whenabouts[{extra}]'`"
        )


def status(
    name: str, roles: tuple[Role, ...], modules: Sequence[str], extra: str, detail: str
) -> EncoderStatus:
    """A family's line of `doctor`: `detail` where its packages are here, else how to install them."""
    missing = _missing(modules)
    remedy = f"{missing} missing: `pip install 'whenabouts[{extra}]'`"
    return EncoderStatus(name, roles, not missing, remedy if missing else detail)


def _missing(modules: Sequence[str]) -> str:
    """The names of the modules that are not installed; imports none of them."""
    return ", ".join(module for module in modules if importlib.util.find_spec(module) is None)


@contextmanager
def loading(name: str, extra: str) -> Iterator[None]:
    """Turn what goes wrong while a model is loaded into an EncoderUnavailable that says what to do."""
    try:
        yield
    except EncoderUnavailable:
        raise
    except ImportError as error:
        raise EncoderUnavailable(
            f"{name}: {error.name or error} cannot be imported ({error}); `pip install 'whenabouts[{extra}]'`"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise EncoderUnavailable(f"{name}: the model cannot be loaded: {error}") from error
    except Exception as error:
        if type(error).__module__.startswith(("safetensors", "huggingface_hub", "onnxruntime", "builtins")):
            raise EncoderUnavailable(f"{name}: the model cannot be loaded: {error}") from error
        raise
