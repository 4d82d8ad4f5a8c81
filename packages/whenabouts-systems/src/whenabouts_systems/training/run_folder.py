"""The folder of a training: what it holds, and that two trainings never share one.

| file | what |
| --- | --- |
| `model.safetensors`, `config.json`, `README.md` | the best system so far (`Trained.from_pretrained`) |
| `experiment.toml` | all settings, defaults included |
| `run.json` | versions, seed, machine, what was read, how it ended |
| `curves.jsonl`, `curves.png` | losses, learning rate and metrics along the training |
| `validation.run.jsonl`, `validation.queries.jsonl` | answers of the best system, and each query's values |
| `state.safetensors` | where the training stands, for `--resume` |
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
from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.intake.opening import regular_name
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
    """How the weights rank the validation split.

    `score` is the sum of the metrics of `measure`; `means` holds these and the protocol's others.
    """

    score: float
    means: Mapping[str, float | None]
    measure: tuple[str, ...]
    answers: MemoryRun | None = None
    evaluation: Evaluation | None = None


@dataclass
class State:
    """The position of a training: `batch` of `epoch` is the next, `step` counts all (from 0).

    `sums` and `counted` are of the losses since the last line of `curves`. `best` is the largest value of
    the experiment's metric, at `best_step`; `stale` counts evaluations since. `finished` says why it ended,
    "" while it goes on. `seconds` were spent, evaluations included.
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
        """Note the losses of a step that was made."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.counted += 1
        self.step += 1
        self.batch += 1

    def means(self) -> dict[str, float]:
        """Mean losses since the last line of the curves."""
        return {name: total / max(1, self.counted) for name, total in self.sums.items()}

    def end_line(self, line: Mapping[str, Any]) -> None:
        """Put a line behind the curves and count losses anew."""
        self.curves.append(dict(line))
        self.sums, self.counted = {}, 0


@dataclass(frozen=True)
class RunFolder:
    """The files of one training."""

    path: Path

    @contextmanager
    def claimed(self, *, resume: bool) -> Iterator[None]:
        """Hold the folder for one training.

        Raises UsageError where another training writes to it, where it is used and `resume` is not asked
        for, and where there is nothing to resume, or the state that goes with the curves is gone. What is
        refused before a state is kept leaves the folder as it was.
        """
        if not resume:
            self.refuse_used()
        if resume and not (self.path / EXPERIMENT).exists():
            raise UsageError(f"{self.path}: there is no training here to resume; train without --resume")
        if resume and (self.path / CURVES).exists() and not self.state_path.exists():
            raise UsageError(
                f"{self.path}: its {STATE} is gone, so that this training cannot go on; restore it, or name "
                "another folder with --out and train without --resume"
            )
        is_new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = hold(self.path, LOCK)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        if held is None:
            raise UsageError(f"{self.path}: another training is writing here")
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
        """Whether a training claimed it and was broken off before it wrote down what it trains."""
        there = (self.path / LOCK).exists()
        return there and not any((self.path / name).exists() for name in _OF_A_TRAINING)

    def refuse_used(self) -> None:
        """Raise UsageError where the folder holds a training, or one in stages."""
        used = [name for name in _OF_A_TRAINING if (self.path / name).exists()]
        if used:
            raise UsageError(
                f"{self.path}: holds {used[0]} of another training; go on with it with --resume, or name "
                "another folder with --out"
            )

    def refuse_training(self) -> None:
        """Raise UsageError where the folder holds a training that is no stage of another."""
        used = [name for name in _OF_A_TRAINING if name != SYSTEM and (self.path / name).exists()]
        if used:
            raise UsageError(
                f"{self.path}: holds {used[0]} of a training without stages; name another folder with --out"
            )

    def _leave(self, is_new: bool) -> None:
        """Take away what a refused training wrote down of itself, and the folder if it made it."""
        for name in (EXPERIMENT, ABOUT):
            (self.path / name).unlink(missing_ok=True)
        if is_new and [file.name for file in self.path.iterdir()] == [LOCK]:
            (self.path / LOCK).unlink()
            self.path.rmdir()

    def begin(self, experiment: Experiment) -> None:
        """Write down what is about to be trained."""
        self._write(EXPERIMENT, experiment.to_toml())

    def check_same(self, experiment: Experiment) -> None:
        """Raise UsageError, naming the first setting, where the folder's experiment is another."""
        # Read as an experiment, a training of an earlier version has the defaults of what is new since.
        before = _flat(load_experiment(self.path / EXPERIMENT).tables())
        after = experiment.tables()
        for name, now in _flat(after).items():
            was = _comparable(before.get(name))
            if was != _comparable(now):
                raise UsageError(
                    f"{self.path}: its training has {name} = {was!r}, this one {_comparable(now)!r}; "
                    "--resume goes on with the same settings, other ones need another --out"
                )

    @property
    def state_path(self) -> Path:
        """Where the state is kept."""
        return self.path / STATE

    def keep(self, state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Keep everything that `--resume` needs, and the curves."""
        save_state(self.state_path, state, model, optimizer)
        self._write_lines(CURVES, state.curves)

    def write_best(self, trained: Trained, validation: Validation | None) -> None:
        """The best system so far, what it answered in the validation, and the values of each query."""
        trained.save_pretrained(self.path)
        if validation is not None and validation.answers and validation.evaluation:
            formats.write_run(_one_list(validation.answers), self.path / RUN, "jsonl")
            self._write_lines(QUERIES, validation.evaluation.per_query())

    def draw_curves(self, state: State) -> None:
        """A picture of the curves, where matplotlib is installed."""
        draw_curves(state.curves, self.path / PICTURE)

    def write_about(self, about: Mapping[str, Any]) -> None:
        """What a reader of the numbers must know of the run."""
        write_json(self.path / ABOUT, about)

    def _write_lines(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        self._write(name, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    def _write(self, name: str, text: str) -> None:
        with write_atomically(self.path / name) as stream:
            stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value as a file of JSON."""
    with write_atomically(path) as stream:
        stream.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _one_list(answers: MemoryRun) -> MemoryRun:
    """The moments of the corpus, or what there is where a system does not find any: a file holds one list."""
    task = "VCMR" if "VCMR" in answers.tasks else answers.tasks[0]
    return MemoryRun(answers.name, {task: answers.lists[task]})


def _flat(tables: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested tables as one: "training.epochs" -> value."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{path}{key}.")
        else:
            flat[path + key] = value
    return flat


def _comparable(value: Any) -> Any:
    """A value as it comes back from a TOML file."""
    if value is None:
        return "none"
    return [_comparable(item) for item in value] if isinstance(value, list | tuple) else value


def save_state(path: Path, state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write everything that a training needs to go on; the file is whole or the one before."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in moments.items()}
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    position = json.dumps({"version": VERSION, "state": asdict(state)})
    with write_atomically(path) as stream:
        stream.write(save(on_cpu, metadata={"training": position}))


def read_state(path: Path) -> State:
    """The position of a kept training. Raises FormatError for a file that is none."""
    try:
        with regular_name(path) as name, safetensors.safe_open(name, "pt") as opened:
            metadata = opened.metadata() or {}
        kept = json.loads(metadata["training"])
        if kept["version"] != VERSION:
            raise FormatError(path, "kept by another version", value=kept["version"], accepted=str(VERSION))
        return msgspec.convert(kept["state"], State)
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            path,
            f"is no kept state of a training ({error}); it cannot go on: train again, into another folder",
        ) from error


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put what was kept back into a model and an optimizer of the same experiment."""
    device = next(model.parameters()).device
    with regular_name(path) as name:
        tensors = load_file(name, device=str(device))
    try:
        model.load_state_dict(_below("model.", tensors))
        kept: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below("optimizer.", tensors).items():
            number, key = name.split(".", 1)
            kept.setdefault(int(number), {})[key] = tensor
        optimizer.load_state_dict({"state": kept, "param_groups": optimizer.state_dict()["param_groups"]})
    except (RuntimeError, ValueError, KeyError) as error:
        raise FormatError(path, f"does not fit the experiment ({str(error).splitlines()[0]})") from error


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def draw_curves(curves: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Write a picture of losses and metrics; False without matplotlib (the extra `figures`) or lines."""
    if not curves:
        return False
    try:
        require_matplotlib()
    except UsageError:
        return False
    validated = [line for line in curves if line.get("metrics")]
    with new_figure(9.2 if validated else 4.8, 3.8) as figure:
        panels = figure.subplots(1, 2 if validated else 1, squeeze=False)[0]
        _draw_losses(panels[0], curves)
        if validated:
            _draw_metrics(panels[1], validated)
        save_figure(figure, path)
    return True


def _draw_losses(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    names = [name for name in curves[-1]["losses"] if name != "gradient"]
    for number, name in enumerate(names):
        _line(axes, curves, [line["losses"].get(name) for line in curves], name, number)
    positive = all(value > 0 for line in curves for name, value in line["losses"].items() if name in names)
    if positive:
        axes.set_yscale("log")
        # Formulas are off in this picture, and so are powers of ten.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=6)
    _finish(axes, "loss (mean since the last point)")


def _draw_metrics(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    """The metrics of the measure, and what it is: their sum."""
    best = max(curves, key=lambda line: line["metric"])
    for number, name in enumerate(_shown(curves[-1]["metrics"])):
        values = [line["metrics"].get(name) for line in curves]
        _line(axes, curves, [None if value is None else 100 * value for value in values], name, number)
    axes.axvline(best["epoch"], color=GREY, linewidth=0.8, linestyle=":", label="best")
    axes.set_ylim(bottom=0)
    _finish(axes, "validation, percent")


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    """Some metrics, such that one can tell their lines apart."""
    first = [name for name in metrics if "@1," in name or name.endswith("@1")]
    rest = [name for name in metrics if name not in first]
    return (first + rest)[: len(COLOURS)]


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
    axes.legend(frameon=False, fontsize=7)
