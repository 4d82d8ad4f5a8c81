"""A training from its settings to its folder: claim it, open the material, train, write down what it was."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import whenabouts
from whenabouts.formats.opened import written
from whenabouts.training.experiment import Experiment
from whenabouts.training.loop import train
from whenabouts.training.machine import Machine
from whenabouts.training.material import Material
from whenabouts.training.outcome import Outcome, seeds_to_json
from whenabouts.training.progress import Show
from whenabouts.training.retrieval_lists import choose_retrieved
from whenabouts.training.run_folder import EXPERIMENT, RunFolder
from whenabouts.training.state import read_state
from whenabouts.types import UsageError

_PACKAGES = ("torch", "numpy", "safetensors", "huggingface-hub", "lightning-fabric")
SEEDS = "seeds.json"


def with_data(experiment: Experiment, folder: str | Path) -> Experiment:
    """The experiment with its annotations in that folder."""
    place = Path(folder).expanduser().resolve()
    if not place.is_dir():
        raise UsageError(f"{folder}: is no folder; give the folder of the annotations (--data)")
    return replace(experiment, data=replace(experiment.data, folder=str(place)))


def start(
    experiment: Experiment,
    features: str | Path,
    out: str | Path,
    machine: Machine,
    *,
    resume: bool = False,
    show: Show | None = None,
    tell: Callable[[str], None] | None = None,
) -> Outcome:
    """One training, or what is left of it; `tell` hears sentences of what was found before it begins.

    With `resume`, a training that was broken off before anything was written begins.
    Raises UsageError where the folder `out` is used and `resume` is not asked for, and whatever
    `Material.open` finds wrong, before the first step.
    """
    folder = RunFolder(Path(out))
    resume = resume and not machine.agreed(folder.is_untouched)
    with folder.claimed(resume=resume) if machine.writes else folder.shared():
        if resume:
            folder.check_same(experiment)
            if folder.state_path.exists() and (state := read_state(folder.state_path)).finished:
                return Outcome.of(experiment, state, folder.path)
        with Material.open(
            experiment.data, experiment.features, features, splits=("train", "validation")
        ) as material:
            say = tell if tell and machine.writes else _silent
            choose_retrieved(experiment, material, folder.path, machine.device, say)
            for line in material.summary():
                say(line)
            about = _about(experiment, material, Path(features), machine)
            if machine.writes:
                folder.write_about(about)
            outcome = train(experiment, material, folder, machine, resume=resume, show=show)
        if machine.writes:
            folder.write_about({**about, **outcome.to_json()})
        return outcome


def start_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    features: str | Path,
    out: str | Path,
    machine: Machine,
    *,
    resume: bool = False,
    show: Show | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """A training for each seed, in a folder of its own below `out`, and `seeds.json` beside them.

    With `resume`, those that are done are only read, one that was broken off goes on, the others begin.
    """
    # A wrong one is refused before any begins.
    experiments = [experiment.with_seed(seed) for seed in different_seeds(seeds)]
    outcomes, summary = [], tell
    for seed, seeded in zip(seeds, experiments, strict=True):
        place = Path(out) / f"seed-{seed}"
        begun = resume and (place / EXPERIMENT).exists()
        if tell and machine.writes:
            tell(f"seed {seed}")
        outcomes.append(start(seeded, features, place, machine, resume=begun, show=show, tell=summary))
        summary = None
    if machine.writes:
        write_json(Path(out) / SEEDS, seeds_to_json(outcomes))
    return outcomes


def different_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """The seeds. Raises UsageError where one comes twice."""
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds {', '.join(map(str, seeds))}: one comes twice")
    return seeds


def write_json(path: Path, value: Any) -> None:
    """Write a value as a file of JSON."""
    import json

    with written(path) as stream:
        stream.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _silent(_: str) -> None:
    """Nobody listens."""


def _about(experiment: Experiment, material: Material, features: Path, machine: Machine) -> dict[str, Any]:
    """What `run.json` says before the training ends."""
    import torch

    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "simulated": experiment.simulated,
        "seed": experiment.training.seed,
        "features": str(features.expanduser().resolve()),
        "machine": {
            "device": machine.described,
            "processes": machine.processes,
            "threads": torch.get_num_threads(),
            "system": platform.platform(),
        },
        "versions": {
            "whenabouts": whenabouts.__version__,
            "python": platform.python_version(),
            **{name: told for name in _PACKAGES if (told := _version(name))},
        },
        "material": material.to_json(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
