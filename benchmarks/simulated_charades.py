"""Trains the systems of papers 000 and 004 on simulated features of Charades-STA and measures them.

    python -m benchmarks.simulated_charades FEATURES OUT [--systems xml,xml_pr] [--seeds 1,2,3] [--jobs 2]
    python -m benchmarks.simulated_charades FEATURES OUT --table

FEATURES is what `simulate_features.py` wrote (docs/results.md has the command). Each training is one
`whenabouts train experiments/simulated_charades/SYSTEM.toml` on one thread; what is finished is not done
again, and what was cut short goes on. Then each checkpoint answers all test queries under several
decodings, and the means are added to OUT/results.jsonl: a line per system, seed and decoding. Where
FEATURES has a graded truth (`charades_ranked_test.jsonl`: 40 moments a query by the likeness of their
captions), they answer under that as well, and so they do where it has one of the training's videos
(`charades_ranked_known.jsonl`). What was measured is not measured again. `--table` prints all as Markdown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import trainings
from benchmarks.trainings import seeds

EXPERIMENTS = trainings.EXPERIMENTS / "simulated_charades"
SINGLE, GRADED = "charades_test.jsonl", "charades_ranked_test.jsonl"
KNOWN = "charades_ranked_known.jsonl"
"""As GRADED, asked of the videos that were trained on, by queries that were not: as TVR-Ranking is made."""
SYSTEMS = ("xml", "xml_pr", "xml_sl", "xml_sl_pr", "xml_pr_c1", "xml_sl_pr_c1", "reloclnet")
SHOWN = (
    "VR R@1",
    "VR R@10",
    "VR R@100",
    "SVMR R@1,IoU=0.5",
    "SVMR R@1,IoU=0.7",
    "R@1,IoU=0.5",
    "R@1,IoU=0.7",
    "R@10,IoU=0.5",
    "R@10,IoU=0.7",
    "R@100,IoU=0.5",
    "R@100,IoU=0.7",
)


def main() -> None:
    """Train what is not trained yet, or print the table."""
    options = _options()
    if options.table:
        print("\n".join(table(trainings.results(options.out))))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [(system, seed) for seed in options.seeds.split(",") for system in options.systems.split(",")]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda one: _train(options, *one), wanted))
    done = {(line["system"], line["seed"], line["truth"]) for line in trainings.results(options.out)}
    for system, seed in wanted:
        if trainings.is_finished(options.out / f"{system}-{seed}"):
            for line in measure(options, system, seed, done):
                trainings.add_result(options.out, line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side, a thread each")
    parser.add_argument("--set", action="append", default=[], help="handed on to `whenabouts train`")
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def _train(options: argparse.Namespace, system: str, seed: str) -> None:
    run, settings = options.out / f"{system}-{seed}", [f"training.seed={seed}", *options.set]
    trainings.train(EXPERIMENTS / f"{system}.toml", options.features, run, settings)


def measure(
    options: argparse.Namespace, system: str, seed: str, done: Collection[tuple[str, str, str]] = ()
) -> Iterator[dict[str, Any]]:
    """The means of one checkpoint for each truth that is not done, under each decoding."""
    from whenabouts.evaluation.evaluate import evaluate
    from whenabouts.models.trained import Trained
    from whenabouts.ranking import rank_split
    from whenabouts.training.data import ExperimentData
    from whenabouts.training.experiment import load_experiment

    run = options.out / f"{system}-{seed}"
    trained = Trained.from_pretrained(run)
    experiment = load_experiment(run / "experiment.toml")
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    told: dict[str, Any] = {"system": system, "seed": seed}
    told |= {"epochs": experiment.training.epochs, "steps": facts["steps"], "seconds": facts["seconds"]}
    for truth, protocol in ((SINGLE, None), (GRADED, "rvmr"), (KNOWN, "rvmr")):
        if not (options.features / truth).exists() or (system, seed, truth) in done:
            continue
        data, known = replace(experiment.data, test=truth, pairs=""), trained.inputs
        with ExperimentData.open(
            data, experiment.features, options.features, inputs=known, splits=("test",)
        ) as material:
            examples = material.split("test")
            decodings = _decodings(trained.decoding) if truth == SINGLE else {"own": trained.decoding}
            for name, decoding in decodings.items():
                answers = rank_split(replace(trained, decoding=decoding), examples)
                means = evaluate(examples.annotations, answers, protocol=protocol).means()
                yield {**told, "truth": truth, "decoding": name, "metrics": means}


def _decodings(own: Any) -> dict[str, Any]:
    """The own one, and those of the recorded peers: a (as released) and b (exclusive, 1 to 8 clips)."""
    return {
        "own": own,
        "as released": replace(own, ends="as-released"),
        "exclusive": replace(own, ends="exclusive"),
    }


def table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Mean and deviation over seeds, in percent, as Markdown: a table for each truth."""
    for truth in dict.fromkeys(line["truth"] for line in lines):
        yield from (f"Truth: {truth}", "")
        yield from _table([line for line in lines if line["truth"] == truth])
        yield ""


def _table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    shown = [name for name in lines[0]["metrics"] if name in SHOWN or name.startswith("nDCG")]
    yield f"| system | decoding | seeds | {' | '.join(shown)} |"
    yield "|" + "---|" * (len(shown) + 3)
    for key in dict.fromkeys((line["system"], line["decoding"]) for line in lines):
        same = [line for line in lines if (line["system"], line["decoding"]) == key]
        cells = [seeds([100 * line["metrics"][name] for line in same]) for name in shown]
        yield f"| {key[0]} | {key[1]} | {len(same)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
