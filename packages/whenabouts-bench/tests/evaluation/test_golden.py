"""The exact numbers of the released programs. Every case file of the golden folder is read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.overlap import place_in_group, suppress, temporal_iou
from whenabouts_bench import formats
from whenabouts_bench.evaluation.evaluate import Evaluation, evaluate
from whenabouts_bench.evaluation.protocols import PROTOCOLS, Protocol
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunBlock, Task


def cases(folder: Path, pattern: str) -> list[Path]:
    """The case files of that name; skips where the golden folder has none."""
    found = sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))
    if not found:
        pytest.skip(f"{folder} has no {pattern}")
    return found


def block(lists: Mapping[str, list[list[Any]]]) -> RunBlock:
    """Lists of [video id, start, end, score], in their order."""
    rows = [row for rows in lists.values() for row in rows]
    names = tuple(dict.fromkeys(str(row[0]) for row in rows))
    return RunBlock(
        query_ids=tuple(lists),
        offsets=np.cumsum([0, *map(len, lists.values())]),
        video_ids=names,
        video=np.array([names.index(str(row[0])) for row in rows], np.int32),
        start=np.array([row[1] for row in rows], np.float64),
        end=np.array([row[2] for row in rows], np.float64),
        score=np.array([row[3] for row in rows], np.float64),
    )


# TVR ----------------------------------------------------------------------------------------------


def released_name(metric: str) -> tuple[str, str]:
    """(task, name) under which the released program reports "SVMR R@5,IoU=0.7"."""
    task, _, rest = metric.rpartition(" ")
    k, _, iou = rest.removeprefix("R@").partition(",IoU=")
    return (task or "VCMR", f"{iou}-r{k}" if iou else f"r{k}")


def test_tvr_agrees_with_the_released_numbers_to_the_digit(golden: Path) -> None:
    for truth in cases(golden / "metrics", "*_gt.jsonl"):
        stem = truth.name.removesuffix("_gt.jsonl")
        released = json.loads((truth.parent / f"{stem}_metrics.json").read_text())
        result = evaluate(truth, truth.parent / f"{stem}_submission.json", protocol="tvr")
        told = 0
        for metric, mean in result.means().items():
            task, name = released_name(metric)
            assert round(100 * mean, 2) == released[task][name], metric
            told += 1
        for kind, means in result.means_by("type").items():
            for metric, mean in means.items():
                task, name = released_name(metric)
                by_type = released.get(f"{task}_by_type", {})
                if f"{kind}-{name}" in by_type:
                    assert round(100 * mean, 2) == by_type[f"{kind}-{name}"], (kind, metric)
                    told += 1
        asked = sum(len(v) for k, v in released.items() if not k.endswith("_by_type"))
        asked += sum(
            name != "desc_type_ratio" and not math.isnan(value)  # of a type that no query has
            for kind, values in released.items()
            if kind.endswith("_by_type")
            for name, value in values.items()
        )
        assert told == asked
        assert not result.missing


def test_tvr_agrees_query_by_query(golden: Path) -> None:
    for values in cases(golden / "metrics", "tvr*_per_query.npz"):
        stem = values.name.removesuffix("_per_query.npz")
        released = np.load(values, allow_pickle=False)
        folder = values.parent
        result = evaluate(folder / f"{stem}_gt.jsonl", folder / f"{stem}_submission.json", protocol="tvr")
        order = [result.query_ids.index(str(query)) for query in released["desc_id"]]
        for task in ("VCMR", "SVMR", "VR"):
            assert released[task].shape == (len(order), 1 if task == "VR" else 2, 4)
            for i, iou in enumerate((0.5, 0.7) if task != "VR" else (None,)):
                for j, k in enumerate((1, 5, 10, 100)):
                    name = f"{task} R@{k},IoU={iou}" if iou else f"VR R@{k}"
                    column = result.column(name.removeprefix("VCMR "))[order]
                    np.testing.assert_array_equal(column, released[task][:, i, j], name)


def test_tvr_agrees_on_the_edges_one_query_at_a_time(golden: Path) -> None:
    for file in cases(golden / "metrics", "*edge_cases*.json"):
        for case in json.loads(file.read_text()):
            names = {code: name for name, code in case["video2idx"].items()}
            truth = AnnotationBuilder("edge", cut=False)
            truth.add_query("q", "text", type="v")
            truth.judge("q", case["gt_vid_name"], *case["gt_ts"])
            rows = [[names[row[0]], *row[1:]] for row in case["predictions"]]
            lists: dict[Task, tuple[RunBlock, ...]] = {
                task: (block({"q": rows}),) for task in ("VCMR", "SVMR", "VR")
            }
            means = evaluate(truth.annotations(), MemoryRun("edge", lists), protocol="tvr").means()
            for metric, mean in means.items():
                task, name = released_name(metric)
                released = case[task]
                # The released program fails at an empty list; ours counts it as a miss.
                assert 100 * mean == (0 if isinstance(released, str) else released[name]), (
                    case["name"],
                    metric,
                )


# Ranked moments -----------------------------------------------------------------------------------

CONVENTIONS = {
    "exp_gt": PROTOCOLS["rvmr-as-released"],
    "linear_ge": replace(PROTOCOLS["rvmr"], slack=0.0),  # the oracle compares floats as they are
    "exp_ge": Protocol("exp_ge", 1, "", (), gain="exponential"),
    "linear_gt": Protocol("linear_gt", 1, "", (), strict=True),
}


def ranked(file: Path, protocol: Protocol) -> tuple[Evaluation, dict[str, Any]]:
    """The evaluation of a file that holds truth and predictions."""
    released = json.loads(file.read_text())
    truth = AnnotationBuilder("ranked", cut=False)
    for query, moments in released["ground_truth"].items():
        truth.add_query(query)
        for moment in moments:
            start, end = moment["timestamp"]
            truth.judge(query, moment["video_name"], start, end, moment["relevance"])
    run = MemoryRun(
        "ranked",
        {
            "VCMR": (
                block(
                    {
                        query: [[m["video_name"], *m["timestamp"], -rank] for rank, m in enumerate(moments)]
                        for query, moments in released["predictions"].items()
                    }
                ),
            )
        },
    )
    metrics = [f"nDCG@{k},IoU={t}" for k in released["KS"] for t in released["TS"]]
    return evaluate(truth.annotations(), run, metrics, protocol=protocol), released


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_ndcg_agrees_in_all_conventions(golden: Path, convention: str) -> None:
    for file in cases(golden / "metrics", "ndcg_iou*.json"):
        result, released = ranked(file, CONVENTIONS[convention])
        answered = [query in released["predictions"] for query in result.query_ids]
        per_query = np.load(file.with_name(f"{file.stem}_per_query.npz"), allow_pickle=False)
        order = [result.query_ids.index(str(query)) for query in per_query["query_id"]]
        for i, k in enumerate(released["KS"]):
            for j, iou in enumerate(released["TS"]):
                column = result.column(f"nDCG@{k},IoU={iou}")
                mean = released["mean_ndcg"][convention][f"K{k}"][f"T{iou}"]
                assert column[answered].mean() == pytest.approx(mean, abs=1e-9)
                values = per_query[f"per_query_{convention}"][:, i, j]
                np.testing.assert_allclose(column[order], values, atol=1e-9, rtol=0)


def test_rvmr_counts_missing_queries_as_zero_and_its_released_twin_leaves_them_out(golden: Path) -> None:
    for file in cases(golden / "metrics", "ndcg_iou*.json"):
        right, released = ranked(file, PROTOCOLS["rvmr"])
        missing = set(released["ground_truth"]) - set(released["predictions"])
        assert set(right.missing) == missing
        assert set(right.query_ids) == set(released["ground_truth"])
        wrong, _ = ranked(file, PROTOCOLS["rvmr-as-released"])
        assert set(wrong.query_ids) == set(released["ground_truth"]) - missing
        for k in released["KS"]:
            for iou in released["TS"]:
                mean = wrong.means()[f"nDCG@{k},IoU={iou}"]
                assert mean == pytest.approx(released["mean_ndcg"]["exp_gt"][f"K{k}"][f"T{iou}"], abs=1e-9)


def test_ndcg_agrees_through_files(golden: Path, tmp_path: Path) -> None:
    for file in cases(golden / "metrics", "ndcg_iou*.json"):
        released = json.loads(file.read_text())
        truth, run = tmp_path / "truth.json", tmp_path / "run.json.gz"
        truth.write_text(json.dumps(released["ground_truth"]))
        formats.write_run(formats.open_run(_dumped(tmp_path, released["predictions"])), run, "tvr-ranking")
        metrics = [f"nDCG@{k},IoU={t}" for k in released["KS"] for t in released["TS"]]
        result = evaluate(truth, run, metrics, protocol="rvmr", as_released=True)
        for k in released["KS"]:
            for iou in released["TS"]:
                mean = result.means()[f"nDCG@{k},IoU={iou}"]
                assert mean == pytest.approx(released["mean_ndcg"]["exp_gt"][f"K{k}"][f"T{iou}"], abs=1e-9)


def _dumped(folder: Path, value: Any) -> Path:
    path = folder / "predictions.json"
    path.write_text(json.dumps(value))
    return path


# Suppression and IoU ------------------------------------------------------------------------------


def survivors(rows: list[list[float]], threshold: float, limit: int) -> list[list[float]]:
    """Rows [start, end, score] that survive; equal scores keep their order."""
    if len(rows) < 2:
        return rows  # the released function returns a single prediction unchanged
    columns = np.array(rows, np.float64).reshape(-1, 3)
    rank = np.argsort(np.argsort(-columns[:, 2], kind="stable"), kind="stable").astype(np.float64)
    groups = np.zeros(len(rows), np.int64)
    kept = suppress(groups, columns[:, 0], columns[:, 1], -rank, threshold, max(limit, 1), "hull")
    return [rows[number] for number in kept.tolist()][:limit]


def test_suppression_agrees(golden: Path) -> None:
    for file in cases(golden / "metrics", "nms_pairs*.json"):
        for case in json.loads(file.read_text()):
            got = survivors(case["input"], case["threshold"], case["max_after_nms"])
            assert got == case["output"], case["name"]


def test_suppression_in_several_videos_agrees(golden: Path) -> None:
    for file in cases(golden / "metrics", "nms_multi_video*.json"):
        for case in json.loads(file.read_text()):
            rows = case["input"][: case["max_before_nms"]]
            merged: list[list[float]] = []
            for video in dict.fromkeys(row[0] for row in rows):
                own = survivors([row[1:] for row in rows if row[0] == video], case["threshold"], 100)
                merged.extend([video, *row] for row in own)
            merged = sorted(merged, key=lambda row: -row[3])[: case["max_after_nms"]]
            assert merged == case["output"]


def test_iou_of_pairs_agrees(golden: Path) -> None:
    for file in cases(golden / "metrics", "iou_pairs*.json"):
        pairs = json.loads(file.read_text())
        a = np.array([pair["a"] for pair in pairs], np.float64).T
        b = np.array([pair["b"] for pair in pairs], np.float64).T
        np.testing.assert_array_equal(
            temporal_iou(a[0], a[1], b[0], b[1], "hull"), [pair["iou"] for pair in pairs]
        )


# Pools of several videos --------------------------------------------------------------------------


def grid(durations: NDArray[np.float64], clips: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Start and end of the upper triangle of a map, row by row, as the reference rounds them: (V, C) each."""
    row, column = np.triu_indices(clips)
    seconds = durations.astype(np.float32)[:, None]
    start = row.astype(np.float32) * seconds / np.float32(clips)
    return start, (column + 1).astype(np.float32) * seconds / np.float32(clips)


class BestMoments(NamedTuple):
    """The first moments of Q queries, all (Q, limit); the video is -1 where there are fewer."""

    video: NDArray[np.int64]
    start: NDArray[Any]
    end: NDArray[Any]
    score: NDArray[Any]


def best_moments(
    scores: NDArray[Any],
    start: NDArray[Any],
    end: NDArray[Any],
    pools: NDArray[np.int64],
    iou: float,
    limit: int,
) -> BestMoments:
    """The best moments of each query's pool after suppression in each video.

    `scores` (Q, P, C), -inf for no proposal; `start` and `end` (V, C); `pools` (Q, P).
    """
    query, place, cell = np.nonzero(scores > -np.inf)
    video, score = pools[query, place], scores[query, place, cell]
    begin, stop = start[video, cell], end[video, cell]
    kept = suppress(query * pools.shape[1] + place, begin, stop, score, iou, limit, over="hull")
    kept = kept[np.argsort(query[kept], kind="stable")]
    rank = place_in_group(query[kept])
    kept, rank = kept[rank < limit], rank[rank < limit]

    def column(values: NDArray[Any], none: float) -> NDArray[Any]:
        filled = np.full((len(pools), limit), none, values.dtype)
        filled[query[kept], rank] = values[kept]
        return filled

    return BestMoments(column(video, -1), column(begin, 0), column(stop, 0), column(score, -np.inf))


def as_run(best: BestMoments) -> MemoryRun:
    """Best moments as a run of queries and videos named by their numbers."""
    lists = {
        str(number): [
            [str(best.video[number, i]), best.start[number, i], best.end[number, i], best.score[number, i]]
            for i in np.flatnonzero(best.video[number] >= 0)
        ]
        for number in range(len(best.video))
    }
    return MemoryRun("pools", {"VCMR": (block(lists),)})


def pool_truth(case: Mapping[str, Any], frames_to_seconds: bool) -> Annotations:
    """The judgements of a pool file; further positives as released, or made seconds."""
    truth = AnnotationBuilder("pools", cut=False)
    for number, query in enumerate(case["queries"]):
        own = query["origin_video"]
        truth.add_query(str(number))
        truth.judge(str(number), str(own), *query["golden"])
        for video, (start, end) in query["extra_positives_as_released"]:
            rate = case["fps"][str(video)] if frames_to_seconds else 1
            truth.judge(str(number), str(video), start / rate, end / rate)
        truth.set_pool(str(number), [str(video) for video in query["pool_sorted_video_index"]])
    return truth.annotations()


def pools_of(case: Mapping[str, Any]) -> NDArray[np.int64]:
    """(Q, P) the numbers of the videos in each query's pool."""
    return np.array([query["pool_sorted_video_index"] for query in case["queries"]])


def subset(file: Path) -> tuple[dict[str, Any], MemoryRun, BestMoments]:
    case = json.loads(file.read_text())
    durations = np.zeros(max(map(int, case["videos"])) + 1)
    for number, video in case["videos"].items():
        durations[int(number)] = video["duration"]
    start, end = grid(durations, case["num_clips"])
    pools = pools_of(case)
    scores = np.load(file.with_suffix(".npz"), allow_pickle=False)["scores_u16"] / np.float32(65536)
    limit = max(_merged(file), *(int(name[2:].split(",")[0]) for name in case["result"] if name[:2] == "R@"))
    best = best_moments(scores, start, end, pools, iou=case["nms_thresh"], limit=limit)
    return case, as_run(best), best


def _merged(file: Path) -> int:
    """How many of the merged list a file has."""
    with np.load(file.with_suffix(".npz"), allow_pickle=False) as released:
        (name,) = [name for name in released.files if re.fullmatch(r"merged_top\d+\.score", name)]
    return int(name.removeprefix("merged_top").removesuffix(".score"))


def ours(name: str) -> str:
    """ "R@1,IoU@0.3" as we write it."""
    return name.replace("IoU@", "IoU=")


def assert_told_means(found: Mapping[str, float], told: Mapping[str, float]) -> None:
    """Each that is told; "Best_R5" is, over thresholds, the mean at the second k, whatever that is."""
    every = dict.fromkeys(name.split(",")[0] for name in told if "," in name)
    best = dict(zip(("Best_R1", "Best_R5"), every, strict=False))
    for name, value in told.items():
        same = [one for one in told if one.split(",")[0] == best[name]] if name in best else [name]
        means = [found[ours(one)] for one in same]
        assert np.mean(means) == pytest.approx(value, abs=1e-6), name


def pool_files(golden: Path) -> Iterator[Path]:
    yield from cases(golden / "mvmr_eval", "*_subset.json")


def test_merged_lists_of_pools_agree(golden: Path) -> None:
    for file in pool_files(golden):
        _, _, best = subset(file)
        released = np.load(file.with_suffix(".npz"), allow_pickle=False)
        count = _merged(file)
        name = f"merged_top{count}"
        video = best.video[:, :count]
        moments = np.stack([best.start, best.end], -1)[:, :count]
        np.testing.assert_array_equal(video, released[f"{name}.video_index"])
        np.testing.assert_array_equal(moments, released[f"{name}.moment"])
        np.testing.assert_array_equal(best.score[:, :count], released[f"{name}.score"])


def test_as_many_moments_of_each_video_survive_as_released(golden: Path) -> None:
    for file in pool_files(golden):
        case = json.loads(file.read_text())
        pools = pools_of(case)
        released = np.load(file.with_suffix(".npz"), allow_pickle=False)
        scores = released["scores_u16"].astype(np.float64)
        durations = np.array([case["videos"][str(video)]["duration"] for video in pools.ravel()])
        spans: tuple[Any, Any] = grid(durations, case["num_clips"])
        start, end = (one.ravel() for one in spans)
        group = np.arange(pools.size).repeat(scores.shape[2])
        kept = suppress(group, start, end, scores.ravel(), case["nms_thresh"], over="hull")
        count = np.bincount(group[kept], minlength=pools.size).reshape(pools.shape)
        np.testing.assert_array_equal(count, released["nms_survivors_per_video"])


def test_recall_in_pools_agrees_query_by_query(golden: Path) -> None:
    for file in pool_files(golden):
        case, run, _ = subset(file)
        released = np.load(file.with_suffix(".npz"), allow_pickle=False)
        names = [ours(str(name)) for name in released["recall_keys"]]
        result = evaluate(pool_truth(case, False), run, names, protocol="mvmr-as-released")
        order = [int(query) for query in result.query_ids]
        np.testing.assert_array_equal(result.values, released["hits_per_query"][order])
        assert_told_means(result.means(), case["result"])


def test_recall_in_pools_agrees_where_seconds_are_seconds(golden: Path) -> None:
    untold = []
    for file in pool_files(golden):
        case, run, _ = subset(file)
        frames = case.get("fps") is not None
        wanted = case.get("result_if_extra_positives_are_converted_to_seconds" if frames else "result")
        if wanted is None:
            untold.append(file.name)
            continue
        names = [name for name in wanted if name.startswith("R@")]
        result = evaluate(pool_truth(case, frames), run, [ours(name) for name in names], protocol="mvmr")
        assert_told_means(result.means(), wanted)
    if untold:
        pytest.skip(f"{', '.join(untold)}: positives in frames, and no result from seconds")


def test_recall_from_the_scores_of_feature_files_agrees(golden: Path) -> None:
    for file in cases(golden / "mvmr_eval", "feature_level_*.npz"):
        released = np.load(file, allow_pickle=False)
        config, pool_of = json.loads(str(released["config"])), json.loads(str(released["info_json"]))
        kept = json.loads(str(released["sample_indices"]))
        removed = json.loads(str(released["removed"]))
        names = sorted(pool_of)
        valid = np.flatnonzero(released["mask2d"].reshape(-1))
        row, column = valid // config["N"], valid % config["N"]
        seconds = released["duration"].astype(np.float32)[:, None]
        start = row.astype(np.float32) * seconds / np.float32(config["N"])
        end = (column + 1).astype(np.float32) * seconds / np.float32(config["N"])
        truth = AnnotationBuilder("features", cut=False)
        scores: list[Any] = []
        pools: list[Any] = []
        for video, sentence in released["query_order"].tolist():
            used = [
                i for i in range(len(pool_of[names[video]]["retrieval_pool"])) if i not in removed[str(video)]
            ]
            position = used.index(sentence) if sentence in used else sentence
            number = str(len(scores))
            scores.append(released[f"confidence.{video}"][position])
            pools.append(kept[str(video)][position])
            spans = np.stack([start, end], -1)[pools[-1]]
            np.testing.assert_allclose(spans, released[f"moments.{video}"][position], rtol=1e-6)
            truth.add_query(number)
            moment = released[f"in.moments.{video}"][used[position]]
            truth.judge(number, str(video), *moment.astype(np.float64).tolist())
            for extra, _, span in pool_of[names[video]]["pos_moments"][used[position]]:
                truth.judge(number, str(names.index(extra)), *span)
            truth.set_pool(number, [str(v) for v in pools[-1]])
        places = np.array(pools)
        best = best_moments(
            np.array(scores), start, end, places, iou=config["nms"], limit=max(config["recall"])
        )
        asked = [ours(str(name)) for name in released["recall_keys"]]
        result = evaluate(truth.annotations(), as_run(best), asked, protocol="mvmr")
        np.testing.assert_array_equal(result.values, released["hits_per_query"])
        assert_told_means(result.means(), json.loads(str(released["result"])))


def test_a_run_of_pools_comes_back_from_its_file_bit_by_bit(golden: Path, tmp_path: Path) -> None:
    for file in pool_files(golden):
        case, run, _ = subset(file)
        written = tmp_path / f"{file.stem}.jsonl.gz"
        formats.write_run(run, written, "jsonl")
        (before,), (after,) = run.blocks(), formats.open_run(written).blocks()
        assert before.query_ids == after.query_ids
        np.testing.assert_array_equal(before.offsets, after.offsets)
        for name in ("start", "end", "score"):
            np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
        names = [np.array(one.video_ids)[one.video].tolist() for one in (before, after)]
        assert names[0] == names[1]
        truth = pool_truth(case, frames_to_seconds=False)
        told = [evaluate(truth, one, protocol="mvmr-as-released").means() for one in (run, written)]
        assert told[0] == told[1]


def test_suppression_and_recall_in_one_video_agree(golden: Path) -> None:
    for file in cases(golden / "mmn", "nms_and_recall*.npz"):
        released = np.load(file, allow_pickle=False)
        for data in sorted({name.split(".")[0] for name in released.files if name.endswith(".result")}):
            _one_video(released, data)


def _one_video(released: Mapping[str, Any], data: str) -> None:
    durations, mask = released[f"{data}.duration"], released[f"{data}.mask2d"]
    valid = np.flatnonzero(mask.reshape(-1))
    size = len(mask)
    truth, lists = AnnotationBuilder(data, cut=False), {}
    for video, duration in enumerate(durations.tolist()):
        start = (valid // size).astype(np.float32) * np.float32(duration) / np.float32(size)
        end = (valid % size + 1).astype(np.float32) * np.float32(duration) / np.float32(size)
        for sentence, scores in enumerate(released[f"{data}.scores2d.{video}"]):
            cells = scores.reshape(-1)[valid]
            cells = np.where(cells != 0, cells, -np.inf)
            best = best_moments(
                cells[None, None],
                start[None],
                end[None],
                np.array([[0]]),
                iou=float(released[f"{data}.nms_thresh"]),
                limit=len(valid),
            )
            count = int((best.video[0] >= 0).sum())
            moments = np.stack([best.start[0, :count], best.end[0, :count]], -1)
            np.testing.assert_array_equal(moments, released[f"{data}.nms_moments.{video}.{sentence}"])
            query = f"{video}#{sentence}"
            truth.add_query(query)
            truth.set_pool(query, [str(video)])
            gold = released[f"{data}.gt_moments.{video}"][sentence].astype(np.float64)
            truth.judge(query, str(video), *gold.tolist())
            rows = zip(moments.tolist(), best.score[0, :count].tolist(), strict=True)
            lists[query] = [[str(video), *moment, score] for moment, score in rows]
    wanted = json.loads(str(released[f"{data}.result"]))
    names = [name for name in wanted if name.startswith("R@")]
    run = MemoryRun(data, {"VCMR": (block(lists),)})
    result = evaluate(truth.annotations(), run, [ours(name) for name in names], protocol="mvmr")
    assert names
    for name in names:
        assert result.means()[ours(name)] == pytest.approx(wanted[name], abs=1e-6), name
