"""The way of an example: material -> `Batch` -> `model.loss` -> optimizer -> validation -> the best, kept.

What a step draws depends on (seed, step) alone, and the state is kept whole at every epoch's end, so that a
training that was killed goes on to the very numbers of an unbroken one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from whenabouts.models import new_model
from whenabouts.models.protocol import Batch
from whenabouts.models.trained import Trained
from whenabouts.training.data import Examples, ExperimentData
from whenabouts.training.devices import DeviceSetup
from whenabouts.training.experiment import Experiment, TrainingSettings
from whenabouts.training.hard_negatives import HardNegatives, load_first_stage, open_first_stage
from whenabouts.training.optimizer import freeze, new_optimizer
from whenabouts.training.progress import Clock, Progress, Show
from whenabouts.training.retrieval_lists import folder_of
from whenabouts.training.run_folder import RunFolder
from whenabouts.training.schedule import SCHEDULES, after_milestones
from whenabouts.training.seeds import seed_step, seed_weights
from whenabouts.training.state import State, read_state, restore
from whenabouts.training.validation import Validation, validate
from whenabouts.types import WhenaboutsError

_SHOWN_QUERIES = 8


class TrainingFault(WhenaboutsError):
    """A step whose loss or gradient is no number; the message names step, terms and queries."""


def train(
    experiment: Experiment,
    material: ExperimentData,
    folder: RunFolder,
    machine: DeviceSetup,
    *,
    resume: bool = False,
    show: Show | None = None,
) -> State:
    """Train as an experiment says, into a folder that is claimed; the state at the end.

    With `resume`, a training that the folder holds goes on; one that is finished is only told. Raises
    TrainingFault for a loss that is no number; the state before that step is kept then.
    """
    return _Training(experiment, material, folder, machine, show or (lambda _: None)).run(resume)


class _Training:
    """One training: what stays the same, and where it stands."""

    def __init__(
        self,
        experiment: Experiment,
        material: ExperimentData,
        folder: RunFolder,
        machine: DeviceSetup,
        show: Show,
    ) -> None:
        self.experiment, self.material = experiment, material
        self.folder, self.machine, self.show = folder, machine, show
        self.settings: TrainingSettings = experiment.training
        self.examples: Examples = material.split("train")
        self.batches = self.examples.batch_count(self.settings.batch_size)
        self.steps = self.settings.epochs * self.batches
        self.evaluation_steps = max(1, round(self.settings.evaluate_every * self.batches))
        seed_weights(self.settings.seed)
        self.model: Any = new_model(experiment.system, experiment.config(material.inputs)).to(machine.device)
        self.optimizer = new_optimizer(
            self.settings.optimizer,
            self.model,
            learning_rate=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
            max_norm=self.settings.max_norm,
            rates=self.settings.rates,
            betas=(self.settings.betas[0], self.settings.betas[1]),
        )
        freeze(self.model, self.settings.frozen, 0)
        self.state = State()

    def run(self, resume: bool) -> State:
        """The whole training, or what is left of it."""
        self._begin(resume)
        while not self.state.finished:
            self._epoch()
        if self.machine.writes:
            self.folder.draw_curves(self.state)
        return self.state

    def _begin(self, resume: bool) -> None:
        first_stage = self._first_stage()
        if resume:
            self.folder.check_same(self.experiment)
        elif self.machine.writes:
            self.folder.begin(self.experiment)
        if resume and self.folder.state_path.exists():
            self.state = read_state(self.folder.state_path)
            restore(self.folder.state_path, self.model, self.optimizer)
        elif first_stage is None and hasattr(self.model, "begin"):
            self.model.begin()
        self._choose_negatives(first_stage)
        self.clock = Clock(self.state.seconds, self.state.step)

    def _first_stage(self) -> Trained | None:
        """The training that this one goes on from, where there is one; its weights are then taken."""
        data = self.experiment.data
        self.experiment.check_negatives(self.model.config)
        if not data.first_stage:
            return None
        place = folder_of(data.first_stage, self.folder.path, self.settings.seed)
        first_stage = open_first_stage(place, self.settings.seed)
        load_first_stage(self.model, first_stage, place)
        return first_stage

    def _choose_negatives(self, first_stage: Trained | None) -> None:
        """Have the first stage choose hard negatives, where there is one and some are asked for."""
        wanted = self.experiment.data.negatives
        if first_stage is not None and (wanted.videos or wanted.queries):
            device, seed = self.machine.device, self.settings.seed
            chosen = HardNegatives.open(first_stage, self.examples, wanted, seed, device)
            self.examples.choose_negatives(chosen)

    def _epoch(self) -> None:
        """What is left of the state's epoch."""
        state, settings = self.state, self.settings
        self.model.train()
        freeze(self.model, settings.frozen, state.epoch)
        batches = self.examples.batches(
            size=settings.batch_size,
            epoch=state.epoch,
            seed=settings.seed,
            epochs=settings.epochs,
            first=state.batch,
        )
        with contextlib.closing(batches):  # type: ignore[type-var]
            for batch in batches:
                losses = self._step(batch)
                state.count(losses)
                self._tell(losses)
                if state.step % self.evaluation_steps == 0 or state.step == self.steps:
                    self._end_line(losses)
                elif self.clock.since_kept > 60 * settings.save_minutes and state.batch < self.batches:
                    self._keep()
                if state.finished:
                    return
        state.epoch, state.batch = state.epoch + 1, 0
        if state.epoch >= settings.epochs:
            state.finished = "its one epoch" if settings.epochs == 1 else f"all {settings.epochs} epochs"
        self._keep()

    def _step(self, batch: Batch) -> dict[str, float]:
        """The losses of one step, which is made unless they are no numbers."""
        state, settings = self.state, self.settings
        seed_step(settings.seed, state.step)
        share = SCHEDULES[settings.schedule](state.step, self.steps, settings.warmup)
        share *= after_milestones(state.epoch, settings.milestones, settings.milestone_factor)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * share * group["rate"]
        self.optimizer.zero_grad(set_to_none=True)
        with self.machine.autocast(), self.machine.shared_encoding(self.model):
            losses = self.model.loss(batch.to(self.machine.device))
        total = torch.stack([one.float() for one in losses.values()]).sum()
        total.backward()  # type: ignore[no-untyped-call]
        gradients = [one.grad for one in self.model.parameters() if one.grad is not None]
        self.machine.average(gradients)
        norm = nn.utils.get_total_norm(gradients)
        told = _floats({**losses, "total": total, "gradient": norm})
        if not math.isfinite(told["total"]) or not math.isfinite(told["gradient"]):
            raise self._fault(told)
        if settings.optimizer == "adamw" and settings.max_norm:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), settings.max_norm, norm)
        self.optimizer.step()
        return told

    def _end_line(self, losses: Mapping[str, float]) -> None:
        """A line of the curves, with the numbers of the validation where there is one; stop if it is time."""
        state = self.state
        found = self._validate() if self.experiment.data.validation else None
        line = {
            "epoch": _epochs(state.step, self.batches),
            "step": state.step,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "losses": state.means(),
        }
        if found is None:
            self._save_best({})
        else:
            line |= {"metric": found.score, "metrics": found.means}
            state.stale = 0 if state.best_step == state.step else state.stale + 1
        state.end_line(line)
        self._tell(losses, found)
        if self.settings.patience is not None and state.stale > self.settings.patience:
            state.finished = f"no gain in {state.stale} evaluations"
        if state.batch < self.batches or state.finished:
            self._keep()

    def _validate(self) -> Validation:
        """The validation of the weights as they are; the best are kept with what they answered."""
        found: Validation | None = None
        if self.machine.writes:
            found = validate(self._trained({}), self.material.split("validation"), self.settings)
        if self.machine.processes > 1:
            numbers = self.machine.agreed(None if found is None else found.without_answers())
            found = found or numbers
        assert found is not None
        if self.state.best is None or found.score > self.state.best:
            self.state.best, self.state.best_step = found.score, self.state.step
            self.state.best_metrics = dict(found.means)
            self._save_best(found.means, found)
        self.model.train()
        return found

    def _save_best(self, means: Mapping[str, float | None], found: Validation | None = None) -> None:
        if self.machine.writes:
            trained = self._trained(self._about(means))
            self.folder.write_best(trained, found)

    def _trained(self, about: Mapping[str, Any]) -> Trained:
        return Trained(
            self.experiment.system,
            self.model,
            self.material.inputs,
            self.experiment.decoding,
            self.experiment.data.labels,
            about,
        )

    def _about(self, means: Mapping[str, float | None]) -> dict[str, Any]:
        """What the model card says of the training."""
        return {
            "title": self.experiment.title,
            "simulated": self.experiment.simulated,
            "metrics": dict(means),
            "epochs": f"{_epochs(self.state.step, self.batches):g} of {self.settings.epochs}",
            **{
                name: value
                for name, value in dataclasses.asdict(self.settings).items()
                if name not in ("epochs", "save_minutes", "protocol")
            },
        }

    def _keep(self) -> None:
        """Keep the state, so that nothing before it is lost."""
        self.state.seconds = self.clock.seconds
        self.clock.kept()
        if self.machine.writes:
            self.folder.keep(self.state, self.model, self.optimizer)

    def _tell(self, losses: Mapping[str, float], found: Validation | None = None) -> None:
        if not self.machine.writes:
            return
        rate = self.clock.steps_per_second(self.state.step)
        left = (self.steps - self.state.step) / rate if rate else None
        self.show(Progress(self.state, self.settings.epochs, self.steps, rate, left, losses, found))

    def _fault(self, losses: Mapping[str, float]) -> TrainingFault:
        """The error for a step that cannot be made; keeps the state before it."""
        state = self.state
        self._keep()
        wrong = [name for name, value in losses.items() if not math.isfinite(value)]
        names = [f"{name} = {losses[name]}" for name in wrong if name != "total" or len(wrong) == 1]
        rows = self.examples.plan(self.settings.batch_size, self.settings.seed, state.epoch)[state.batch]
        queries = list(
            dict.fromkeys(self.examples.queries[row].id for row in self.examples.query[rows].tolist())
        )
        some = ", ".join(queries[:_SHOWN_QUERIES]) + (", …" if len(queries) > _SHOWN_QUERIES else "")
        return TrainingFault(
            f"step {state.step + 1} (epoch {state.epoch + 1}, batch {state.batch + 1}): {', '.join(names)} "
            f"is no number; its {len(queries)} queries: {some}. The state before it is kept in "
            f"{self.folder.path}. A smaller training.learning_rate may help, or precision fp32"
        )


def _epochs(step: int, batches: int) -> float:
    """How many epochs so many steps are; a whole number where it is one."""
    return step // batches if step % batches == 0 else round(step / batches, 3)


def _floats(values: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalars as numbers, fetched from the device at once."""
    told = torch.stack([one.detach().float() for one in values.values()]).tolist()
    return dict(zip(values, told, strict=True))
