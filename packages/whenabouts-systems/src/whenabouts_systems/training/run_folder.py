"""Write and read the folder of a training: its files, its lock and its saved state.

| file | holds |
| --- | --- |
| `model.safetensors`, `config.json`, `README.md` | the best system so far (`Trained.from_pretrained`) |
| `experiment.toml` | all settings, defaults included |
| `run.json` | versions, seed, machine, sizes of the data, results and the reason for the end |
| `curves.jsonl`, `curves.png` | losses, learning rate and metrics over the training |
| `validation.run.jsonl`, `validation.queries.jsonl` | answers of the best system, and each query's values |
| `state.safetensors` | the state of the training, for `--resume` |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from whenabouts.drawing import COLOURS, GREY, new_figure, require_matplotlib, save_figure
from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts.intake.opening import regular_name
from whenabouts.lines import first_line
from whenabouts.locking import hold
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.evaluation.evaluate import Evaluation
from whenabouts_bench.formats.runs import MemoryRun
from whenabouts_systems.models.staged import SYSTEM
from whenabouts_systems.models.trained import CONFIG, WEIGHTS, Trained
from whenabouts_systems.training.experiment import Experiment, load_experiment

EXPERIMENT, STATE, ABOUT = "experiment.toml", "state.safetensors", "run.json"
CURVES, PICTURE = "curves.jsonl", "curves.png"
RUN, QUERIES = "validation.run.jsonl", "validation.queries.jsonl"
LOCK = ".lock"
_OF_A_TRAINING = (STATE, EXPERIMENT, WEIGHTS, CONFIG, SYSTEM)
VERSION = 1


@dataclass(frozen=True)
class Validation:
    """The result of a validation.

    `score` is the sum of the metrics in `measure`; `means` holds these and the protocol's other metrics.
    """

    score: float
    means: Mapping[str, float | None]
    measure: tuple[str, ...]
    answers: MemoryRun | None = None
    evaluation: Evaluation | None = None


@dataclass
class State:
    """The progress of a training: `batch` of `epoch` comes next, `step` counts all steps (from 0).

    `sums` and `counted` are the losses since the last line of `curves`, and their number. `best` is the
    largest value of the experiment's metric, reached at `best_step`; `stale` counts evaluations since then.
    `finished` is the reason for the end, "" before it. `seconds` includes evaluations.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counted: int = 0
    best: float | None = None
    best_step: int = 0
    best_metrics: dict[str, float | None] = field(default_factory=dict)
    stale: int = 0
    finished: str = ""
    seconds: float = 0.0
    curves: list[dict[str, Any]] = field(default_factory=list)

    def count(self, losses: Mapping[str, float]) -> None:
        """Add the losses of a finished step."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.counted += 1
        self.step += 1
        self.batch += 1

    def means(self) -> dict[str, float]:
        """Mean losses since the last line of the curves."""
        return {name: total / max(1, self.counted) for name, total in self.sums.items()}

    def end_line(self, line: Mapping[str, Any]) -> None:
        """Append a line to the curves and reset the sums of losses."""
        self.curves.append(dict(line))
        self.sums, self.counted = {}, 0


@dataclass(frozen=True)
class RunFolder:
    """The files of one training."""

    path: Path

    @contextmanager
    def claimed(self, *, resume: bool) -> Iterator[None]:
        """Lock the folder for one training.

        Raises UsageError if another training has locked it, if it is used and `resume` is false, if there is
        nothing to resume, or if the state that belongs to the curves is missing. A new training that is
        refused before its first saved state leaves no experiment in the folder.
        """
        if not resume:
            self.refuse_used()
        if resume and not (self.path / EXPERIMENT).exists():
            raise UsageError(f"{self.path}: there is no training here to resume; train without --resume")
        if resume and (self.path / CURVES).exists() and not self.state_path.exists():
            raise UsageError(
                f"{self.path}: its {STATE} is missing, so this training cannot be resumed; restore the file, "
                "or name another folder with --out and train without --resume"
            )
        is_new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = hold(self.path, LOCK)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        if held is None:
            raise UsageError(
                f"{self.path}: another training is writing here; wait for it, or give another --out"
            )
        try:
            yield
        except WhenaboutsError:
            if not resume and not self.state_path.exists():
                self._leave(is_new)
            raise
        finally:
            held.release()

    @property
    def is_untouched(self) -> bool:
        """Whether a training locked the folder and ended before it wrote anything else."""
        return (self.path / LOCK).exists() and not any((self.path / name).exists() for name in _OF_A_TRAINING)

    def refuse_used(self) -> None:
        """Raise UsageError if the folder holds a training, with or without stages."""
        if used := [name for name in _OF_A_TRAINING if (self.path / name).exists()]:
            raise UsageError(
                f"{self.path}: holds {used[0]} of another training; continue it with --resume, or name "
                "another folder with --out"
            )

    def refuse_training(self) -> None:
        """Raise UsageError if the folder holds a training without stages."""
        if used := [name for name in _OF_A_TRAINING if name != SYSTEM and (self.path / name).exists()]:
            raise UsageError(
                f"{self.path}: holds {used[0]} of a training without stages; name another folder with --out"
            )

    def _leave(self, is_new: bool) -> None:
        """Delete what a refused training wrote, and the folder if the training made it."""
        for name in (EXPERIMENT, ABOUT):
            (self.path / name).unlink(missing_ok=True)
        if is_new and [file.name for file in self.path.iterdir()] == [LOCK]:
            (self.path / LOCK).unlink()
            self.path.rmdir()

    def begin(self, experiment: Experiment) -> None:
        """Write the experiment before the training."""
        self._write(EXPERIMENT, experiment.to_toml())

    def check_same(self, experiment: Experiment) -> None:
        """Raise UsageError, naming the first differing setting, if the folder has another experiment."""
        # Loading fills settings that are younger than the folder with their defaults.
        before, after = (
            {**_flat(each.tables()), "features.streams": list(each.features.streams)}  # their order counts
            for each in (load_experiment(self.path / EXPERIMENT), experiment)
        )
        for name in after | before:
            was, now = (_comparable(settings.get(name)) for settings in (before, after))
            if was != now:
                raise UsageError(
                    f"{self.path}: its training has {name} = {was!r}, this one {now!r}; "
                    "--resume needs the same settings, other settings need another --out"
                )

    def check_same_data(self, material: Mapping[str, Any]) -> None:
        """Raise UsageError if the training began with other data; folders of earlier versions do not say."""
        path = self.path / ABOUT
        before = read_json(path).get("material", {}) if path.exists() else {}
        for split, now in material.items():
            if before.get(split, {}).get("digest", now["digest"]) != now["digest"]:
                raise UsageError(
                    f"{self.path}: its training began with other annotations or features of {split}; "
                    "--resume needs the same data, other data need another --out"
                )

    @property
    def state_path(self) -> Path:
        """The file of the state."""
        return self.path / STATE

    def keep(self, state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Save everything that `--resume` needs, and the curves."""
        save_state(self.state_path, state, model, optimizer)
        self._write_lines(CURVES, state.curves)

    def write_best(self, trained: Trained, validation: Validation | None) -> None:
        """Write the best system so far, its answers in the validation, and each query's values."""
        trained.save_pretrained(self.path)
        if validation is not None and validation.answers and validation.evaluation:
            answers = validation.answers
            task = "VCMR" if "VCMR" in answers.tasks else answers.tasks[0]  # a run file holds one list
            one_list = MemoryRun(answers.name, {task: answers.lists[task]})
            formats.write_run(one_list, self.path / RUN, "jsonl")
            self._write_lines(QUERIES, validation.evaluation.per_query())

    def draw_curves(self, state: State) -> None:
        """Draw the curves, if matplotlib is installed."""
        draw_curves(state.curves, self.path / PICTURE)

    def _write_lines(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        self._write(name, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    def _write(self, name: str, text: str) -> None:
        with write_atomically(self.path / name) as stream:
            stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value as a JSON file."""
    with write_atomically(path) as stream:
        stream.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _flat(tables: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Flatten nested tables: "training.epochs" -> value."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{path}{key}.")
        else:
            flat[path + key] = value
    return flat


def _comparable(value: Any) -> Any:
    """A value in the form in which a TOML file is read: None as "none", tuples as lists."""
    if value is None:
        return "none"
    return [_comparable(item) for item in value] if isinstance(value, list | tuple) else value


def save_state(path: Path, state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write everything that a training needs to continue, atomically."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in moments.items()}
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    position = json.dumps({"version": VERSION, "state": asdict(state)})
    with write_atomically(path) as stream:
        stream.write(save(on_cpu, metadata={"training": position}))


def read_state(path: Path) -> State:
    """The progress in a saved state. Raises FormatError if the file is not one."""
    try:
        with regular_name(path) as name, safetensors.safe_open(name, "pt") as opened:
            metadata = opened.metadata() or {}
        kept = json.loads(metadata["training"])
        if kept["version"] != VERSION:
            raise FormatError(path, "saved by another version", value=kept["version"], accepted=str(VERSION))
        return msgspec.convert(kept["state"], State)
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            path,
            f"is not the saved state of a training ({error}); train again into another folder",
        ) from error


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load a saved state into a model and an optimizer of the same experiment. Raises FormatError."""
    device = next(model.parameters()).device
    with regular_name(path) as name:
        tensors = load_file(name, device=str(device))
    try:
        model.load_state_dict(_below("model.", tensors))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below("optimizer.", tensors).items():
            number, key = name.split(".", 1)
            moments.setdefault(int(number), {})[key] = tensor
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    except (RuntimeError, ValueError, KeyError) as error:
        raise FormatError(path, f"does not fit the experiment ({first_line(error)})") from error


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def draw_curves(curves: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw losses and metrics into a file; False without matplotlib (the extra `figures`) or lines."""
    if not curves:
        return False
    try:
        require_matplotlib()
    except UsageError:
        return False
    validated = [line for line in curves if line.get("metrics")]
    with new_figure(12.4 if validated else 6.2, 3.8) as figure:
        panels = figure.subplots(1, 2 if validated else 1, squeeze=False)[0]
        _draw_losses(panels[0], curves)
        if validated:
            _draw_metrics(panels[1], validated)
        save_figure(figure, path)
    return True


def _draw_losses(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    names = [name for name in curves[-1]["losses"] if name not in ("gradient", "own_cosine")]
    for number, name in enumerate(names):
        _line(axes, curves, [line["losses"].get(name) for line in curves], name, number)
    positive = all(value > 0 for line in curves for name, value in line["losses"].items() if name in names)
    if positive:
        axes.set_yscale("log")
        # Math text is off in these figures, so powers of ten would show as plain text.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=6)
    _finish(axes, "loss (mean since the last point)")


def _draw_metrics(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    """Draw the metrics, and mark the best epoch by their sum."""
    best = max(curves, key=lambda line: line["metric"])
    for number, name in enumerate(_shown(curves[-1]["metrics"])):
        values = [line["metrics"].get(name) for line in curves]
        _line(axes, curves, [None if value is None else 100 * value for value in values], name, number)
    axes.axvline(best["epoch"], color=GREY, linewidth=0.8, linestyle=":", label="best")
    axes.set_ylim(bottom=0)
    _finish(axes, "validation, percent")


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    """As many metrics as there are colours, those at rank 1 first."""
    at_one = [name for name in metrics if "@1," in name or name.endswith("@1")]
    others = [name for name in metrics if name not in at_one]
    return (at_one + others)[: len(COLOURS)]


def _line(axes: Any, curves: Sequence[Mapping[str, Any]], values: list[Any], name: str, number: int) -> None:
    epochs = [line["epoch"] for line in curves]
    axes.plot(
        epochs,
        values,
        color=COLOURS[number % len(COLOURS)],
        linewidth=1.2,
        marker=".",
        markersize=4,
        label=name,
    )


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel("epoch")
    axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
