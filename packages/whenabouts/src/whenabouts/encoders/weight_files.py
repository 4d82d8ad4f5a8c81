"""Finds, checks and hashes a model's files by hub name or folder, and opens models; refuses pickles."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts.encoders.protocol import (
    EncoderLack,
    EncoderOutOfMemory,
    EncoderStatus,
    EncoderUnavailable,
    Role,
    fingerprint,
)
from whenabouts.intake import hub
from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.intake.lacks import is_memory, lack_of
from whenabouts.intake.opening import open_regular
from whenabouts.lines import one_line

_INPUT_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
# Messages of libraries that raise no specific error; the last two are of PyTorch's CPU allocator.
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")
# Errors that mean that a model cannot be loaded: built-in ones, and the libraries that define others.
_FAULTS = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, MemoryError)
_LIBRARIES = ("safetensors", "huggingface_hub", "onnxruntime", "builtins")
_MOST_SHOWN = 500
_OPENING = threading.RLock()
# Today's models have some 200 layers. Each layer takes memory and time before the weights are checked.
_MOST_LAYERS = 2_000
_LAYERS = re.compile("n_layers?|depth|(?:num|n)_.*layers|.*_layers")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk: its folder, and the name that opens it again."""

    path: Path
    name: str


E5_PROMPTS = ("query: ", "passage: ")
"""E5's prompts for queries and for passages."""


def local_folder(name: str) -> Path | None:
    """The existing folder at the path `name`, or None."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if path.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def locate(name: str) -> ModelFolder:
    """The folder of a model given by path, or by hub name with or without `@revision`.

    Never uses the network: `whenabouts models get` downloads. EncoderUnavailable names what is missing: the
    folder, the revision, or weights in the safetensors format.
    """
    if (folder := local_folder(name)) is not None:
        model = ModelFolder(folder, str(folder))
    elif hub.is_name(name):
        try:
            model = ModelFolder(hub.folder_of(name, _has_model), name)
        except hub.HubError as error:
            raise EncoderUnavailable(str(error)) from error
    else:
        raise EncoderUnavailable(
            f"{name!r}: there is no such folder, and it is not a model's name either "
            "(owner/name or owner/name@revision)"
        )
    _require_safetensors(model.path, name)
    return model


def folder_at_hand(name: str) -> Path | None:
    """The folder of a model given by path, or by a hub name in the cache; None without one."""
    if (folder := local_folder(name)) is not None or not hub.is_name(name):
        return folder
    try:
        return hub.folder_of(name, _has_model)
    except hub.HubError:
        return None


def _has_model(folder: Path) -> bool:
    return any((folder / file).is_file() for file in ("config.json", "modules.json"))


def _check_layers(config: dict[str, Any], name: str) -> None:
    """Raise EncoderUnavailable for more than `_MOST_LAYERS` layers, before the model is built."""
    for key, value in config.items():
        if isinstance(value, dict):
            _check_layers(value, name)
        elif isinstance(value, int) and value > _MOST_LAYERS and _LAYERS.fullmatch(key):
            raise EncoderUnavailable(
                f"{name}: config.json asks for {value:,} layers ({key}), at most {_MOST_LAYERS:,} are "
                "allowed; is it damaged?"
            )


def hub_file(repository: str, file: str, name: str) -> Path:
    """One file of a repository from the hub's cache. Raises EncoderUnavailable, naming `name`."""
    try:
        return hub.folder_of(repository, lambda folder: (folder / file).is_file()) / file
    except hub.HubError as error:
        raise EncoderUnavailable(
            f"{name}: its weights are not on this machine, and nothing is downloaded unasked; download them "
            f"with `whenabouts models get {repository} --file {file}`, or give a .safetensors file"
        ) from error


def needs_e5_prompts(folder: Path) -> bool:
    """Whether a model is an E5 by its names, and so needs `E5_PROMPTS`, which files seldom contain.

    See https://arxiv.org/abs/2402.05672. False for instructed E5 models, whose files contain other prompts.
    """
    return re.search(r"(?:^|[^a-z0-9])e5-(?:small|base|large)(?!.*instruct)", known_as(folder)) is not None


def known_as(folder: Path) -> str:
    """A model's names in lower case: that of its folder or hub repository, and that it was saved under."""
    held = folder.parents[1] if folder.parent.name == "snapshots" else folder
    return f"{held.name} {(model_config(folder) or {}).get('_name_or_path', '')}".lower()


def safetensors_files(folder: Path) -> list[Path]:
    """The weight files of a model folder, sorted by name."""
    return sorted(folder.glob("model*.safetensors"))


def model_config(folder: Path) -> dict[str, Any] | None:
    """A model's config.json; None if missing or unreadable."""
    return json_object(folder / "config.json")


def json_object(file: Path) -> dict[str, Any] | None:
    """The object in a JSON file of a model; None if missing or unreadable."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _require_safetensors(folder: Path, name: str) -> None:
    if not _has_model(folder):
        raise EncoderUnavailable(f"{name}: {folder} has no config.json; give the folder that holds a model")
    _check_layers(model_config(folder) or {}, name)
    if safetensors_files(folder):
        return
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    if pickles:
        raise EncoderUnavailable(
            f"{name}: {folder} has only {', '.join(pickles)}, which can run code when it is opened. "
            "Convert it to model.safetensors, or take a revision that has one"
        )
    raise EncoderUnavailable(f"{name}: {folder} has no model*.safetensors; the weights are missing")


def dual_model(folder: ModelFolder, dtype: Any, side: str, remedy: str) -> Any:
    """A model of `transformers` with a text side and another `side` ("image", "audio").

    Raises EncoderUnavailable for another kind of model, with the `remedy`, and for missing weights.
    """
    from transformers import AutoModel

    model, missing = opened_model(AutoModel, folder, dtype)
    if not (hasattr(model, "get_text_features") and hasattr(model, f"get_{side}_features")):
        raise EncoderUnavailable(
            f"{folder.name}: a {type(model).__name__} has not both a text and an {side} side; {remedy}"
        )
    refuse_missing(folder, missing)
    return model


def opened_model(kind: Any, folder: ModelFolder, dtype: Any) -> tuple[Any, list[str]]:
    """A model of `transformers`, opened by one of its Auto classes, and the names of missing weights."""
    model, loading = pretrained(kind, folder, dtype=dtype, use_safetensors=True, output_loading_info=True)
    return model, sorted(loading["missing_keys"])


def pretrained(kind: Any, folder: ModelFolder, **options: Any) -> Any:
    """What one of `transformers`' Auto classes opens in a folder, without downloads and foreign code."""
    return kind.from_pretrained(str(folder.path), local_files_only=True, trust_remote_code=False, **options)


@contextmanager
def whole_models(folder: ModelFolder, unused: str = "") -> Iterator[None]:
    """Refuse models of `transformers` that a library opens in this block, if their files lack weights.

    Weights with `unused` in their names may be missing (if "", all are needed). Raises EncoderUnavailable.
    Libraries do not report missing weights, so one thread at a time replaces `from_pretrained` meanwhile.
    """
    from transformers import PreTrainedModel

    missing: list[str] = []
    opened = PreTrainedModel.__dict__["from_pretrained"]

    def noted(kind: Any, /, *arguments: Any, output_loading_info: bool = False, **options: Any) -> Any:
        model, loading = opened.__func__(kind, *arguments, output_loading_info=True, **options)
        missing.extend(name for name in loading["missing_keys"] if not unused or unused not in name)
        return (model, loading) if output_loading_info else model

    with _OPENING:
        PreTrainedModel.from_pretrained = classmethod(noted)
        try:
            yield
        finally:
            PreTrainedModel.from_pretrained = opened
    refuse_missing(folder, sorted(missing))


def refuse_missing(folder: ModelFolder, missing: Sequence[str]) -> None:
    """Raise EncoderUnavailable for missing weights: transformers would initialise them at random."""
    if missing:
        raise EncoderUnavailable(
            f"{folder.name}: the weights lack {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + "; the download may be incomplete, or the configuration belongs to another model"
        )


def cache_folder() -> Path:
    """The folder of caches: WHENABOUTS_CACHE, else one in the user's cache folder."""
    if folder := os.environ.get("WHENABOUTS_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "whenabouts"


def model_fingerprint(family: str, model: object, folder: Path, **parts: object) -> str:
    """The fingerprint of a model of `transformers`: its class, its weights, its input files, then `parts`."""
    weights = weights_hash(safetensors_files(folder))
    inputs = content_mark(folder / name for name in _INPUT_FILES)
    return fingerprint(family, model=type(model).__name__, weights=weights, inputs=inputs, **parts)


def weights_hash(files: Sequence[Path]) -> str:
    """SHA-256 of one file, or of the hashes of several; cached by path, size and modification time."""
    if len(files) == 1:
        return _remembered_hash(files[0])
    together = hashlib.sha256()
    for file in files:
        together.update(f"{file.name} {_remembered_hash(file)}\n".encode())
    return together.hexdigest()


def content_mark(files: Iterable[Path]) -> str:
    """A hash (16 hexadecimal digits) of the contents of small files; missing files count as empty."""
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
        pass  # not cached, or damaged
    with open_regular(real) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    # A cache that cannot be written keeps nothing.
    with contextlib.suppress(FormatError), write_atomically(note) as stream:
        stream.write(digest.encode())
    return digest


def require(name: str, modules: Sequence[str], extra: str) -> None:
    """Raise EncoderUnavailable if a module is not installed; `extra` brings it. Imports nothing."""
    if missing := _missing(modules):
        raise EncoderUnavailable(
            f"{name}: needs {missing}, not installed here; `pip install 'whenabouts[{extra}]'`"
        )


def status(
    name: str, roles: tuple[Role, ...], modules: Sequence[str], extra: str, detail: str
) -> EncoderStatus:
    """A family's line of `doctor`: `detail` if its packages are installed, else how to install them."""
    missing = _missing(modules)
    remedy = f"{missing} missing: `pip install 'whenabouts[{extra}]'`"
    return EncoderStatus(name, roles, not missing, remedy if missing else detail)


def _missing(modules: Sequence[str]) -> str:
    """The names of the modules that are not installed, joined by commas; imports none of them."""
    return ", ".join(module for module in modules if importlib.util.find_spec(module) is None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library's error means that memory ran out, of the machine or its GPU."""
    is_one = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_one or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def out_of_memory(error: BaseException, remedy: str) -> EncoderOutOfMemory:
    """The error for exhausted memory: the cause's first line, and the remedy."""
    cause = next(iter(str(error).strip().splitlines()), "no memory")
    return EncoderOutOfMemory(f"out of memory ({cause}); {remedy}")


@contextmanager
def loading(name: str, extra: str) -> Iterator[None]:
    """Turn errors while a model is loaded into EncoderUnavailable with a remedy; nothing can download."""
    try:
        with hub.nothing_downloaded():
            yield
    except EncoderUnavailable:
        raise
    except FormatError as error:
        raise EncoderUnavailable(f"{name}: the model cannot be loaded: {error}") from error
    except Exception as error:
        if isinstance(error, _FAULTS) and is_out_of_memory(error):
            kind = EncoderLack if is_memory(error) else EncoderUnavailable
            raise kind(
                f"{name}: needs more memory than is free; name a smaller model, or close other programs"
            ) from error
        if lack := lack_of(error):
            raise EncoderLack(f"{name}: {lack}") from error
        if isinstance(error, ImportError):
            raise EncoderUnavailable(
                f"{name}: {error.name or error} cannot be imported ({error}); "
                f"`pip install 'whenabouts[{extra}]'`"
            ) from error
        if isinstance(error, _FAULTS) or type(error).__module__.startswith(_LIBRARIES):
            raise EncoderUnavailable(
                f"{name}: the model cannot be loaded: {one_line(str(error), _MOST_SHOWN)}"
            ) from error
        raise
