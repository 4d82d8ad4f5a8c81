from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.relevance.conftest import WordEncoder
from tests.relevance.made_pools import household

from whenabouts.confidence.rates import rate_of
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.relevance.people import LABELLING, Answer, judge_answers, read_answers, write_tasks
from whenabouts_bench.relevance.pools import PoolSettings, build_pools
from whenabouts_bench.relevance.similarity import VectorSimilarity


@pytest.fixture(scope="module")
def pools() -> Annotations:
    source = household()
    similarity = VectorSimilarity.of(source.queries, WordEncoder())
    settings = PoolSettings(size=6, most_positives=3, negative=0.8)
    return build_pools(source, similarity, settings).annotations


def tasks_of(pools: Annotations, path: Path, **options: Any) -> list[dict[str, Any]]:
    count = write_tasks(pools, path, **options)
    found: list[dict[str, Any]] = json.loads(path.read_text())
    assert len(found) == count
    return found


def answered(task: dict[str, Any], *people: dict[str, Any]) -> dict[str, Any]:
    """A task as exported by Label Studio, with annotators' answers."""
    kinds = {"match": ("choices", "choices"), "start": ("number", "number"), "end": ("number", "number")}
    annotations = []
    for number, entered in enumerate(people):
        result = [
            {
                "from_name": name, "to_name": "video", "type": kinds[name][0], "id": f"r{number}{name}",
                "value": {kinds[name][1]: [value] if name == "match" else value},
            }
            for name, value in entered.items()
        ]  # fmt: skip
        annotations.append({"id": number, "result": result, "was_cancelled": False, "completed_by": number})
    return {"id": 7, "data": task["data"], "annotations": annotations, "predictions": []}


def is_positive(pools: Annotations, task: dict[str, Any]) -> bool:
    query, video = task["data"]["query_id"], task["data"]["video_id"]
    return any(judgement.moment.video_id == video for judgement in pools.qrels[query])


def export(tmp_path: Path, tasks: Sequence[dict[str, Any]]) -> Path:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(list(tasks)))
    return file


def test_a_task_is_a_video_and_a_query_and_does_not_tell_the_answer(
    pools: Annotations, tmp_path: Path
) -> None:
    tasks = tasks_of(pools, tmp_path / "tasks.json", queries=4, url="https://x/{video_id}.mp4")
    assert len(tasks) == 4 * 5  # the source video of each pool of 6 is not asked about
    queries = {query.id: query.text for query in pools.queries}
    for task in tasks:
        assert task.keys() == {"data"}
        data = task["data"]
        assert data.keys() == {"video", "query", "query_id", "video_id"}
        assert (
            data["video"] == f"https://x/{data['video_id']}.mp4"
            and data["query"] == queries[data["query_id"]]
        )
        assert data["video_id"] != data["query_id"].split("#")[0]
    told = [is_positive(pools, task) for task in tasks]
    assert sum(told) == 4 * 2 and told != sorted(told, reverse=True)


def test_the_same_seed_asks_the_same(pools: Annotations, tmp_path: Path) -> None:
    one, again, other = (
        tasks_of(pools, tmp_path / f"{name}.json", queries=5, seed=seed)
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert one == again != other


def test_the_labelling_interface_names_what_tasks_and_answers_have() -> None:
    tags = list(ElementTree.fromstring(LABELLING).iter())
    named = {tag.get("name") for tag in tags}
    assert {"match", "start", "end", "video"} <= named
    assert {tag.get("value") for tag in tags if tag.tag in ("Video", "Text")} == {"$video", "$query"}
    assert [tag.get("value") for tag in tags if tag.tag == "Choice"] == ["yes", "no"]
    assert {tag.get("toName") for tag in tags if tag.get("toName")} == {"video"}


def test_answers_come_back_from_both_exports(pools: Annotations, tmp_path: Path) -> None:
    task = tasks_of(pools, tmp_path / "tasks.json", queries=1)[0]
    query, video = task["data"]["query_id"], task["data"]["video_id"]
    want = [Answer(query, video, True, 1.5, 4.0)]
    whole = [answered(task, {"match": "yes", "start": 1.5, "end": 4})]
    assert read_answers(export(tmp_path, whole)) == want
    short = [{**task["data"], "id": 7, "match": "yes", "start": 1.5, "end": 4, "annotator": 1}]
    assert read_answers(export(tmp_path, short)) == want


def test_people_who_cancelled_or_said_nothing_do_not_count(pools: Annotations, tmp_path: Path) -> None:
    first, second = tasks_of(pools, tmp_path / "tasks.json", queries=1)[:2]
    gone = answered(first, {"match": "yes"}, {"match": "no"}, {})
    gone["annotations"][0]["was_cancelled"] = True
    answers = read_answers(export(tmp_path, [gone, {"id": 9, "data": second["data"], "annotations": []}]))
    assert [answer.match for answer in answers] == [False]


def test_right_pools_have_no_error_and_an_interval_that_says_how_sure_that_is(
    pools: Annotations, tmp_path: Path
) -> None:
    tasks = tasks_of(pools, tmp_path / "tasks.json", queries=20)
    right = [answered(task, {"match": "yes" if is_positive(pools, task) else "no"}) for task in tasks]
    verdict = judge_answers(pools, read_answers(export(tmp_path, right)))
    assert (verdict.all.count, verdict.all.of, verdict.queries) == (0, 100, 20)
    low, high = verdict.all.interval
    assert low == 0 and 0.03 < high < 0.04  # one-sided rule of three: 3 / 100, here two-sided
    positives = sum(is_positive(pools, task) for task in tasks)
    assert 20 < positives <= 40  # up to two per query
    assert (verdict.positives.of, verdict.negatives.of) == (positives, 100 - positives)


def test_errors_are_counted_on_both_sides_and_named(pools: Annotations, tmp_path: Path) -> None:
    tasks = tasks_of(pools, tmp_path / "tasks.json", queries=10)
    positive = next(n for n, task in enumerate(tasks) if is_positive(pools, task))
    negative = [n for n, task in enumerate(tasks) if not is_positive(pools, task)][:2]
    said = [
        answered(task, {"match": "yes" if is_positive(pools, task) != (n in (positive, *negative)) else "no"})
        for n, task in enumerate(tasks)
    ]
    verdict = judge_answers(pools, read_answers(export(tmp_path, said)))
    assert (verdict.all.count, verdict.positives.count, verdict.negatives.count) == (3, 1, 2)
    named = {(query, video): kind for query, video, kind in verdict.false}
    data = tasks[positive]["data"]
    assert named[data["query_id"], data["video_id"]] == "positive" and len(named) == 3
    wrong = [n in (positive, *negative) for n in range(len(tasks))]
    groups = [task["data"]["query_id"] for task in tasks]
    assert verdict.all.interval == rate_of(wrong, groups).interval
    assert any("falsely categorised: 6.0%" in line for line in verdict.lines())
    assert verdict.to_json()["falsely categorised"]["count"] == 3


def test_the_majority_decides_and_a_draw_is_left_out(pools: Annotations, tmp_path: Path) -> None:
    first, second, third = tasks_of(pools, tmp_path / "tasks.json", queries=1)[:3]
    truth = {id(task): "yes" if is_positive(pools, task) else "no" for task in (first, second, third)}
    other = {"yes": "no", "no": "yes"}
    right, wrong = truth[id(first)], other[truth[id(first)]]
    said = [
        answered(first, {"match": right}, {"match": wrong}, {"match": right}),
        answered(second, {"match": "yes"}, {"match": "no"}),
        answered(third, {"match": other[truth[id(third)]]}),
    ]
    verdict = judge_answers(pools, read_answers(export(tmp_path, said)))
    assert (verdict.all.count, verdict.all.of, verdict.undecided) == (1, 2, 1)
    assert verdict.agree == pytest.approx(1 / 4)  # one of three pairs agrees, then none of one


def test_moments_that_people_place_are_held_against_those_of_the_pool(
    pools: Annotations, tmp_path: Path
) -> None:
    tasks = [t for t in tasks_of(pools, tmp_path / "tasks.json", queries=6) if is_positive(pools, t)][:3]
    spans = []
    for task in tasks:
        judged = pools.qrels[task["data"]["query_id"]]
        moment = next(j.moment for j in judged if j.moment.video_id == task["data"]["video_id"])
        spans.append((moment.start, moment.end))
    said = [
        answered(tasks[0], {"match": "yes", "start": spans[0][0], "end": spans[0][1]}),
        answered(tasks[1], {"match": "yes", "start": spans[1][1] + 1, "end": spans[1][1] + 5}),
        answered(tasks[2], {"match": "yes", "start": 5, "end": 2}),  # an invalid span is ignored
    ]
    verdict = judge_answers(pools, read_answers(export(tmp_path, said)))
    assert (verdict.same_moment.count, verdict.same_moment.of) == (1, 2)
    assert verdict.all.count == 0


def test_answers_about_the_own_video_or_other_pools_are_counted_and_left_out(pools: Annotations) -> None:
    own = pools.queries[0].id
    known = next(video for video in pools.pools[own][1:])
    verdict = judge_answers(
        pools,
        [Answer(own, own.split("#")[0], True), Answer("nobody#0", known, True), Answer(own, known, True)],
    )
    assert verdict.unknown == 2 and verdict.all.of == 1
    with pytest.raises(UsageError, match="none of 1 answers is about a video added to its pools"):
        judge_answers(pools, [Answer("nobody#0", known, True)])


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"a": 1}, "is not an export"),
        ([3], r"\[0\]: is not an object: 3"),
        ([{"data": {"image": "x.jpg"}, "annotations": []}], r"\[0\]: has no query_id and video_id"),
        ([{"data": {"query_id": "a", "video_id": "b"}}], r"\[0\]\.annotations: is not a list"),
        ([{"query_id": "a", "video_id": "b", "match": "perhaps"}], r"\[0\]: is answered: 'perhaps'"),
        ([{"query_id": "a", "video_id": "b", "match": ["yes", "no"]}], r"is answered: \['yes', 'no'\]"),
        ([{"query_id": "a", "video_id": "b", "match": "yes", "start": "soon"}], "has the time: 'soon'"),
        (
            [{"data": {"query_id": "a", "video_id": "b"}, "annotations": [{"result": 3}]}],
            "result: is not a list",
        ),
    ],
)
def test_what_is_no_export_of_our_tasks_is_refused(tmp_path: Path, document: Any, told: str) -> None:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=told):
        read_answers(file)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "https://x/video.mp4"}, r"has no \{video_id\}"),
        ({"queries": 0}, "--queries 0"),
    ],
)
def test_tasks_that_cannot_be_are_refused(
    pools: Annotations, tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        write_tasks(pools, tmp_path / "tasks.json", **options)
    assert not (tmp_path / "tasks.json").exists()


def test_an_id_is_encoded_in_its_address_and_a_query_may_lack_judgements(tmp_path: Path) -> None:
    builder = AnnotationBuilder("pools")
    for query in ("judged", "unjudged"):
        builder.add_query(query, "a dog runs")
        builder.set_pool(query, ("own", "a b#1?.x"))
    builder.judge("judged", "own", 0.0, 1.0)
    tasks = tasks_of(builder.annotations(), tmp_path / "tasks.json", url="https://x/{video_id}.mp4")
    addresses = [(task["data"]["query_id"], task["data"]["video"]) for task in tasks]
    encoded = "https://x/a%20b%231%3F.x.mp4"
    assert sorted(addresses) == [
        ("judged", encoded), ("unjudged", encoded), ("unjudged", "https://x/own.mp4")
    ]  # fmt: skip


def test_judgements_without_pools_have_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no pools; give"):
        write_tasks(household(), tmp_path / "tasks.json")
