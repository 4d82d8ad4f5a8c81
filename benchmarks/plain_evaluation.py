"""The evaluation in plain Python: one query, row and judged moment at a time. An oracle and a yardstick.

It shares nothing with the package: tests hold the numbers against it, benchmarks the time.
Truth is query -> [(video, start, end, grade)]; a run is query -> [(video, start, end, score)], best first.
"""

from __future__ import annotations

import math

Moments = list[tuple[str, float, float, float]]


def iou(a_start: float, a_end: float, b_start: float, b_end: float) -> float:
    """Intersection over union of two spans."""
    shared = max(0.0, min(a_end, b_end) - max(a_start, b_start))
    union = (a_end - a_start) + (b_end - b_start) - shared
    return shared / union if union > 0 else 0.0


def recall(
    truth: dict[str, Moments], run: dict[str, Moments], k: int, least: float, task: str = "VCMR"
) -> dict[str, float]:
    """R@k of moments (VCMR), of moments in the video judged first (SVMR), or of videos (VR)."""
    values = {}
    for query, judged in truth.items():
        answers = run.get(query, [])
        right = [moment for moment in judged if moment[3] > 0]
        if task == "VR":
            videos: list[str] = []
            for answer in answers:
                if answer[0] not in videos:
                    videos.append(answer[0])
            values[query] = float(any(video in {moment[0] for moment in right} for video in videos[:k]))
            continue
        if task == "SVMR":
            answers = [answer for answer in answers if answer[0] == judged[0][0]]
        values[query] = float(
            any(
                answer[0] == moment[0] and iou(answer[1], answer[2], moment[1], moment[2]) >= least
                for answer in answers[:k]
                for moment in right
            )
        )
    return values


def ndcg(
    truth: dict[str, Moments],
    run: dict[str, Moments],
    k: int,
    least: float,
    *,
    exponential: bool = False,
    strict: bool = False,
) -> dict[str, float]:
    """nDCG@k: rows take, in their order, the judged moment left with the highest IoU, if that is enough."""
    values = {}
    for query, judged in truth.items():
        left = sorted(judged, key=lambda moment: -moment[3])
        grades = []
        for video, start, end, _ in run.get(query, [])[:k]:
            best, place = -1.0, -1
            for number, moment in enumerate(left):
                if moment[0] == video:
                    overlap = iou(start, end, moment[1], moment[2])
                    if overlap > best:
                        best, place = overlap, number
            enough = best > least if strict else best >= least
            grades.append(left.pop(place)[3] if place >= 0 and enough else 0.0)
        ideal = sorted((moment[3] for moment in judged), reverse=True)[:k]
        whole = _dcg(ideal, exponential)
        values[query] = _dcg(grades, exponential) / whole if whole > 0 else 0.0
    return values


def _dcg(grades: list[float], exponential: bool) -> float:
    return sum(
        (2**grade - 1 if exponential else grade) / math.log2(rank + 2) for rank, grade in enumerate(grades)
    )


def average_precision(truth: dict[str, Moments], run: dict[str, Moments], least: float) -> dict[str, float]:
    """AP as in detection: one-to-one matches in the order of the list, interpolated precision."""
    values = {}
    for query, judged in truth.items():
        right = [moment for moment in judged if moment[3] > 0]
        free = set(range(len(right)))
        hits, precision = 0, []
        for rank, (video, start, end, _) in enumerate(run.get(query, [])):
            overlaps = [
                (iou(start, end, right[number][1], right[number][2]), -number)
                for number in free
                if right[number][0] == video
            ]
            best = max(overlaps, default=(-1.0, 0))
            if best[0] >= least:
                free.remove(-best[1])
                hits += 1
                precision.append(hits / (rank + 1))
        interpolated = [max(precision[number:]) for number in range(len(precision))]
        values[query] = sum(interpolated) / len(right) if right else 0.0
    return values


def suppressed(moments: Moments, most: float) -> Moments:
    """Greedy non-maximum suppression of one list: the best first, and what shares too much with it goes."""
    left = sorted(moments, key=lambda moment: -moment[3])
    kept: Moments = []
    while left:
        best = left.pop(0)
        kept.append(best)
        left = [moment for moment in left if iou(best[1], best[2], moment[1], moment[2]) <= most]
    return kept
