"""Trains the systems of a study over several seeds, measures them, and prints its tables.

    python -m benchmarks.studies STUDY FEATURES OUT [--seeds 1,2,3] [--systems a,b] [--jobs 2] [--pools FILE]
    python -m benchmarks.studies STUDY FEATURES OUT --table
    python -m benchmarks.studies STUDY FEATURES OUT --commands

`study/STUDY.toml` says what a study compares, on which files; FEATURES is the folder of the feature files.
A row `extends` an experiment below experiments/, a row above it, or a "STUDY/ROW" of a file that comes
before by its name, by the settings in `set` (as with --set), after the study's own `set`. A setting
"KEY=row:NAME" is the folder of that row's training of the same seed, which comes first. A row with a
`retriever` is not trained: the row that it extends answers once more, in the `top_videos` videos that this
other row's training puts first. Studies with the same rows may share OUT. `asks` names a file below FEATURES
that the trainings answer in place of their own test split: data not used before. `measure` is one of
MEASURES, or "truths": the corpus under several decodings, and graded truths where FEATURES has them. `shown`
are the columns of --table; `tested` those of `study_outcomes`, which also tells the `differences`: pairs of
rows, the first held against the second.

Everything is done by commands of `whenabouts` that anyone can give: `train` with the settings of a row,
`run`, and the evaluation of `evaluate`. A training is one thread in a process of its own; what is finished
is not done again, what was cut short goes on. The means are added to OUT/results.jsonl: a line per system
and seed, and with measure "truths" per decoding and truth (captions' own, and graded ones where FEATURES
has them).
"""

from __future__ import annotations

import argparse
import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from benchmarks import trainings

STUDIES = Path(__file__).with_name("study")
MEASURES = {
    "corpus": {"": ("answers.json", "tvr")},
    "ranked": {"": ("answers.jsonl", "rvmr")},
    "pools": {"": ("mvmr.jsonl", "mvmr"), "VMR ": ("vmr.jsonl", "mvmr")},
    "pools-only": {"": ("mvmr.jsonl", "mvmr")},
}
"""Measure -> what stands before the names of its metrics -> the file of answers, and the protocol.

"corpus" has all lists that a system makes of the test split, "ranked" graded truths, "pools" the answers in
the pools of --pools and in the given video, "pools-only" the former.
"""
IN_POOLS = ("pools", "pools-only")
ROW = "row:"
"""Before the name of a row, where the folder of its training is meant."""
TRUTHS = {
    "charades_test.jsonl": None,
    "charades_ranked_test.jsonl": "rvmr",
    # Asked of the videos that were trained on, by queries that were not: as TVR-Ranking is made.
    "charades_ranked_known.jsonl": "rvmr",
}
"""File below FEATURES -> protocol, for the measure "truths"."""
SINGLE = next(iter(TRUTHS))


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    extends: str
    set: tuple[str, ...] = ()
    retriever: str = ""
    top_videos: int = 0


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    measure: Literal["corpus", "ranked", "pools", "pools-only", "truths"]
    shown: tuple[str, ...]
    rows: dict[str, _Row]
    set: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()
    differences: tuple[tuple[str, str], ...] = ()
    asks: str = ""


@dataclass(frozen=True)
class System:
    """A row of a study: an experiment with settings; `after` is the row that must be trained before.

    With a `retriever` it is not trained: the row `trained` answers in the `top_videos` of that one.
    """

    name: str
    experiment: Path
    settings: tuple[str, ...] = ()
    title: str = ""
    trained: str = ""
    retriever: str = ""
    top_videos: int = 0

    @property
    def after(self) -> str:
        """The row that a setting names; "" for none."""
        values = (setting.partition("=")[2] for setting in self.settings)
        return next((value.removeprefix(ROW) for value in values if value.startswith(ROW)), "")

    @property
    def needs(self) -> tuple[str, ...]:
        """The rows that come before."""
        rows = (self.trained, self.retriever) if self.retriever else (self.after,)
        return tuple(filter(None, rows))

    def settings_in(self, out: Path, seed: str) -> list[str]:
        """The settings of one training, with the folder of the row that comes before."""
        settings = [
            setting.replace(f"={ROW}{self.after}", f"={out}/{self.after}-{seed}") for setting in self.settings
        ]
        return [f"title={self.title}", f"training.seed={seed}", *settings]


@dataclass(frozen=True)
class Study:
    """Systems that are compared on the same files, how they are measured, and the metrics that are shown.

    `differences` are pairs of systems, chosen before they are seen: the first is held against the second by
    the metrics in `tested`. `asks` is the file that is answered; "" for the test split.
    """

    name: str
    systems: tuple[System, ...]
    measure: str
    shown: tuple[str, ...]
    tested: tuple[str, ...] = ()
    differences: tuple[tuple[str, str], ...] = ()
    asks: str = ""

    def answers(self, run: Path, name: str) -> Path:
        """The file of a training's answers."""
        return run / (f"{Path(self.asks).stem}_{name}" if self.asks else name)

    def judgements(self, run: Path, features: Path) -> Any:
        """What answers are held against: `asks`, or the test split of the training's data set or files."""
        from whenabouts_bench.datasets import open_dataset
        from whenabouts_systems.training.experiment import load_experiment

        data = load_experiment(run / "experiment.toml").data
        if data.dataset and not self.asks:
            return open_dataset(data.dataset, data.beside(features, "")).annotations(data.test)
        return data.beside(features, self.asks or data.test)


def load_studies(folder: Path = STUDIES) -> dict[str, Study]:
    """The studies of a folder, by name. Raises ValueError for a row that extends nothing."""
    studies: dict[str, Study] = {}
    elsewhere: dict[str, System] = {}
    for file in sorted(folder.glob("*.toml"), key=lambda file: file.stem):
        table = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _Table)
        study = studies[file.stem] = _study(file.stem, table, elsewhere)
        elsewhere |= {f"{study.name}/{system.name}": system for system in study.systems}
    return studies


def _study(name: str, table: _Table, elsewhere: Mapping[str, System]) -> Study:
    systems: dict[str, System] = {}
    for row_name, row in table.rows.items():
        base = systems.get(row.extends) or elsewhere.get(row.extends)
        if base is None and not row.extends.endswith(".toml"):
            raise ValueError(f"{name}: {row_name} extends {row.extends!r}: no file, no row above")
        if base is None:
            base = System("", trainings.EXPERIMENTS / row.extends, table.set)
        if row.retriever and not (row.extends in systems and row.retriever in systems and row.top_videos > 0):
            raise ValueError(
                f"{name}: {row_name}: its retriever and what it extends are rows above, with top_videos"
            )
        systems[row_name] = System(
            row_name,
            base.experiment,
            _merged(*base.settings, *row.set),
            f"{row_name}, study {name}",
            row.extends if row.retriever else row_name,
            row.retriever,
            row.top_videos,
        )
    strange = {row for pair in table.differences for row in pair} - set(systems)
    if strange:
        raise ValueError(f"{name}: differences name {', '.join(sorted(strange))}: no row")
    rows = tuple(systems.values())
    return Study(name, rows, table.measure, table.shown, table.tested, table.differences, table.asks)


def _merged(*settings: str) -> tuple[str, ...]:
    """Settings without those that a later one replaces: which row comes before is what the last one says."""
    last: dict[str, str] = {}
    for setting in settings:
        key = setting.partition("=")[0]
        last.pop(key, None)
        last[key] = setting
    return tuple(last.values())


def main() -> None:
    """Train what is not trained yet and measure it, or print the table or the commands."""
    studies = load_studies()
    options = _options(list(studies))
    study = studies[options.study]
    names = options.systems.split(",") if options.systems else [system.name for system in study.systems]
    systems = [system for system in study.systems if system.name in names]
    seeds = options.seeds.split(",")
    if options.table:
        print("\n".join(tables(study, _results(options, study))))
        return
    if options.commands:
        for system in systems:
            if not system.retriever:
                print(shlex.join(["whenabouts", *_training(options, system, seeds[0])]))
        return
    if study.measure in IN_POOLS and options.pools is None:
        raise SystemExit(f"{options.study}: give --pools FILE: a file of MVMR, of the test split")
    options.out.mkdir(parents=True, exist_ok=True)
    before: dict[tuple[str, str], Future[None]] = {}
    with ThreadPoolExecutor(options.jobs) as workers:
        # A row that comes after another waits for it; those that wait for nothing are handed out first.
        for system in sorted(systems, key=lambda system: bool(system.needs)):
            for seed in seeds:
                first = [before[need, seed] for need in system.needs if (need, seed) in before]
                before[system.name, seed] = workers.submit(_train, options, study, system, seed, first)
    for job in before.values():
        job.result()


def _options(studies: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=studies)
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, help="the folder of the annotations, where it is another")
    parser.add_argument("--systems", default="", help="some of the study's; default: all")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, a thread each")
    parser.add_argument("--pools", type=Path, help='the pools of a study with the measure "pools"')
    parser.add_argument("--set", action="append", default=[], help="handed on to `whenabouts train`")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--commands", action="store_true")
    return parser.parse_args()


def _training(options: argparse.Namespace, system: System, seed: str) -> list[str]:
    """The `train` command of a row."""
    settings = [*system.settings_in(options.out, seed), *options.set]
    data = ["--data", str(options.data)] if options.data else []
    files = ["--features", str(options.features), *data, "--out", str(options.out / f"{system.name}-{seed}")]
    return [
        "train",
        str(system.experiment),
        *files,
        *(part for setting in settings for part in ("--set", setting)),
    ]


def _train(
    options: argparse.Namespace, study: Study, system: System, seed: str, first: Sequence[Future[None]]
) -> None:
    """Train one system with one seed, once what it comes after is there, and measure it."""
    for job in first:
        job.result()
    run = options.out / f"{system.trained}-{seed}"
    if not system.retriever:
        trainings.train(_training(options, system, seed), run)
    if not trainings.is_finished(run):
        raise SystemExit(f"{run}: is not trained; see {run}.log")
    if study.measure == "pools-only" and any(other.retriever == system.name for other in study.systems):
        return  # It finds videos, and pools are asked for moments.
    line = {"study": study.name, "system": system.name, "seed": seed}
    done = [
        result.get("truth")
        for result in _results(options, study)
        if (result["system"], result["seed"]) == (system.name, seed)
    ]
    if study.measure == "truths":
        for more in _under_truths(options, run, done):
            trainings.add_result(options.out, line | more)
    elif not done:
        trainings.add_result(options.out, line | {"metrics": _measured(options, study, system, seed, run)})


def _measured(
    options: argparse.Namespace, study: Study, system: System, seed: str, run: Path
) -> dict[str, float | None]:
    """Means of what a system answers, after its retriever where it has one; `run` is its checkpoint."""
    more = [] if study.measure not in IN_POOLS else ["--pools", str(options.pools)]
    if system.retriever:
        more += ["--retriever", str(options.out / f"{system.retriever}-{seed}")]
        more += ["--top-videos", str(system.top_videos)]
    elif any(setting.startswith(f"data.retrieved.lists={ROW}") for setting in system.settings):
        more += ["--retriever", str(options.out / f"{system.after}-{seed}")]
    if study.asks:
        more += ["--experiment", str(_asking(study, run))]
    truth = options.pools if study.measure in IN_POOLS else study.judgements(run, options.features)
    folder = options.out / f"{system.name}-{seed}"
    folder.mkdir(exist_ok=True)
    metrics: dict[str, float | None] = {}
    for prefix, (name, protocol) in MEASURES[study.measure].items():
        task = ["--task", "svmr"] if prefix else []
        means = _means(truth, _answers(options, run, study.answers(folder, name), [*more, *task]), protocol)
        metrics |= {f"{prefix}{metric}": value for metric, value in means.items()}
    return metrics


def _under_truths(
    options: argparse.Namespace, run: Path, done: Sequence[str | None]
) -> Iterator[dict[str, Any]]:
    """Means of one checkpoint for each truth that is not done; for its own truth under several decodings."""
    from whenabouts_bench.evaluation.evaluate import evaluate
    from whenabouts_systems.models.trained import Trained
    from whenabouts_systems.ranking import rank_split
    from whenabouts_systems.training.data import ExperimentData
    from whenabouts_systems.training.experiment import load_experiment

    trained, experiment = Trained.from_pretrained(run), load_experiment(run / "experiment.toml")
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    line = {"epochs": experiment.training.epochs, "steps": record["steps"], "seconds": record["seconds"]}
    for truth, protocol in TRUTHS.items():
        if not (options.features / truth).exists() or truth in done:
            continue
        data = replace(experiment.data, test=truth, pairs="")
        with ExperimentData.open(
            data, experiment.features, options.features, inputs=trained.inputs, splits=("test",)
        ) as opened:
            examples = opened.split("test")
            for name, decoding in _decodings(trained.decoding, truth):
                answers = rank_split(replace(trained, decoding=decoding), examples)
                means = evaluate(examples.annotations, answers, protocol=protocol).means()
                yield {**line, "truth": truth, "decoding": name, "metrics": means}


def _decodings(own: Any, truth: str) -> Iterator[tuple[str, Any]]:
    """The own one; for one truth also those of the authors' programs: as released, and exclusive."""
    yield "own", own
    if truth == SINGLE:
        yield from ((name, replace(own, ends=name)) for name in ("as-released", "exclusive"))


def _asking(study: Study, run: Path) -> Path:
    """The experiment of a training with another test file, written beside it."""
    from whenabouts_systems.training.experiment import load_experiment

    experiment = load_experiment(run / "experiment.toml", [f"data.test={study.asks}"])
    path = study.answers(run, "experiment.toml")
    path.write_text(experiment.to_toml(), encoding="utf-8")
    return path


def _answers(options: argparse.Namespace, run: Path, answers: Path, more: Sequence[str]) -> Path:
    if answers.exists():  # by a study that shares OUT
        return answers
    command = ["run", "--checkpoint", str(run), "--features", str(options.features), "--split", "test"]
    command += ["--data", str(options.data)] if options.data else []
    if trainings.whenabouts([*command, "--out", str(answers), *more], run.with_name(f"{run.name}.log")):
        raise SystemExit(f"{run}: gives no answers; see {run}.log")
    return answers


def _means(truth: Any, answers: Path, protocol: str) -> dict[str, Any]:
    from whenabouts_bench.evaluation.evaluate import evaluate

    return dict(evaluate(truth, answers, protocol=protocol).means())


def _results(options: argparse.Namespace, study: Study) -> list[dict[str, Any]]:
    """The study's lines among those that OUT holds."""
    return [line for line in trainings.results(options.out) if line["study"] == study.name]


def tables(study: Study, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Mean and deviation over seeds, in percent, as Markdown: a table for each truth."""
    for truth in dict.fromkeys(line.get("truth") for line in lines):
        of_truth = [line for line in lines if line.get("truth") == truth]
        if truth is not None:
            yield from (f"Truth: {truth}", "")
        yield from _table(study, of_truth)
        if truth is not None:
            yield ""


def _table(study: Study, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [name for name in study.shown if any(name in line["metrics"] for line in lines)]
    order = [system.name for system in study.systems]
    rows: dict[tuple[str, str], list[Mapping[str, float | None]]] = {}
    for line in lines:
        if line["system"] in order:
            rows.setdefault((line["system"], line.get("decoding", "own")), []).append(line["metrics"])
    yield f"| system | decoding | seeds | {' | '.join(names)} |"
    yield "|" + "---|" * (len(names) + 3)
    for (system, decoding), runs in sorted(rows.items(), key=lambda row: order.index(row[0][0])):
        values = [[100 * value for run in runs if (value := run.get(name)) is not None] for name in names]
        cells = [trainings.seeds(each) if each else "" for each in values]
        yield f"| {system} | {decoding} | {len(runs)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
