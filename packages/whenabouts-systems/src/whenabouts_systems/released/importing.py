"""Import a released checkpoint as a trained system, after comparing each parameter's name and shape."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whenabouts.intake.files import FormatError, folder_aside, read_json
from whenabouts.intake.opening import open_regular
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.trained import IMPORTED_FROM, Trained, at_most, shapes_of
from whenabouts_systems.released import program_names
from whenabouts_systems.released.checkpoint_file import Checkpoint, read_checkpoint
from whenabouts_systems.released.settings import Overrides, Released, Settings

OPTIONS = "opt.json"
"""The name of the file of options that programs write next to a checkpoint."""
_MOST_NAMED = 6
# The prefix of names in a model that was trained on several GPUs.
_PARALLEL = "module."


@dataclass(frozen=True)
class Imported:
    """A trained system, and a message for the user about each guessed setting."""

    trained: Trained
    guessed: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the folder of the trained system atomically.

        Raises UsageError if it exists already, FormatError if it cannot be written.
        """
        check_free(folder)
        with folder_aside(folder.resolve()) as aside:  # a link stays a link
            self.trained.save_pretrained(aside)

    def to_json(self) -> dict[str, Any]:
        """The output of `import-checkpoint --json`."""
        trained = self.trained
        return {
            "system": trained.system,
            "parameters": sum(tensor.numel() for tensor in trained.model.state_dict().values()),
            "streams": dict(trained.inputs.widths),
            "hidden": trained.model.config.hidden,
            "heads": getattr(trained.model.config, "heads", None),
            "clip_seconds": trained.inputs.clip_seconds,
            "tef": trained.inputs.tef or getattr(trained.model.config, "tef", False),
            "epoch": trained.about.get("epoch"),
            "guessed": list(self.guessed),
        }


def check_free(folder: Path) -> None:
    """Raise UsageError if a folder exists and is not empty, or if a parent is not a folder."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder}: exists already; name a folder that is new or empty")
    inside = next(parent for parent in folder.absolute().parents if parent.exists())
    if not inside.is_dir():
        raise UsageError(f"{folder}: {inside} is not a folder; name a path inside a folder")


def import_checkpoint(
    program: str, path: Path, overrides: Overrides | None = None, options: Path | None = None
) -> Imported:
    """Import a checkpoint as a trained system that computes the same as the program.

    `options` is the program's opt.json (default: the one in the file's folder, if any). Raises UsageError for
    an unknown program and for overrides that it lacks; FormatError for a file that is not a checkpoint of the
    program, naming the parameters that are missing, left over or of another shape.
    """
    if program not in program_names():
        raise UsageError(f"{program!r}: no such program; known: {', '.join(program_names())}")
    overrides = overrides or Overrides()
    if overrides.dataset and program != "mmn":
        raise UsageError(f"--dataset: only settings of mmn depend on it; leave it out for {program}")
    importer: Any = importlib.import_module(f"whenabouts_systems.released.{program}")
    checkpoint = _without_prefix(read_checkpoint(path))
    released = Released(checkpoint, _read_options(path, options), overrides)
    try:
        settings = importer.settings(released)
        _refuse_streams(overrides.streams, settings)
        model = _model(program, checkpoint, settings)
    except UsageError as error:
        raise UsageError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except FormatError as error:
        others = [name for name in program_names() if _is_like(name, checkpoint)]
        if not others or program in others:
            raise
        problem = str(error).removeprefix(f"{path}: ")
        raise FormatError(path, f"{problem}; it looks like a checkpoint of {' or '.join(others)}") from None
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    about = {
        "title": importer.TITLE,
        IMPORTED_FROM: path.name,
        "SHA-256 of that file": digest,
        "guessed settings": "; ".join(released.guessed) or "none",
        **({} if checkpoint.epoch is None else {"epoch": checkpoint.epoch}),
    }
    trained = Trained(program, model.eval(), settings.inputs, settings.decoding, settings.labels, about)
    return Imported(trained, tuple(released.guessed))


def _model(program: str, checkpoint: Checkpoint, settings: Settings) -> Any:
    """The system with the checkpoint's weights; shapes are compared before memory is allocated."""
    try:
        config = config_of(program, settings.config)
        shapes = shapes_of(program, config, len(checkpoint.tensors))
        short = {name: checkpoint.tensors[name][:count] for name, count in settings.used_rows.items()}
        shortened = replace(checkpoint, tensors={**checkpoint.tensors, **short})
        weights = _renamed(shortened, _names(program, config, checkpoint), shapes, settings.unused)
        with torch.random.fork_rng(devices=[]):
            model = new_model(program, config)
    except (TypeError, ValueError, RuntimeError, UsageError) as error:
        raise FormatError(checkpoint.path, f"no model can be made with its settings: {error}") from None
    model.load_state_dict(weights)
    return model


def _names(program: str, config: Any, checkpoint: Checkpoint) -> Mapping[str, str]:
    """Our names of parameters -> the program's. Raises UsageError as `at_most` does."""
    system: Any = importlib.import_module(f"whenabouts_systems.models.{program}")
    with at_most(len(checkpoint.tensors)):
        names: Mapping[str, str] = system.released_names(config)
    return names


def _is_like(program: str, checkpoint: Checkpoint) -> bool:
    """Whether the program's parameters have the same names as the checkpoint's."""
    importer: Any = importlib.import_module(f"whenabouts_systems.released.{program}")
    try:
        settings: Settings = importer.settings(Released(checkpoint, {}, Overrides()))
        expected = set(_names(program, config_of(program, settings.config), checkpoint).values())
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError, WhenaboutsError):
        return False
    return expected <= set(checkpoint.tensors) <= expected | settings.unused


def _refuse_streams(given: Mapping[str, int], settings: Settings) -> None:
    """Raise UsageError if the caller's streams differ from the checkpoint's."""
    streams = {name: stream.width for name, stream in settings.inputs.streams.items()}
    if given and list(given.items()) != list(streams.items()):
        listed = ", ".join(f"{name} ({width})" for name, width in streams.items())
        raise UsageError(f"the checkpoint's streams are {listed}; leave out --stream")


def _read_options(path: Path, named: Path | None) -> Mapping[str, Any]:
    """The program's options, from the `named` file or the one in the checkpoint's folder; else none."""
    file = named or path.with_name(OPTIONS)
    if named is None and not file.is_file():
        return {}
    options = read_json(file)
    if not isinstance(options, dict):
        raise FormatError(file, "does not hold options", accepted="a JSON object, as the programs write it")
    return options


def _without_prefix(checkpoint: Checkpoint) -> Checkpoint:
    if not all(name.startswith(_PARALLEL) for name in checkpoint.tensors):
        return checkpoint
    tensors = {name.removeprefix(_PARALLEL): tensor for name, tensor in checkpoint.tensors.items()}
    return replace(checkpoint, tensors=tensors)


def _renamed(
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    parameters: Mapping[str, tuple[int, ...]],
    unused: Set[str],
) -> dict[str, Tensor]:
    """The tensors by our names; `parameters` are our shapes. FormatError names all that do not fit."""
    tensors = checkpoint.tensors
    expected = {names[ours]: shape for ours, shape in parameters.items()}
    missing = [name for name in expected if name not in tensors]
    surplus = sorted(set(tensors) - set(expected) - unused)
    misshaped = [
        f"{name} is {tuple(tensors[name].shape)} for {shape}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    faults = (("missing:", missing), ("left over:", surplus), ("of another shape:", misshaped))
    if problems := "; ".join(f"{fault} {_listed(which)}" for fault, which in faults if which):
        raise FormatError(
            checkpoint.path, f"does not fit: {problems}", accepted="a checkpoint of the named program"
        )
    for name in expected:
        if not torch.isfinite(tensors[name]).all():
            raise FormatError(checkpoint.path, f"parameter {name!r} has values that are not finite")
    return {ours: tensors[names[ours]] for ours in parameters}


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
