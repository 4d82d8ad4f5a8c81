"""Trains what docs/results.md compares beyond XML's family, over several seeds, and measures it.

    python -m benchmarks.studies STUDY FEATURES OUT [--seeds 1,2,3] [--systems a,b] [--jobs 2] [--pools FILE]
    python -m benchmarks.studies STUDY FEATURES OUT --table

    charades-pools, tacos-pools   MMN, CroCs-dagger, CroCs (papers 001, 002), in pools and in the given video
    subtitles                     PREM beside XML, ReLoCLNet and CONQUER (paper 003, tables 1 and 4)
    prem-retriever                tables 2 and 3 of paper 003: streams, positives, pooling
    prem-localizer                table 6: streams, gates, adversarial training, Shared-Norm

FEATURES is what `simulate_features.py` wrote (docs/results.md has the commands). Everything is done by
commands of `whenabouts` that anyone can give: `train` with the settings below, `run`, and the evaluation of
`evaluate`. A training is one thread in a process of its own; what is finished is not done again, what was cut
short goes on. The means are added to OUT/results.jsonl, a line per system and seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import trainings

CHARADES, TACOS = "simulated_charades", "simulated_tacos"
VIDEOS = ("VR R@1", "VR R@5", "VR R@10", "VR R@100")
MOMENTS = tuple(f"{task}R@{k},IoU={m}" for task in ("", "SVMR ") for k in (1, 10) for m in (0.5, 0.7))
POOLS = tuple(f"R@{n},IoU={m}" for n in (1, 5, 20) for m in (0.3, 0.5, 0.7))


@dataclass(frozen=True)
class System:
    """An experiment with settings; `of` is what it comes after, whose folder the setting `place` names."""

    name: str
    experiment: str
    settings: tuple[str, ...] = ()
    of: str = ""
    place: str = ""


@dataclass(frozen=True)
class Study:
    """Systems that are compared on the same files, and the numbers that are shown of them."""

    systems: tuple[System, ...]
    shown: tuple[str, ...]
    pools: bool = False


def _pools(folder: str) -> Study:
    first = System("crocs_first", f"{folder}/crocs_first.toml")
    second = System("crocs", f"{folder}/crocs.toml", (), first.name, "data.first_stage")
    shown = (*(f"VMR {name}" for name in POOLS[:3]), *POOLS)
    return Study((System("mmn", f"{folder}/mmn.toml"), first, second), shown, pools=True)


NARROW = ("model.hidden=128",)
"""One width for all systems: PREM's own is 384, XML's 256, ReLoCLNet's 384, CONQUER's 768."""
PREM = (*NARROW, "model.feedforward=512", "training.learning_rate=3e-4")
RETRIEVER = (*PREM, "training.epochs=10", "training.evaluate_every=5")
LOCALIZER = (*PREM, "training.epochs=2", "training.evaluate_every=1", "data.retrieved.videos=2")
LATE = (*NARROW, "training.epochs=20", "training.evaluate_every=5", "training.learning_rate=3e-4")
EARLY = (*NARROW, "training.epochs=4", "training.evaluate_every=2", "training.learning_rate=3e-4")
SEEN = ('features.streams={vision = "charades_video_cl-3.h5"}',)
SAID = ('features.streams={sub = "charades_sub_cl-3.h5"}',)


def _retriever(name: str, *settings: str) -> System:
    return System(name, f"{CHARADES}/prem_retriever_sub.toml", (*RETRIEVER, *settings))


def _localizer(name: str, *settings: str) -> System:
    settings = (*LOCALIZER, *settings)
    return System(name, f"{CHARADES}/prem_localizer_sub.toml", settings, "retriever", "data.retrieved.lists")


CONQUER = System("conquer", f"{CHARADES}/conquer_sub.toml", EARLY, "xml", "data.retrieved.lists")
STUDIES: Mapping[str, Study] = {
    "charades-pools": _pools(CHARADES),
    "tacos-pools": _pools(TACOS),
    "subtitles": Study(
        (
            System("xml", f"{CHARADES}/xml_sub.toml", LATE),
            System("reloclnet", f"{CHARADES}/reloclnet_sub.toml", LATE),
            CONQUER,
            _retriever("retriever"),
            _localizer("prem"),
            _localizer("prem_longer", "training.epochs=4"),
        ),
        (*MOMENTS, *VIDEOS),
    ),
    "prem-retriever": Study(
        (
            _retriever("retriever"),
            _retriever("retriever_seen", *SEEN),
            _retriever("retriever_said", *SAID),
            _retriever("retriever_no_weak", "model.lambda_weak=0"),
            _retriever("retriever_no_strong_no_weak", "model.lambda_weak=0", "model.strong=false"),
            _retriever("retriever_mean", "model.pooling=mean"),
            _retriever("retriever_max", "model.pooling=max"),
        ),
        VIDEOS,
    ),
    "prem-localizer": Study(
        (
            _retriever("retriever"),
            _localizer("prem"),
            _localizer("prem_seen", *SEEN),
            _localizer("prem_said", *SAID),
            _localizer("prem_no_gates", "model.gates=false"),
            _localizer("prem_no_adversary", "model.gamma=0"),
            _localizer("prem_no_shared_norm", "model.shared_norm=false"),
        ),
        MOMENTS,
    ),
}


def main() -> None:
    """Train what is not trained yet and measure it, or print the table."""
    options = _options()
    study = STUDIES[options.study]
    if options.table:
        print("\n".join(table(study, trainings.results(options.out))))
        return
    if study.pools and options.pools is None:
        raise SystemExit(f"{options.study}: --pools FILE is wanted: a file of MVMR, of the test split")
    options.out.mkdir(parents=True, exist_ok=True)
    asked = options.systems.split(",") if options.systems else [one.name for one in study.systems]
    waits: dict[tuple[str, str], Future[None]] = {}
    with ThreadPoolExecutor(options.jobs) as workers:
        # What comes after another waits for it; those that wait for nothing are handed out first.
        for system in sorted(study.systems, key=lambda one: one.of != ""):
            for seed in options.seeds.split(","):
                if system.name in asked:
                    first = waits.get((system.of, seed))
                    job = workers.submit(_one, options, study, system, seed, first)
                    waits[system.name, seed] = job
    for job in waits.values():
        job.result()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--systems", default="", help="some of the study's; default: all")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, a thread each")
    parser.add_argument("--pools", type=Path, help="the pools of charades-pools and tacos-pools")
    parser.add_argument("--set", action="append", default=[], help="handed on to `whenabouts train`")
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def _one(
    options: argparse.Namespace, study: Study, system: System, seed: str, first: Future[None] | None
) -> None:
    """Train one system with one seed, once what it comes after is there, and measure it."""
    if first is not None:
        first.result()
    run = options.out / f"{system.name}-{seed}"
    before = options.out / f"{system.of}-{seed}"
    settings = [f"training.seed={seed}", *system.settings, *options.set]
    settings += [f"{system.place}={before}"] if system.of else []
    trainings.train(trainings.EXPERIMENTS / system.experiment, options.features, run, settings)
    if not trainings.is_finished(run):
        raise SystemExit(f"{run}: is not trained; see {run}.log")
    if any(line["system"] == system.name and line["seed"] == seed for line in trainings.results(options.out)):
        return
    metrics = _in_pools(options, run) if study.pools else _in_corpus(options, run, before, system)
    line = {"study": options.study, "system": system.name, "seed": seed, "metrics": metrics}
    trainings.add_result(options.out, line)


def _in_corpus(options: argparse.Namespace, run: Path, before: Path, system: System) -> dict[str, Any]:
    """All lists that the system can make of the test split, after its retriever where it has one."""
    retriever = ["--retriever", str(before)] if system.place == "data.retrieved.lists" else []
    answers = _answers(options, run, "answers.json", retriever)
    return _means(_truth(run, options.features), answers, "tvr")


def _in_pools(options: argparse.Namespace, run: Path) -> dict[str, Any]:
    """Recall in the pools and, with `VMR` before its name, in the given video."""
    pools = ["--pools", str(options.pools)]
    found = _means(options.pools, _answers(options, run, "mvmr.jsonl", pools), "mvmr")
    given = _answers(options, run, "vmr.jsonl", [*pools, "--task", "svmr"])
    return found | {f"VMR {name}": value for name, value in _means(options.pools, given, "mvmr").items()}


def _answers(options: argparse.Namespace, run: Path, name: str, more: Sequence[str]) -> Path:
    answers = run / name
    command = ["run", "--checkpoint", str(run), "--features", str(options.features), "--split", "test"]
    command += ["--out", str(answers), *more]
    if trainings.whenabouts(command, run.with_name(f"{run.name}.log")):
        raise SystemExit(f"{run}: gives no answers; see {run}.log")
    return answers


def _means(truth: Path, answers: Path, protocol: str) -> dict[str, Any]:
    from whenabouts.evaluation.evaluate import evaluate

    return dict(evaluate(truth, answers, protocol=protocol).means())


def _truth(run: Path, features: Path) -> Path:
    from whenabouts.training.experiment import load_experiment

    return features / str(load_experiment(run / "experiment.toml").data.test)


def table(study: Study, lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Mean and deviation over seeds, in percent, as Markdown."""
    known = [name for name in study.shown if any(name in line["metrics"] for line in lines)]
    yield f"| system | seeds | {' | '.join(known)} |"
    yield "|" + "---|" * (len(known) + 2)
    for system in study.systems:
        same = [line["metrics"] for line in lines if line["system"] == system.name]
        values = [[100 * one[name] for one in same if one.get(name) is not None] for name in known]
        if any(values):
            cells = [trainings.seeds(each, 1) if each else "" for each in values]
            yield f"| {system.name} | {len(same)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
