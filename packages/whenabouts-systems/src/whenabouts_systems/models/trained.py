"""Save and load a trained system with everything that its use needs, in a folder or on a hub.

| file | holds |
| --- | --- |
| `model.safetensors` | the weights |
| `config.json` | the system's name and settings, its inputs, its decoding |
| `README.md` | the model card |
| `calibration.json` | the calibration of its answers, if there is one (`ranking.confidence`) |

Nothing in a folder is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

from whenabouts.intake import hub
from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts.intake.opening import regular_name
from whenabouts.lines import first_line
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.version import __version__
from whenabouts_systems.models import config_of, model_names, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.settings import defaults_of, read_record

if TYPE_CHECKING:
    from typing import Self

FORMAT = 1
"""The version of `config.json` that this program writes and reads."""
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
CALIBRATION = "calibration.json"

FILES = (WEIGHTS, CONFIG, CARD, CALIBRATION)
"""The files of a trained system's folder."""

IMPORTED_FROM = "imported from"
"""The key in `about` for the file name of an imported checkpoint."""

Labels = Literal["inclusive", "as-released"]
# Most weights that a model may have beyond its file's (up to here errors name them), and most in all.
_SURPLUS, _MAX_WEIGHTS = 1000, 8000
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Trained:
    """A trained system.

    - `system` is its name among `models`, `model` the module (a `MomentModel`).
    - `labels` is the meaning of end labels in its training: the last clip of the moment ("inclusive"), or the
      boundary after it, limited to the last clip, as in the released programs ("as-released").
    - `about` holds facts on the training for the model card, as plain values.
    - `calibration` is the content of `calibration.json`, None without one.
    """

    system: str
    model: Any
    inputs: Inputs
    decoding: Decoding
    labels: Labels = "inclusive"
    about: Mapping[str, Any] = field(default_factory=dict)
    calibration: bytes | None = field(default=None, repr=False)

    @classmethod
    def from_pretrained(cls, name: str | Path, *, revision: str | None = None) -> Self:
        """Load a trained system from a folder or a hub's repository ("owner/name"), in evaluation mode.

        Raises UsageError if there is no such folder or repository. Raises FormatError if files are missing,
        truncated, from another program or version, or do not fit each other.
        """
        folder = _folder_of(name, revision)
        config = _read_config(folder / CONFIG)
        path, weights = folder / CONFIG, folder / WEIGHTS
        with torch.random.fork_rng(devices=[]):
            with _buildable(path, "" if config.system in model_names() else _not_installed(folder)):
                made = config_of(
                    config.system, {name: _frozen(value) for name, value in config.model.items()}
                )
                inputs, decoding = Inputs.from_json(config.inputs), Decoding.from_json(config.decoding)
                # Check before memory is allocated: a hostile file may ask for more than there is.
                shapes = shapes_of(config.system, made, len(_shapes_in(weights)))
            lacking = [field.name for field in fields(made) if field.name not in config.model]
            _refuse_misfit(shapes, weights, path, lacking)
            with _buildable(path):
                model = new_model(config.system, made)
        model.load_state_dict(_weights_in(weights))
        beside = folder / CALIBRATION
        calibration = beside.read_bytes() if beside.is_file() else None
        return cls(config.system, model.eval(), inputs, decoding, config.labels, config.about, calibration)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the files of the system to a folder, each atomically; return the folder.

        The calibration is written only if weights and settings are those it was made with.
        """
        place = Path(folder)
        described = {**self._config(), "about": dict(self.about), "whenabouts": __version__}
        files = {
            WEIGHTS: save(self._weights(), metadata={"format": "pt"}),
            CONFIG: (json.dumps(described, indent=2, ensure_ascii=False) + "\n").encode(),
            CARD: _model_card(self).encode(),
            **self._own_calibration(),
        }
        for name, content in files.items():
            with write_atomically(place / name) as stream:
                stream.write(content)
        return place

    def push_to_hub(self, repository: str, *, private: bool = False, revision: str | None = None) -> str:
        """Upload the files to a hub's repository ("owner/name"); return the address of the commit.

        A missing repository is created. Log in with `hf auth login` first. Raises UsageError for a wrong
        name, WhenaboutsError if the hub refuses.
        """
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        if not _HUB_ID.fullmatch(repository):
            raise UsageError(f"{repository!r}: a hub's repository is named owner/name")
        hub = huggingface_hub.HfApi()
        with tempfile.TemporaryDirectory(prefix="whenabouts-push-") as aside:
            self.save_pretrained(aside)
            try:
                hub.create_repo(repository, private=private, exist_ok=True)
                commit = hub.upload_folder(
                    repo_id=repository,
                    folder_path=aside,
                    revision=revision,
                    delete_patterns=[CALIBRATION],  # an older calibration does not fit these weights
                    commit_message=f"{self.system} trained with whenabouts",
                )
            except HFValidationError as error:
                raise UsageError(f"{repository!r}: {first_line(error)}") from error
            except (HfHubHTTPError, OSError) as error:
                raise WhenaboutsError(
                    f"{repository}: the hub refused the upload: {first_line(error)}"
                ) from error
        return str(commit)

    @property
    def fingerprint(self) -> str:
        """A hash (16 digits) that changes with the weights, the settings and the inputs.

        Settings at their defaults do not count, so that new settings do not change old systems' fingerprints.
        """
        settings = {**self._config(), "model": _unusual(self.model.config)}
        if getattr(self.model, "lays_side_by_side", False) and len(self.inputs.streams) > 1:
            settings["order"] = list(self.model.config.streams)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name, tensor in sorted(self._weights().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
        return digest.hexdigest()[:16]

    def _weights(self) -> dict[str, Tensor]:
        return {
            name: tensor.detach().to("cpu").contiguous() for name, tensor in self.model.state_dict().items()
        }

    def _own_calibration(self) -> dict[str, bytes]:
        """File name -> calibration; empty if there is none for these weights."""
        if self.calibration is None:
            return {}
        try:
            content = json.loads(self.calibration)
        except ValueError:
            return {}
        fits = isinstance(content, dict) and content.get("fingerprint") == self.fingerprint
        return {CALIBRATION: self.calibration} if fits else {}

    def _config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "system": self.system,
            "model": asdict(self.model.config),
            "inputs": self.inputs.to_json(),
            "decoding": self.decoding.to_json(),
            "labels": self.labels,
        }


class _Config(msgspec.Struct):
    """The parts of a `config.json` that are read."""

    system: str
    model: dict[str, Any]
    inputs: dict[str, Any]
    decoding: dict[str, Any]
    labels: Labels
    about: dict[str, Any] = msgspec.field(default_factory=dict)


def _unusual(config: Any) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    defaults = defaults_of(type(config))
    return {name: value for name, value in asdict(config).items() if value != defaults.get(name, MISSING)}


def _folder_of(name: str | Path, revision: str | None) -> Path:
    place = Path(name).expanduser()
    if place.is_dir():
        return place
    what = "a trained system is a folder that `whenabouts train` made"
    if place.is_file():
        lists = "lists of videos are taken by `whenabouts run --retriever FILE` alone"
        raise UsageError(f"{name}: is a file; {what} ({lists})")
    if isinstance(name, Path) or not _HUB_ID.fullmatch(name):
        raise UsageError(f"{name}: no such folder; {what}, or owner/name on a hub")
    versioned = f"{name}@{revision}" if revision else name
    try:
        return hub.folder_of(
            versioned, lambda folder: all((folder / file).is_file() for file in (WEIGHTS, CONFIG))
        )
    except hub.HubError as error:
        raise UsageError(f"there is no folder of this name, and as a hub's model: {error}") from error


def _inside(folder: Path) -> str:
    """The trained stages in a folder that is not a trained system, for an error."""
    names = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
    if not names:
        return ""
    return (
        f", but folders that have ({', '.join(names)}): name one of these; stages are a system when all are "
        "trained (`whenabouts train --resume`)"
    )


def _read_config(path: Path) -> _Config:
    if not path.is_file():
        raise FormatError(
            path.parent, f"no trained system: it has no {CONFIG}{_inside(path.parent)}", accepted=_ACCEPTED
        )
    return read_record(path, _Config, FORMAT, "the file as `whenabouts train` wrote it")


_ACCEPTED = f"a folder with {WEIGHTS} and {CONFIG}, as `whenabouts train` writes it"


def shapes_of(system: str, config: Any, stored: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the weights of a system with these settings, without allocating them.

    Raises UsageError as `at_most` does.
    """
    with at_most(stored), torch.device("meta"):
        model = new_model(system, config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@contextmanager
def at_most(stored: int) -> Iterator[None]:
    """Raise UsageError as soon as a model has far more weights than the `stored` ones in its file.

    A hostile file could exhaust memory: a layer takes some 20 KB even without values, and a file with 20,000
    names is small.
    """
    _allowed.stored, _allowed.left = stored, min(stored + _SURPLUS, _MAX_WEIGHTS)
    try:
        yield
    finally:
        del _allowed.left


_allowed = threading.local()
"""The number of `stored` weights and of those `left`, in a thread that is inside of `at_most`."""


def _count(module: torch.nn.Module, name: str, parameter: object) -> None:
    left = getattr(_allowed, "left", None)
    if left is None or parameter is None:
        return
    _allowed.left = left - 1
    if left < 1:
        raise UsageError(f"the settings ask for far more weights than a file of {_allowed.stored} has")


# Registered once: PyTorch fails if the hooks change while another thread builds a module.
register_module_parameter_registration_hook(_count)


def _refuse_misfit(
    expected: Mapping[str, tuple[int, ...]], path: Path, config: Path, lacking: Sequence[str]
) -> None:
    """Raise FormatError, naming the first weight of a file that does not fit; reads only the file's header.

    `lacking` are settings that the config does not name and that therefore have their defaults.
    """
    shapes = _shapes_in(path)
    also = f" (it lacks the settings {', '.join(lacking)})" if lacking else ""
    for name in sorted({*expected, *shapes}):
        if name not in shapes:
            raise FormatError(path, f"has no weight {name!r}, which {config.name} asks for{also}")
        if name not in expected:
            raise FormatError(
                path, f"has a weight {name!r} that the system of {config.name} does not have{also}"
            )
        if shapes[name] != expected[name]:
            raise FormatError(
                path,
                f"weight {name!r} does not fit {config.name}{also}",
                value=shapes[name],
                accepted=f"shape {expected[name]}",
            )


def _not_installed(folder: Path) -> str:
    """Error text: the missing packages that the training of a folder used, by its `run.json`."""
    try:
        used = msgspec.convert(read_json(folder / "run.json")["versions"], dict[str, str])
    except (WhenaboutsError, OSError, LookupError, TypeError, msgspec.ValidationError):
        return ""
    missing = [f"{name} {used[name]}" for name in used if name != "python" and not version_of(name)]
    return f"; its training used {', '.join(missing)}" if missing else ""


def version_of(package: str) -> str:
    """The version of an installed package; "" if it is not installed."""
    try:
        return version(package)
    except (PackageNotFoundError, ValueError):  # the name is empty
        return ""


@contextmanager
def _buildable(config: Path, hint: str = "") -> Iterator[None]:
    """Turn errors of building a system into a FormatError about its config, ending in `hint`."""
    try:
        yield
    except (
        *(UsageError, TypeError, ValueError, LookupError, AttributeError),
        *(ArithmeticError, RuntimeError, MemoryError, AssertionError),
    ) as error:
        reason = first_line(error)[:300]
        problem = f"this program cannot build the system it describes: {reason}{hint}"
        raise FormatError(config, problem) from error


def _shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the weights in a file; reads only the header."""
    with _opened(path) as opened, safetensors.safe_open(opened, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _weights_in(path: Path) -> dict[str, Tensor]:
    with _opened(path) as opened:
        return dict(load_file(opened))


@contextmanager
def _opened(path: Path) -> Iterator[str]:
    """The name of the open weights file. Raises FormatError if it is missing, truncated or no safetensors."""
    if not path.is_file():
        raise FormatError(path.parent, f"the weights are missing: it has no {WEIGHTS}", accepted=_ACCEPTED)
    try:
        with regular_name(path) as name:
            yield name
    except (safetensors.SafetensorError, OSError) as error:
        raise FormatError(
            path, f"cut off, or no safetensors file ({first_line(error)})", accepted=_ACCEPTED
        ) from error


def _frozen(value: Any) -> Any:
    """A JSON value for a frozen dataclass: lists become tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_HEAD = """\
---
library_name: whenabouts
tags: [video-moment-retrieval, {system}]
---

# {title}

{does}

```sh
whenabouts run --checkpoint THIS-FOLDER --features FEATURES --split test --out run.jsonl
whenabouts search "a sentence" --corpus my.corpus --model THIS-FOLDER
```
"""


_FINDS = "A system that finds moments in videos: a sentence in, a ranked list of (video, start, end) out."
_CHOOSES = "A system that finds videos of which a part answers: a sentence in, a ranked list of videos out."
_MEASURED = ("## On the validation split (percent)", "", "| metric | mean |", "| --- | ---: |")


def _model_card(trained: Trained) -> str:
    """The card as Markdown, with the front matter that hubs read."""
    facts = dict(trained.about)
    title = facts.pop("title", "") or f"{trained.system}, trained with whenabouts"
    does = _FINDS if hasattr(trained.model, "score_spans") else _CHOOSES
    parts = [_HEAD.format(system=trained.system, title=title, does=does)]
    if facts.pop("simulated", False):
        parts.append("**Trained on simulated features: no number below is a benchmark result.**\n")
    if numbers := facts.pop("metrics", {}):
        values = {name: "-" if value is None else f"{100 * value:.2f}" for name, value in numbers.items()}
        rows = [f"| {name} | {value} |" for name, value in values.items()]
        parts.append("\n".join([*_MEASURED, *rows, ""]))
    if facts:
        parts.append(_table("Training", facts))
    parts.append(_table("Inputs", trained.inputs.to_json()))
    parts.append(_table("Decoding", {**trained.decoding.to_json(), "labels": trained.labels}))
    parts.append(_table("Settings of the model", asdict(trained.model.config)))
    return "\n".join(parts)


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items() if value not in ({}, [], ())]
    return "\n".join([f"## {title}", "", "| | |", "| --- | --- |", *lines, ""])


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
