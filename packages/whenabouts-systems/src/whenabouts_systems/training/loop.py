"""Train a system step by step: batch, `model.loss`, optimizer; then validation, best weights, saved state.

A step's random draws depend only on (seed, step), and the complete state is saved after every epoch. So a
training that was killed and resumed gives exactly the numbers of an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.runs import MemoryRun
from whenabouts_systems.models import new_model
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.candidates import RankedVideos
from whenabouts_systems.ranking.split import encode_split, joined_runs, rank_split
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import DeviceSetup
from whenabouts_systems.training.examples import Examples, seed_of
from whenabouts_systems.training.experiment import Experiment, TrainingSettings
from whenabouts_systems.training.hard_negatives import (
    HardNegatives,
    load_first_stage,
    refuse_other_reading,
)
from whenabouts_systems.training.optimizer import freeze, learning_rate_share, new_optimizer
from whenabouts_systems.training.retrieval_lists import seen_folder
from whenabouts_systems.training.run_folder import STATE, RunFolder, State, Validation, read_state, restore

_SHOWN_QUERIES = 8


class TrainingFault(WhenaboutsError):
    """The loss or the gradient of a step is not finite; the message names the step, terms and queries."""


@dataclass(frozen=True)
class Progress:
    """The progress of a training. `losses` are the last step's; `validation` is set right after one."""

    state: State
    epochs: int
    steps: int
    steps_per_second: float
    seconds_left: float | None
    losses: Mapping[str, float]
    validation: Validation | None = None


Show = Callable[[Progress], None]


class Clock:
    """Measures the time of a training without its interruptions."""

    def __init__(self, seconds: float, step: int) -> None:
        self._before, self._first = seconds, step
        self._started = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of training, before and after the last resume."""
        return self._before + time.monotonic() - self._started

    @property
    def since_saved(self) -> float:
        """Seconds since `saved` was last called, or since the start."""
        return time.monotonic() - self._saved

    def saved(self) -> None:
        """Note that the state was saved now."""
        self._saved = time.monotonic()

    def steps_per_second(self, step: int) -> float:
        """The rate of this process's steps, evaluations included; 0 at the start."""
        spent = time.monotonic() - self._started
        return (step - self._first) / spent if spent > 0 else 0.0


class Training:
    """One training in a locked folder: its settings, its model, and its state.

    `retriever` lists the videos in which validations search for moments.
    """

    def __init__(
        self,
        experiment: Experiment,
        data: ExperimentData,
        folder: RunFolder,
        setup: DeviceSetup,
        show: Show | None = None,
        retriever: RankedVideos | None = None,
    ) -> None:
        self.experiment, self.data = experiment, data
        self.folder, self.setup, self.retriever = folder, setup, retriever
        self.show = show or (lambda _: None)
        self.settings: TrainingSettings = experiment.training
        self.examples: Examples = data.split("train")
        self.batches = self.examples.batch_count(self.settings.batch_size)
        self.steps = self.settings.epochs * self.batches
        self.evaluation_steps = max(1, round(self.settings.evaluate_every * self.batches))
        torch.manual_seed(self.settings.seed)  # for the initial weights
        self.model: Any = new_model(experiment.system, experiment.config(data.inputs)).to(setup.device)
        self.optimizer = new_optimizer(self.settings, self.model)
        freeze(self.model, self.settings.frozen, 0)
        self.state = State()

    def run(self, resume: bool) -> State:
        """Train to the end and return the final state; with `resume` from the folder's state, if any.

        Raises TrainingFault for a loss that is not finite, after saving the state before that step.
        """
        self._begin(resume)
        while not self.state.finished:
            self._epoch()
        return self.state

    def _begin(self, resume: bool) -> None:
        """Prepare folder, weights (saved ones, a first stage's or new ones), negatives and clock."""
        if hasattr(self.model, "check_tokenizer"):
            self.model.check_tokenizer()
        first_stage = self._first_stage()
        if resume:
            self.setup.by_first(lambda: self.folder.check_same(self.experiment))
        elif self.setup.writes:
            self.folder.begin(self.experiment)
        if resume and self.setup.agreed(self.folder.state_path.exists()):
            with self.setup.seen(self.folder.path, (STATE,)) as place:
                self.state = read_state(place / STATE)
                restore(place / STATE, self.model, self.optimizer)
        elif first_stage is None and hasattr(self.model, "begin"):
            self.model.begin()
        if first_stage is not None:
            self._choose_negatives(first_stage)
        self.clock = Clock(self.state.seconds, self.state.step)

    def _first_stage(self) -> Trained | None:
        """Load the weights of the first stage into the model; None if the experiment names none."""
        self.experiment.check_negatives(self.model.config)
        if not self.experiment.data.first_stage:
            return None
        named, seed = self.experiment.data.first_stage, self.settings.seed
        with seen_folder(named, self.folder.path, seed, self.setup) as place:
            first_stage = Trained.from_pretrained(place)
            refuse_other_reading(first_stage.inputs, self.data.inputs)
            load_first_stage(self.model, first_stage, place)
        return first_stage

    def _choose_negatives(self, first_stage: Trained) -> None:
        """Let the first stage choose hard negatives, if the experiment draws any."""
        settings = self.experiment.data.negatives
        if settings.videos or settings.queries:
            device, seed = self.setup.device, self.settings.seed
            negatives = HardNegatives.open(first_stage, self.examples, settings, seed, device)
            self.examples.choose_negatives(negatives)

    def _epoch(self) -> None:
        """Train the rest of the state's epoch."""
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
                self._show(losses)
                if state.step % self.evaluation_steps == 0 or state.step == self.steps:
                    self._evaluate(losses)
                elif self.clock.since_saved > 60 * settings.save_minutes and state.batch < self.batches:
                    self._save()
                if state.finished:
                    return
        state.epoch, state.batch = state.epoch + 1, 0
        if state.epoch >= settings.epochs:
            state.finished = "its one epoch" if settings.epochs == 1 else f"all {settings.epochs} epochs"
        self._save()

    def _step(self, batch: Batch) -> dict[str, float]:
        """Make one step and return its losses. Raises TrainingFault before the step if one is not finite."""
        state, settings = self.state, self.settings
        torch.manual_seed(seed_of(settings.seed, state.step, 0))
        share = learning_rate_share(settings, state.step, self.steps, state.epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * share * group["rate"]
        self.optimizer.zero_grad(set_to_none=True)
        with self.setup.autocast(), self.setup.shared_encoding(self.model):
            losses = self.model.loss(batch.to(self.setup.device))
        if not isinstance(losses, Mapping):
            kind, returned = type(self.model), type(losses).__name__
            raise UsageError(f"{kind.__module__}: loss returns {returned}; expected: name -> scalar tensor")
        total = torch.stack([loss.float() for loss in losses.values()]).sum()
        total.backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        self.setup.average(gradients)
        norm = nn.utils.get_total_norm(gradients)
        watched = getattr(self.model, "watched", {})
        numbers = _floats({**losses, **watched, "total": total, "gradient": norm})
        if not math.isfinite(numbers["total"]) or not math.isfinite(numbers["gradient"]):
            raise self._fault(numbers)
        if settings.optimizer != "bertadam" and settings.max_norm:
            # BertAdam clips each tensor's gradient itself; for AdamW the norm of all gradients is clipped.
            nn.utils.clip_grads_with_norm_(self.model.parameters(), settings.max_norm, norm)
        self.optimizer.step()
        return numbers

    def _evaluate(self, losses: Mapping[str, float]) -> None:
        """Validate if the experiment has a validation, add a line to the curves, and apply `patience`."""
        state = self.state
        validation = self._validate() if self.experiment.data.validation else None
        line = {
            "epoch": _epochs(state.step, self.batches),
            "step": state.step,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "losses": state.means(),
        }
        if validation is None:
            self._save_best({})
        else:
            line |= {"metric": validation.score, "metrics": validation.means}
            state.stale = 0 if state.best_step == state.step else state.stale + 1
        state.end_line(line)
        self._show(losses, validation)
        if self.settings.patience is not None and state.stale > self.settings.patience:
            state.finished = f"no gain in {state.stale} evaluations"
        if state.batch < self.batches or state.finished:
            self._save()

    def _validate(self) -> Validation:
        """Validate the current weights; save them with their answers if they are the best so far."""
        examples = self.data.split("validation")
        validation = validate(self._trained({}), examples, self.settings, self.setup, self.retriever)
        if self.state.best is None or validation.score > self.state.best:
            self.state.best, self.state.best_step = validation.score, self.state.step
            self.state.best_metrics = dict(validation.means)
            self._save_best(validation.means, validation)
        self.model.train()
        return validation

    def _save_best(self, means: Mapping[str, float | None], validation: Validation | None = None) -> None:
        if self.setup.writes:
            self.folder.write_best(self._trained(self._about(means)), validation)

    def _trained(self, about: Mapping[str, Any]) -> Trained:
        return Trained(
            self.experiment.system,
            self.model,
            self.data.inputs,
            self.experiment.decoding,
            self.experiment.data.labels,
            about,
        )

    def _about(self, means: Mapping[str, float | None]) -> dict[str, Any]:
        """The facts on the training for the model card."""
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

    def _save(self) -> None:
        """Save the state for `--resume`."""
        self.state.seconds = self.clock.seconds
        self.clock.saved()
        if self.setup.writes:
            self.folder.keep(self.state, self.model, self.optimizer)

    def _show(self, losses: Mapping[str, float], validation: Validation | None = None) -> None:
        if not self.setup.writes:
            return
        rate = self.clock.steps_per_second(self.state.step)
        left = (self.steps - self.state.step) / rate if rate else None
        self.show(Progress(self.state, self.settings.epochs, self.steps, rate, left, losses, validation))

    def _fault(self, losses: Mapping[str, float]) -> TrainingFault:
        """The error for a step that cannot be made, after saving the state before that step."""
        state = self.state
        self._save()
        wrong = [name for name, value in losses.items() if not math.isfinite(value)]
        names = [f"{name} = {losses[name]}" for name in wrong if name != "total" or len(wrong) == 1]
        rows = self.examples.plan(self.settings.batch_size, self.settings.seed, state.epoch)[state.batch]
        ids = (self.examples.queries[row].id for row in self.examples.query[rows].tolist())
        queries = list(dict.fromkeys(ids))
        shown = ", ".join(queries[:_SHOWN_QUERIES]) + (", …" if len(queries) > _SHOWN_QUERIES else "")
        return TrainingFault(
            f"step {state.step + 1} (epoch {state.epoch + 1}, batch {state.batch + 1}): {', '.join(names)} "
            f"is not finite; its {len(queries)} queries: {shown}. The state before it is saved in "
            f"{self.folder.path}. A smaller training.learning_rate may help, or precision fp32"
        )


def validate(
    trained: Trained,
    examples: Examples,
    settings: TrainingSettings,
    setup: DeviceSetup | None = None,
    retriever: RankedVideos | None = None,
) -> Validation:
    """The answers to a split's queries, evaluated with its judgements.

    `retriever`, if given, chooses the videos. Each of several processes (`setup`) encodes and ranks a part;
    process 0 has the answers, all have the numbers.
    """
    if setup is None or setup.processes == 1:
        return _measured(rank_split(trained, examples, retriever=retriever), examples, settings)
    complete: list[Validation] = []

    def measure() -> Validation:
        complete.append(_measured(joined_runs(parts), examples, settings))
        return dataclasses.replace(complete[0], answers=None, evaluation=None)

    with setup.shared_encoding(trained.model):
        corpus = encode_split(trained, examples)
    queries = setup.own_part(len(examples.queries))
    parts = setup.brought(rank_split(trained, examples, corpus=corpus, queries=queries, retriever=retriever))
    # All processes need the same score, or they would stop at different steps.
    numbers = setup.by_first(measure)
    return complete[0] if complete else numbers


def _measured(answers: MemoryRun, examples: Examples, settings: TrainingSettings) -> Validation:
    """Evaluate a run with a split's judgements."""
    protocol = settings.protocol or None
    evaluation = evaluate(examples.annotations, answers, protocol=protocol)
    others = [name for name in settings.metrics if name not in evaluation.metrics]
    if others:
        names = [*evaluation.metrics, *others]
        evaluation = evaluate(examples.annotations, answers, names, protocol=protocol)
    means = {name: None if math.isnan(value) else value for name, value in evaluation.means().items()}
    score = _sum(means, settings.metrics, examples)
    return Validation(score, means, settings.metrics, answers, evaluation)


def _sum(means: Mapping[str, float | None], metrics: tuple[str, ...], examples: Examples) -> float:
    total = 0.0
    for name in metrics:
        value = means[name]
        if value is None:
            raise UsageError(
                f"{examples.name}: {name} applies to none of its queries, so it cannot choose the best "
                "weights; name another metric with --set training.metric=…"
            )
        total += value
    return total


def _epochs(step: int, batches: int) -> float:
    """The number of epochs in `step` steps, an int if it is whole."""
    return step // batches if step % batches == 0 else round(step / batches, 3)


def _floats(values: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalar tensors as floats, fetched from the device in one transfer."""
    numbers = torch.stack([value.detach().float() for value in values.values()]).tolist()
    return dict(zip(values, numbers, strict=True))
