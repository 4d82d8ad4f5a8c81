"""`whenabouts train`: an experiment and features to a trained system."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from whenabouts.cli.options import (
    add_device,
    add_format,
    add_verb,
    console,
    for_terminal,
    print_json,
    wants_json,
)
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    from whenabouts_systems.training.experiment import Experiment
    from whenabouts_systems.training.launch import TrainingResult
    from whenabouts_systems.training.loop import Progress
    from whenabouts_systems.training.stages import StagedExperiment, StagedResult

_EPILOG = """\
examples:
  whenabouts train charades_sta/xml --features features --data annotations --out run
  whenabouts train my.toml --features features --out run --set training.epochs=3 --set model.hidden=64
  whenabouts train my.toml --features features --out run --resume        after Ctrl-C or a crash
  whenabouts train my.toml --features features --out runs --seeds 1,2,3  mean and deviation
  whenabouts train tvr/prem --features features --out run  two stages, one after the other

The folder of --out then holds the best system (whenabouts run --checkpoint, whenabouts search --model), all
settings, the curves, and the answers of the validation with each query's values. docs/training.md has more.
exit codes: 0 trained, 2 wrong use or bad input (named before the first step)"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "train",
        run,
        description="Train a system as an experiment says: a TOML file with every setting.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="the experiment: a TOML file, or the name of one that is shipped, such as tvr/xml",
    )
    parser.add_argument("--features", metavar="DIR", required=True, help="folder of the feature files")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the run; made if need be")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the annotations (default: what [data] says, else --features)"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="another value for a setting, such as training.epochs=3 (with stages also "
        "prem_localizer.training.epochs=3); may be given again",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the training that stopped in --out")
    parser.add_argument("--seeds", metavar="N,N,…", help="train once with each, and show mean and deviation")
    add_device(parser)
    parser.add_argument(
        "--processes",
        metavar="N",
        type=int,
        default=1,
        help="share each batch among so many devices, or processes on the CPU (needs lightning-fabric)",
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        help="numbers of the networks: fp32 or bf16 (default: what the experiment says)",
    )
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Train and show."""
    # PyTorch's threads wait for one another in a loop of some ms, which on a busy machine takes most of a
    # small step. GCC's library turns 1,000 times itself where it knows of more threads than processors.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    from whenabouts_systems.training.devices import open_device, use_large_pages
    from whenabouts_systems.training.experiment import has_stages
    from whenabouts_systems.training.launch import launch, launch_seeds
    from whenabouts_systems.training.shipped import experiment_file

    use_large_pages()
    options.experiment = experiment_file(options.experiment)
    if has_stages(options.experiment):
        return _run_stages(options)
    experiment, seeds = _experiment(options), _seeds(options)
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
    """Train one stage after the other, and show."""
    from whenabouts_systems.training.devices import open_device
    from whenabouts_systems.training.stages import launch_stages

    staged, seeds = _stages(options), _seeds(options)
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


def _stages(options: argparse.Namespace) -> StagedExperiment:
    from whenabouts_systems.training.stages import load_stages

    staged = load_stages(options.experiment, _settings(options))
    return staged.with_data(options.data) if options.data else staged


def _settings(options: argparse.Namespace) -> list[str]:
    precision = [f"training.precision={options.precision}"] if options.precision else []
    return [*options.settings, *precision]


def _experiment(options: argparse.Namespace) -> Experiment:
    from whenabouts_systems.training.experiment import load_experiment

    experiment = load_experiment(options.experiment, _settings(options))
    return experiment.with_data(options.data) if options.data else experiment


def _seeds(options: argparse.Namespace) -> list[int] | None:
    if options.seeds is None:
        return None
    try:
        return [int(part) for part in options.seeds.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {options.seeds!r}: accepted: whole numbers, such as 1,2,3") from None


def _print(results: list[TrainingResult], options: argparse.Namespace, *, of_seeds: bool) -> None:
    from whenabouts_systems.training.launch import seeds_to_json

    if wants_json(options):
        print_json(seeds_to_json(results) if of_seeds else results[0].to_json())
    else:
        _show(results, of_seeds)


def _show_stages(result: StagedResult) -> None:
    out = console()
    for name, results in result.stages.items():
        out.print(for_terminal(f"stage {name}"), style="dim", markup=False)
        _show(list(results), result.of_seeds)
    out.print(for_terminal(f"{result.title}: {result.folder}"), markup=False, soft_wrap=True)


def _show(results: list[TrainingResult], of_seeds: bool) -> None:
    from rich.table import Table

    from whenabouts_systems.training.launch import spreads

    out = console()
    for result in results:
        simulated = " (simulated features)" if result.simulated else ""
        minutes, seconds = divmod(round(result.seconds), 60)
        out.print(for_terminal(f"{result.title}{simulated}, seed {result.seed}"), style="bold", markup=False)
        steps = f"{number_of(result.steps, 'step')} in {minutes} min {seconds:02d} s; ended: {result.reason}"
        best = "" if result.score is None else f"; best after step {result.step:,}"
        out.print(for_terminal(steps + best), style="dim", markup=False, soft_wrap=True)
        out.print(for_terminal(f"written: {result.folder}"), style="dim", markup=False, soft_wrap=True)
    metrics = spreads(results)
    if not metrics:
        return
    table = Table("metric (validation)", box=None, pad_edge=False)
    table.add_column("mean ± deviation, %" if of_seeds else "%", justify="right")
    for name, spread in metrics.items():
        table.add_row(name, spread.percent)
    out.print(table)


class _Display:
    """How far it is, on standard error: a bar where somebody looks, and a line for each evaluation."""

    def __init__(self, is_shown: bool) -> None:
        from rich.console import Console

        self._is_shown = is_shown
        self._console = Console(stderr=True, highlight=False)
        self._bar: Any = None
        self._job: Any = None

    def __enter__(self) -> _Display:
        if self._is_shown and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.fields[epoch]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}", style="dim", markup=False),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def log(self, line: str) -> None:
        """A line on the data."""
        if self._is_shown:
            self._console.print(for_terminal(line), style="dim", markup=False, soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """A step, or an evaluation."""
        if progress.validation is not None:
            self._console.print(for_terminal(_line(progress)), markup=False, soft_wrap=True)
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
    """An evaluation for people."""
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
