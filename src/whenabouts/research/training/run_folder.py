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

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts import formats
from whenabouts.formats.files import write_atomically
from whenabouts.formats.runs import MemoryRun
from whenabouts.models.staged import SYSTEM
from whenabouts.models.trained import CONFIG, WEIGHTS
from whenabouts.types import UsageError, WhenaboutsError

if TYPE_CHECKING:
    import torch

    from whenabouts.models.trained import Trained
    from whenabouts.research.training.experiment import Experiment
    from whenabouts.research.training.loop import Validation
    from whenabouts.research.training.state import State

EXPERIMENT, STATE, ABOUT = "experiment.toml", "state.safetensors", "run.json"
CURVES, PICTURE = "curves.jsonl", "curves.png"
RUN, QUERIES = "validation.run.jsonl", "validation.queries.jsonl"
LOCK = ".lock"
_OF_A_TRAINING = (STATE, EXPERIMENT, WEIGHTS, CONFIG, SYSTEM)


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
            handle = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        try:
            try:
                # The system lets go of it when the process dies, however it dies.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{self.path}: another training is writing here") from None
            try:
                yield
            except WhenaboutsError:
                if not resume and not self.state_path.exists():
                    self._leave(is_new)
                raise
        finally:
            os.close(handle)

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
        from whenabouts.research.training.experiment import load_experiment

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

    def keep(self, state: State, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Keep everything that `--resume` needs, and the curves."""
        from whenabouts.research.training.state import save_state

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
        from whenabouts.research.training.curves import draw

        draw(state.curves, self.path / PICTURE)

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
