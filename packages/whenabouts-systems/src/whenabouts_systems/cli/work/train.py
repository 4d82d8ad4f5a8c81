"""`whenabouts train`: train by an experiment, and show progress and results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from whenabouts.cli.terminal import console, for_terminal, print_json, wants_json
from whenabouts.types import UsageError, number_of
from whenabouts_systems.training.devices import open_device, use_large_pages
from whenabouts_systems.training.experiment import Experiment, experiment_file, has_stages, load_experiment
from whenabouts_systems.training.launch import TrainingResult, launch, launch_seeds, seeds_to_json, spreads
from whenabouts_systems.training.loop import Progress
from whenabouts_systems.training.stages import StagedExperiment, StagedResult, launch_stages, load_stages

Loaded = TypeVar("Loaded", Experiment, StagedExperiment)


def run(options: argparse.Namespace) -> int:
    """Train, and show the results."""
    use_large_pages()
    options.experiment = experiment_file(options.experiment)
    options.out = Path(options.out).expanduser()
    if has_stages(options.experiment):
        return _run_stages(options)
    experiment, seeds = _loaded(load_experiment, options), _seeds(options)
    setup = open_device(options.device, options.processes, experiment.training.precision)
    with _Display(setup.writes) as display:
        more = {"resume": options.resume, "show": display.show, "log": display.log}
        if seeds is None:
            results = [launch(experiment, options.features, options.out, setup, **more)]
        else:
            results = launch_seeds(experiment, seeds, options.features, options.out, setup, **more)
    if setup.writes:
        _print(results, options, of_seeds=seeds is not None)
    return 0


def _run_stages(options: argparse.Namespace) -> int:
    """Train one stage after the other, and show the results."""
    staged, seeds = _loaded(load_stages, options), _seeds(options)
    setup = open_device(options.device, options.processes)
    with _Display(setup.writes) as display:
        result = launch_stages(
            staged,
            options.features,
            options.out,
            setup,
            seeds=seeds,
            resume=options.resume,
            show=display.show,
            log=display.log,
        )
    if setup.writes and wants_json(options):
        print_json(result.to_json())
    elif setup.writes:
        _show_stages(result)
    return 0


def _loaded(load: Callable[[Path, list[str]], Loaded], options: argparse.Namespace) -> Loaded:
    """The experiment or the stages of the command's file, with its settings and folder of annotations."""
    precision: list[str] = [f"training.precision={options.precision}"] if options.precision else []
    loaded = load(options.experiment, [*options.settings, *precision])
    return loaded.with_data(options.data) if options.data else loaded


def _seeds(options: argparse.Namespace) -> list[int] | None:
    if options.seeds is None:
        return None
    try:
        return [int(part) for part in options.seeds.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {options.seeds!r}: accepted: whole numbers, such as 1,2,3") from None


def _print(results: list[TrainingResult], options: argparse.Namespace, *, of_seeds: bool) -> None:
    if wants_json(options):
        print_json(seeds_to_json(results) if of_seeds else results[0].to_json())
    else:
        _show(results, of_seeds)


def _show_stages(result: StagedResult) -> None:
    out = console()
    for name, results in result.stages.items():
        out.print(for_terminal(f"stage {name}"), style="dim")
        _show(list(results), result.of_seeds)
    out.print(for_terminal(f"{result.title}: {result.folder}"), soft_wrap=True)


def _show(results: list[TrainingResult], of_seeds: bool) -> None:
    from rich.table import Table

    out = console()
    for result in results:
        simulated = " (simulated features)" if result.simulated else ""
        minutes, seconds = divmod(round(result.seconds), 60)
        out.print(for_terminal(f"{result.title}{simulated}, seed {result.seed}"), style="bold")
        steps = f"{number_of(result.steps, 'step')} in {minutes} min {seconds:02d} s; ended: {result.reason}"
        best = "" if result.score is None else f"; best after step {result.step:,}"
        out.print(for_terminal(steps + best), style="dim", soft_wrap=True)
        out.print(for_terminal(f"written: {result.folder}"), style="dim", soft_wrap=True)
    metrics = spreads(results)
    if not metrics:
        return
    table = Table("metric (validation)", box=None, pad_edge=False)
    table.add_column("mean ± deviation, %" if of_seeds else "%", justify="right")
    for name, spread in metrics.items():
        table.add_row(name, spread.percent)
    out.print(table)


class _Display:
    """The progress on standard error: a bar if it is a terminal, and a line for each evaluation."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._console = console(sys.stderr)
        self._bar: Any = None
        self._job: Any = None

    def __enter__(self) -> _Display:
        if self._is_shown and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.fields[epoch]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}", style="dim"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt:
            self.log("the same command with --resume continues from the last saved state")

    def log(self, line: str) -> None:
        """Print a line about the data."""
        if self._is_shown:
            self._console.print(for_terminal(line), style="dim", soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """Show a step or an evaluation."""
        if progress.validation is not None:
            self._console.print(for_terminal(_line(progress)), soft_wrap=True)
        if self._bar is None:
            return
        if self._job is None:
            self._job = self._bar.add_task("", total=progress.steps, epoch="", rate="")
        loss = progress.losses["total"]
        self._bar.update(
            self._job,
            completed=progress.state.step,
            total=progress.steps,
            epoch=f"epoch {min(progress.state.epoch + 1, progress.epochs)}/{progress.epochs}",
            rate=f"loss {loss:.4f}, {progress.steps_per_second:.2f} steps/s, {_left(progress.seconds_left)}",
        )


def _line(progress: Progress) -> str:
    """An evaluation as a line of text."""
    validation, state = progress.validation, progress.state
    assert validation is not None
    line = state.curves[-1]
    best = "  best so far" if state.best_step == state.step else ""
    parts = " + ".join(f"{name} {100 * (validation.means[name] or 0):.2f}" for name in validation.measure)
    total = f" = {100 * validation.score:.2f}" if len(validation.measure) > 1 else ""
    return (
        f"epoch {line['epoch']}/{progress.epochs}  step {state.step}  loss {line['losses']['total']:.4f}  "
        f"{parts}{total}{best}  ({progress.steps_per_second:.2f} steps/s, {_left(progress.seconds_left)})"
    )


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min left"
    return f"{minutes} min {rest:02d} s left" if minutes else f"{rest} s left"
