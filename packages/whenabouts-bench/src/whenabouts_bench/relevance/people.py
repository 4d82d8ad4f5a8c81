"""Check MVMR pools with annotators: export tasks for Label Studio, import answers, report the error rate.

Paper 002 (section 5.2; the form is figure 10 of 001) asks for 100 queries and each video added to their
pools: does the video contain the described moment, and where? Positives without one and negatives with one
are falsely categorised: 1.5 % for Charades-STA, 0.2 % for ActivityNet Captions, 3.5 % for TACoS. Queries'
source videos are not asked about.

The check is blind: tasks do not show whether a video is a positive or a negative, and their order is random.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from whenabouts.confidence.rates import Rate, rate_of
from whenabouts.intake.files import write_atomically
from whenabouts.types import Moment, Query, UsageError, number_of
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.json_records import Origin
from whenabouts_bench.formats.label_studio_export import only, read_export

LABELLING = """\
<View>
  <Header value="Is there a moment in this video that the sentence describes?"/>
  <Text name="sentence" value="$query"/>
  <Video name="video" value="$video"/>
  <Choices name="match" toName="video" choice="single" required="true">
    <Choice value="yes"/>
    <Choice value="no"/>
  </Choices>
  <Header value="If there is: from which second to which? Leave it empty if there is none."/>
  <Number name="start" toName="video" min="0" step="0.1"/>
  <Number name="end" toName="video" min="0" step="0.1"/>
</View>
"""
"""The labelling interface for the project's settings; `read_answers` relies on its names."""

VIDEO_URL = "/data/local-files/?d=videos/{video_id}.mp4"
"""The address of a video in Label Studio's local storage, whose root has a folder `videos`."""

_SAME = 0.5


def write_tasks(
    annotations: Annotations, path: Path, *, queries: int = 100, url: str = VIDEO_URL, seed: int = 0
) -> int:
    """Write Label Studio tasks for the videos added to the pools of drawn queries; return how many.

    `url` contains {video_id}, which becomes the percent-encoded id. Raises UsageError as `drawn_pairs` does.
    """
    if "{video_id}" not in url:
        raise UsageError(f"--video-url {url!r}: has no {{video_id}}, where the id of a video goes")
    tasks = []
    for query, video in drawn_pairs(annotations, queries, seed):
        names = {"query": query.text, "query_id": query.id, "video_id": video}
        tasks.append({"data": {"video": url.replace("{video_id}", quote(video, safe="")), **names}})
    with write_atomically(path) as stream:
        stream.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode() + b"\n")
    return len(tasks)


def drawn_pairs(annotations: Annotations, queries: int, seed: int) -> list[tuple[Query, str]]:
    """(query, added video) of the pools of randomly drawn queries, in random order.

    Raises UsageError if there are no pools, and for less than one query.
    """
    if queries < 1:
        raise UsageError(f"--queries {queries}: give 1 or more")
    full = _queries_with_full_pools(annotations)
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.permutation(len(full))[:queries]).tolist()
    pairs = [(full[number], video) for number in chosen for video in _added(annotations, full[number])]
    shuffled = (pairs[place] for place in draw.permutation(len(pairs)).tolist())
    return [(annotations.queries[number], video) for number, video in shuffled]


def _queries_with_full_pools(annotations: Annotations) -> list[int]:
    """Indices of the queries with a pool of the largest size."""
    sizes = [len(annotations.pools.get(query.id, ())) for query in annotations.queries]
    if not sizes or not max(sizes):
        raise UsageError(
            f"{annotations.name}: has no pools; give a file of `whenabouts build mvmr`, or an MVMR file"
        )
    return [number for number, size in enumerate(sizes) if size == max(sizes)]


def _added(annotations: Annotations, query: int) -> list[str]:
    """The videos of a pool except the query's source video."""
    query_id = annotations.queries[query].id
    source = annotations.first_videos.get(query_id)
    return [video for video in annotations.pools[query_id] if video != source]


@dataclass(frozen=True)
class Answer:
    """One annotator's answer about a query and a video; `start` and `end` are seconds, or None."""

    query_id: str
    video_id: str
    match: bool
    start: float | None = None
    end: float | None = None


def read_answers(path: Path) -> list[Answer]:
    """The answers of a Label Studio export, without empty ones. Raises FormatError, with the task."""
    answers: list[Answer] = []
    for place, data, entered in read_export(path):
        names = [data.get(key) for key in ("query_id", "video_id")]
        if not all(isinstance(name, str) and name for name in names):
            raise place.error("has no query_id and video_id: it is not a task that `build tasks` wrote")
        given = (_answer(place, str(names[0]), str(names[1]), entry.values) for entry in entered)
        answers += [answer for answer in given if answer is not None]
    return answers


def _answer(place: Origin, query_id: str, video_id: str, values: Mapping[str, Any]) -> Answer | None:
    match = only(values.get("match"))
    if match in (None, []):
        return None
    if match not in ("yes", "no"):
        raise place.error("is answered:", match, "yes or no")
    times = [values.get(name) for name in ("start", "end")]
    for time in times:
        if time is not None and (isinstance(time, bool) or not isinstance(time, int | float)):
            raise place.error("has the time:", time, "seconds, a number")
    return Answer(query_id, video_id, match == "yes", *times)


@dataclass(frozen=True)
class Verdict:
    """The rates of falsely categorised videos.

    Intervals treat answers about one query as correlated (`rates.py`). `undecided` pairs are ties and left
    out, `unknown` answers concern queries or videos outside the pools. `agree` is the pairwise agreement of
    annotators, None if no pair was answered twice; `same_moment` the share of positives where an annotator's
    moment has an IoU of at least 0.5 with the pool's.
    """

    all: Rate
    positives: Rate
    negatives: Rate
    queries: int
    undecided: int
    unknown: int
    agree: float | None
    same_moment: Rate
    false: tuple[tuple[str, str, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "falsely categorised": self.all.to_json(),
            "of the positives": self.positives.to_json(),
            "of the negatives": self.negatives.to_json(),
            "queries": self.queries,
            "undecided": self.undecided,
            "unknown": self.unknown,
            "agreement": self.agree,
            "same moment": self.same_moment.to_json(),
            "false": [list(row) for row in self.false],
        }

    def lines(self) -> Iterator[str]:
        yield f"falsely categorised: {self.all}, in the pools of {number_of(self.queries, 'query')}"
        yield f"  positives in which nobody finds it: {self.positives}"
        yield f"  negatives in which people find it: {self.negatives}"
        yield f"moments of positives that people place alike (IoU 0.5): {self.same_moment}"
        if self.agree is not None:
            yield f"two people agree about a video: {self.agree:.1%}"
        for count, what in (
            (self.undecided, "videos have as many yes as no, and are left out"),
            (self.unknown, "answers are about videos that are in none of the pools, and are left out"),
        ):
            if count:
                yield f"{count} {what}"
        yield from (f"  {kind}: {query_id} {video_id}" for query_id, video_id, kind in self.false[:20])


def judge_answers(annotations: Annotations, answers: Sequence[Answer]) -> Verdict:
    """The verdict; the majority of annotators decides. Raises UsageError if no answer concerns the pools."""
    moments = _positive_moments(annotations)
    added = {
        (query.id, video) for number, query in enumerate(annotations.queries)
        if query.id in annotations.pools for video in _added(annotations, number)
    }  # fmt: skip
    by_pair: dict[tuple[str, str], list[Answer]] = {}
    for answer in answers:
        by_pair.setdefault((answer.query_id, answer.video_id), []).append(answer)
    unknown = sum(len(by_pair.pop(pair)) for pair in list(by_pair) if pair not in added)
    if not by_pair:
        raise UsageError(
            f"{annotations.name}: none of {len(answers)} answers is about a video added to its pools; give "
            "the pool file that the tasks were made from"
        )
    votes = {pair: sum(1 if a.match else -1 for a in given) for pair, given in by_pair.items()}
    decided = {pair: vote > 0 for pair, vote in votes.items() if vote}
    wrong = {pair: is_match != (pair in moments) for pair, is_match in decided.items()}
    return Verdict(
        all=_rate(wrong),
        positives=_rate({pair: is_wrong for pair, is_wrong in wrong.items() if pair in moments}),
        negatives=_rate({pair: is_wrong for pair, is_wrong in wrong.items() if pair not in moments}),
        queries=len({query for query, _ in decided}),
        undecided=len(votes) - len(decided),
        unknown=unknown,
        agree=_agreement(by_pair),
        same_moment=_same_moment(by_pair, moments),
        false=tuple(
            (*pair, "positive" if pair in moments else "negative") for pair in sorted(wrong) if wrong[pair]
        ),
    )


def _positive_moments(annotations: Annotations) -> dict[tuple[str, str], list[Moment]]:
    return {
        (query_id, video): [j.moment for j in judged if j.moment.video_id == video and j.relevance > 0]
        for query_id, judged in annotations.qrels.items()
        for video in {j.moment.video_id for j in judged if j.relevance > 0}
    }


def _rate(wrong: Mapping[tuple[str, str], bool]) -> Rate:
    return rate_of(list(wrong.values()), [query for query, _ in wrong])


def _agreement(by_pair: Mapping[tuple[str, str], Sequence[Answer]]) -> float | None:
    """The share of pairs of annotators who agree, over all videos with several answers."""
    same = of = 0
    for given in by_pair.values():
        for count in Counter(answer.match for answer in given).values():
            same += count * (count - 1) // 2
        of += len(given) * (len(given) - 1) // 2
    return same / of if of else None


def _same_moment(
    by_pair: Mapping[tuple[str, str], Sequence[Answer]], moments: Mapping[tuple[str, str], Sequence[Moment]]
) -> Rate:
    hits, groups = [], []
    for pair, given in by_pair.items():
        for answer in given:
            if not answer.match or answer.start is None or answer.end is None or pair not in moments:
                continue
            if 0 <= answer.start < answer.end:
                theirs = Moment(pair[1], answer.start, answer.end)
                hits.append(any(theirs.iou(ours) >= _SAME for ours in moments[pair]))
                groups.append(pair[0])
    return rate_of(hits, groups)
