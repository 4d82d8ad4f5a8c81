"""The round on published descriptions: queries, a training set, candidates, grades, a measured run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whenabouts.cli.main import main
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import Task, TaskSet

SETS = {"qvhighlights": "val", "activitynet_captions": "val_1"}


def grade_of(task: Task, caption: str) -> int:
    """By the words that query and caption share: 4 where they are the same."""
    asked, told = set(task.text.casefold().split()), set(caption.casefold().split())
    return round(4 * len(asked & told) / len(asked | told))


def judge(folder: Path, captions: dict[tuple[str, float, float], str]) -> int:
    """Two annotators who read the captions that real ones never see; how many grades they gave."""
    tasks = TaskSet.open(folder)
    journal = Journal.open(tasks)
    count = 0
    for name in ("Ada", "Bo"):
        while (task := journal.next_task(name)) is not None:
            span = task.moment
            caption = captions[span.video_id, span.start, span.end]
            journal.append(Event("grade", name, task.id, grade=grade_of(task, caption)))
            count += 1
    return count


def run_of_candidates(folder: Path, path: Path) -> None:
    """What caption similarity itself answers, best first: a run whose every answer was a candidate."""
    tasks = TaskSet.open(folder)
    sources = tasks.sources()
    moments: dict[str, list[dict[str, object]]] = {}
    for task in sorted(tasks.tasks, key=lambda task: min(sources[task.id].ranks.values())):
        score = sources[task.id].similarity
        span = {"video_id": task.moment.video_id, "start": task.moment.start, "end": task.moment.end}
        moments.setdefault(task.query_id, []).append({**span, "score": score})
    lines = ({"query_id": query, "moments": answers} for query, answers in moments.items())
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_published_descriptions_become_a_benchmark(
    name: str,
    shared_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*command: str) -> dict[str, object]:
        code = main([*command, "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return dict(json.loads(said.out)) if said.out else {}

    data = str(shared_data / "annotations" / name)
    drawn = ("--validation", "5", "--test", "20", "--out", "queries")
    run("build", "queries", "--dataset", name, "--data", data, "--split", SETS[name], *drawn)
    everything, asked = read_annotations("queries/all"), read_annotations("queries/val")
    assert len(asked.queries) == 5

    left_out = ("--leave-out", "queries/val", "--leave-out", "queries/test")
    ranked = run(
        "relevance", "ranked", "--queries", "queries/all", *left_out, "--top", "20", "--out", "t.jsonl"
    )
    measured = {
        query.text for part in ("val", "test") for query in read_annotations(f"queries/{part}").queries
    }
    lines = Path("t.jsonl").read_text(encoding="utf-8").splitlines()
    trained = {json.loads(line)["query"] for line in lines}
    assert len(lines) == ranked["pairs"] == 20 * int(str(ranked["queries"]))
    assert not trained & measured

    run("build", "judging", "--captions", "queries/all", "--queries", "queries/val", "--out", "judging")
    texts = {query.id: query.text for query in everything.queries}
    captions = {
        (j.moment.video_id, j.moment.start, j.moment.end): texts[query]
        for query, judgements in everything.qrels.items()
        for j in judgements
    }
    graded = judge(Path("judging"), captions)
    assert 2 * 5 * 20 <= graded <= 2 * 5 * 40  # the second batch only where the first ends relevant
    settled = run("judgements", "judging", "--out", "truth")
    assert 2 * int(str(settled["agreed"])) == graded

    run_of_candidates(Path("judging"), Path("run.jsonl"))
    evaluated = run(
        "evaluate", "rvmr", "--truth", "truth", "--run", "run.jsonl", "--metric", "nDCG@20,IoU=0.5"
    )
    (value,) = dict(evaluated["metrics"]).values()  # type: ignore[call-overload]
    assert 0.5 < value <= 1
    (unjudged,) = evaluated["unjudged"]["metrics"].values()  # type: ignore[index]
    assert unjudged["unjudged"] == 0  # its first twenty are the first batch, which everybody judged
