"""Every task reads the released form of its files, and a system that knows the answers gets full marks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.released_forms import FORMS

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.metrics import metrics_of
from whenabouts_bench.evaluation.protocols import find_protocol
from whenabouts_bench.formats.annotations import Annotations, judgement_rows
from whenabouts_bench.harness.running import run_task
from whenabouts_bench.harness.system import BenchQuery
from whenabouts_bench.harness.task import Row, material_of, task_named, tasks

NAMES = [task.name for task in tasks()]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Task -> its fabricated folder."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            FORMS[name](made[name])
        return made[name]

    return folder


class Knowing:
    """Answers every query with what was judged, the most relevant first; nothing where nothing answers."""

    def __init__(self, annotations: Annotations) -> None:
        self.rows: dict[str, list[tuple[str, float, float, float]]] = {}
        self.clips = {query.id: query.metadata for query in annotations.queries}
        for query, video, start, end, grade in judgement_rows(annotations):
            row = (annotations.videos[video].id, start, end, grade)
            self.rows.setdefault(annotations.queries[query].id, []).append(row)

    def index(self, videos: Sequence[Any]) -> None:
        self.videos = {video.id for video in videos}

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        return [self._rows(query) for query in queries]

    def _rows(self, query: BenchQuery) -> list[Any]:
        rows = [row for row in self.rows.get(query.id, []) if row[1] < row[2]]
        return [row for row in rows if not query.videos or row[0] in query.videos]


class KnowingVideos(Knowing):
    """As `Knowing`, for judgements that name videos alone."""

    search = None  # type: ignore[assignment]

    def rank_videos(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        return [[(row[0], row[3]) for row in self.rows.get(query.id, [])] for query in queries]


@pytest.mark.parametrize("name", NAMES)
def test_every_task_has_a_fabricated_sample_and_full_facts(name: str) -> None:
    task = task_named(name)
    assert name in FORMS
    assert task.title and task.revision and task.licence and task.how and task.headline
    protocol = find_protocol(task.protocol)
    own = protocol.metrics if task.of_protocol else ()
    measured = {metric.name for metric in metrics_of(protocol, (*own, *task.metrics))}
    assert set(task.headline) <= measured
    assert task_named(f"{name}@{task.version}") is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_system_that_knows_the_answers_gets_full_marks(name: str, folder_of: Any) -> None:
    task, folder = task_named(name), folder_of(name)
    annotations = task.read(folder).annotations
    kind = KnowingVideos if name == "multivent-2" else Knowing
    results = run_task(task, kind(annotations), folder)
    first = task.headline[0]
    full = results.metrics[first].mean
    assert full == pytest.approx(1.0), (first, full)
    assert not results.missing
    left = {metric.partition(" ")[0] for metric in results.not_honoured}
    assert left == ({"HL"} if name == "qvhighlights" else set())


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_without_the_files_says_how_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="How to get"):
        task_named(name).read(tmp_path)


def test_moments_are_those_of_the_released_forms(folder_of: Any) -> None:
    def first(name: str) -> tuple[str, str, list[tuple[str, float, float]]]:
        annotations = task_named(name).read(folder_of(name)).annotations
        query = annotations.queries[0]
        moments = [(j.moment.video_id, j.moment.start, j.moment.end) for j in annotations.qrels[query.id]]
        return query.id, query.text, moments

    assert first("timelens-charades") == ("charades0#0", "A person opens a door", [("charades0", 0.0, 4.0)])
    assert first("extreme-when-bench") == ("v0_q000", "When does number 0 ring?", [("v0", 1800.0, 1809.0)])
    assert first("momentseeker") == (
        "t2v#0",
        "the dog jumps 0 times",
        [("movie0", 10.0, 19.0), ("movie0", 40.0, 55.5)],
    )
    assert first("qv-m2")[2] == [("made_0.0_150.0", 0.0, 8.0), ("made_0.0_150.0", 20.0, 26.0)]
    assert first("untruth-charades-id") == ("test0@V0", "person does 0.", [("V0", 2.0, 9.5)])


def test_the_folder_of_qv_m2_may_be_the_working_folder(
    folder_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder_of("qv-m2") / "data" / "QV-M2")
    assert task_named("qv-m2").read(Path()).annotations.queries


def test_extreme_when_bench_is_read_from_a_list_as_well(folder_of: Any, tmp_path: Path) -> None:
    task = task_named("extreme-when-bench")
    lines = (folder_of(task.name) / "extreme-when-bench.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    (tmp_path / "extreme-when-bench.json").write_text(json.dumps({"questions": rows}))
    assert task.read(tmp_path).annotations.qrels == task.read(folder_of(task.name)).annotations.qrels


def test_queries_without_an_answer_have_their_video_as_pool(folder_of: Any) -> None:
    name = "untruth-qvhighlights-ood"
    annotations = task_named(name).read(folder_of(name)).annotations
    assert len(annotations.queries) == 8 and len(annotations.query) == 4
    assert annotations.pools["val0@V1"] == ("V1",)


def test_the_corpus_of_multivent_is_its_list_of_ids(folder_of: Any) -> None:
    annotations = task_named("multivent-2").read(folder_of("multivent-2")).annotations
    assert [video.id for video in annotations.videos] == [f"v{i}" for i in range(1, 8)]
    assert annotations.queries[0].text == "a flood, seen from a bridge"


ONE = '{"duration": 3, "spans": [[0, 1]], "queries": []}'
NO_MOMENT = '[{"qry_text": "a", "src_video_path": "b", "answering_time_interval": []}]'
NO_QUERY = '{"query_id": "zz", "doc_id": "v", "relevance": 1}'
BROKEN = [
    ("timelens-charades", "charades-timelens.json", f'{{"a": {ONE}}}', "a.spans: has 1 entries"),
    (
        "timelens-charades",
        "charades-timelens.json",
        '{"a": {"duration": "x"}}',
        "a.duration: is not a number",
    ),
    (
        "extreme-when-bench",
        "extreme-when-bench.jsonl",
        '{"qid": "q", "video_id": "v"}',
        "question: is missing",
    ),
    ("extreme-when-bench", "extreme-when-bench.json", '{"rows": []}', "questions: is not a list"),
    ("momentseeker", "t2v.json", NO_MOMENT, "answering_time_interval: is empty"),
    ("multivent-2", "multivent_2_train_queries.csv", "id,text\na,b\n", "accepted: Query_id and query"),
    ("multivent-2", "multivent_2_train_queries.csv", "", "accepted: Query_id and query"),
    ("multivent-2", "multivent_2_train_judgments.jsonl", NO_QUERY, "is not in the file of queries: 'zz'"),
    ("untruth-charades-id", "charades_id_pos_neg_test.jsonl", '{"qid": 1, "query": "q"}', "vid: is missing"),
]


@pytest.mark.parametrize(("name", "file", "broken", "said"), BROKEN)
def test_a_broken_file_is_refused_with_its_field(
    name: str, file: str, broken: str, said: str, tmp_path: Path
) -> None:
    if name == "multivent-2":
        FORMS[name](tmp_path)
    (tmp_path / file).write_text(broken)
    with pytest.raises(FormatError, match=re.escape(file)) as caught:
        task_named(name).read(tmp_path)
    assert said in str(caught.value)


def test_ndcg_of_videos_takes_the_most_relevant_judgement_of_each(folder_of: Any) -> None:
    class Swapped(KnowingVideos):
        def rank_videos(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
            return [[("v2", 2.0), ("v9", 1.5), ("v1", 1.0)], [("v1", 1.0)]]

    task, folder = task_named("multivent-2"), folder_of("multivent-2")
    results = run_task(task, Swapped(task.read(folder).annotations), folder)
    first = (1 + 3 / math.log2(4)) / (3 + 1 / math.log2(3))
    assert results.metrics["VR nDCG@10"].mean == pytest.approx(first / 2)
    assert results.metrics["VR R@1"].mean == 0.5


def test_rows_that_contradict_one_another_are_refused() -> None:
    rows = [Row("q", "a", [(0, 1)], "v"), Row("q", "b", [(0, 1)], "v")]
    with pytest.raises(UsageError, match="'q' has two texts"):
        material_of(rows, "mine", ())
    with pytest.raises(UsageError, match="'q' has a row with moments and one without"):
        material_of([Row("q", "a", [(0, 1)], "v"), Row("q", "a", [], "w")], "mine", ())
    with pytest.raises(
        UsageError, match="mine: query 'q' has a row without a video; name that of its moments"
    ):
        material_of([Row("q", "a", [(0, 1)], "")], "mine", ())
    with pytest.raises(UsageError, match="row without a video; name a video of its pool"):
        material_of([Row("q", "a", [], "", ("v", "w"))], "mine", ())


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'charades-sta'"):
        task_named("charades")
    with pytest.raises(UsageError, match="there is no version 9; give tvr@1"):
        task_named("tvr@9")


REAL = {
    "charades-sta": ("charades_sta", 1_334, 3_720),
    "activitynet-captions": ("activitynet_captions", 4_885, 17_031),
    "tacos": ("tacos", 25, 4_001),
    "didemo": ("didemo", 1_004, 4_021),
    "qvhighlights": ("qvhighlights", 1_519, 1_550),
    "mvmr-charades-sta": ("mvmr", 1_334, 3_720),
}


@pytest.mark.parametrize("name", REAL)
def test_counts_of_the_real_release(name: str, shared_data: Path) -> None:
    where, videos, queries = REAL[name]
    task = task_named(name)
    annotations = task.read(shared_data / "annotations" / where).annotations
    assert (len(annotations.videos), len(annotations.queries)) == (videos, queries)
    assert task.counts_that_differ(annotations) == []


def test_a_part_of_a_release_is_noted(folder_of: Any) -> None:
    task = task_named("tvr")
    annotations = task.read(folder_of("tvr")).annotations
    (note,) = task.counts_that_differ(annotations)
    assert note.startswith(
        "TVR has 2,179 videos (3), 10,895 queries (12), 10,895 judgements (12); these files"
    )
