"""People's check of MVMR pools, by way of Label Studio: tasks out, answers in, how many videos are in error.

The paper (002, section 5.2; the form is figure 10 of 001) asks for 100 queries and each video that was added
to their pool: is there a moment in the video that the text describes, and where? A positive without one and
a negative with one are falsely categorised: 1.5 % for Charades-STA, 0.2 % for ActivityNet Captions, 3.5 %
for TACoS. The queries' own videos are not asked about.

A task does not say in which part of the pool its video is, and tasks come in random order: people answer
blindly, and their answers are compared with the pool file afterwards.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.confidence.rates import Rate, rate_of
from whenabouts.intake.files import write_atomically
from whenabouts.types import Moment, UsageError, number_of
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.json_records import Origin
from whenabouts_bench.formats.label_studio_export import read_export

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
"""The labelling interface to paste into the project's settings; `read_answers` knows its names."""

VIDEO_URL = "/data/local-files/?d=videos/{video_id}.mp4"
"""Where Label Studio finds a video of its local storage, whose root holds a folder `videos`."""

_SAME = 0.5


def write_tasks(
    annotations: Annotations, path: Path, *, queries: int = 100, url: str = VIDEO_URL, seed: int = 0
) -> int:
    """Write tasks for Label Studio: the videos added to the pools of some queries, drawn by chance.

    `url` has {video_id} where the id goes. The number of tasks. Raises UsageError where there are no full
    pools.
    """
    if "{video_id}" not in url:
        raise UsageError(f"--video-url {url!r}: has no {{video_id}}, where the id of a video goes")
    if queries < 1:
        raise UsageError(f"--queries {queries}: give 1 or more")
    full = _queries_with_full_pools(annotations)
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.permutation(len(full))[:queries]).tolist()
    pairs = [(full[number], video) for number in chosen for video in _added(annotations, full[number])]
    tasks = [
        {
            "data": {
                "video": url.replace("{video_id}", pairs[place][1]),
                "query": annotations.queries[pairs[place][0]].text,
                "query_id": annotations.queries[pairs[place][0]].id,
                "video_id": pairs[place][1],
            }
        }
        for place in draw.permutation(len(pairs)).tolist()
    ]
    with write_atomically(path) as stream:
        stream.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode() + b"\n")
    return len(tasks)


def _queries_with_full_pools(annotations: Annotations) -> list[int]:
    """Numbers of the queries whose pool is as large as the largest."""
    sizes = [len(annotations.pools.get(query.id, ())) for query in annotations.queries]
    if not sizes or not max(sizes):
        raise UsageError(
            f"{annotations.name}: has no pools to check; give what `whenabouts build mvmr` wrote, or an MVMR "
            "file"
        )
    return [number for number, size in enumerate(sizes) if size == max(sizes)]


def _added(annotations: Annotations, query: int) -> list[str]:
    """The videos of a pool beside the query's own."""
    pool = annotations.pools[annotations.queries[query].id]
    own = int(annotations.video[np.searchsorted(annotations.query, query)])
    return [video for video in pool if video != annotations.videos[own].id]


@dataclass(frozen=True)
class Answer:
    """One person's answer about a query and a video; `start` and `end` are seconds, None where not given."""

    query_id: str
    video_id: str
    match: bool
    start: float | None = None
    end: float | None = None


def read_answers(path: Path) -> list[Answer]:
    """The answers of a Label Studio export, one a person and task; cancelled and empty ones are left out.

    Raises FormatError, naming the task, for what is no export of our tasks.
    """
    answers: list[Answer] = []
    for place, data, entered in read_export(path):
        names = [data.get(key) for key in ("query_id", "video_id")]
        if not all(isinstance(name, str) and name for name in names):
            raise place.error(
                "has no query_id and video_id: it is none of the tasks that `build tasks` wrote"
            )
        given = (_answer(place, str(names[0]), str(names[1]), own.values) for own in entered)
        answers += [answer for answer in given if answer is not None]
    return answers


def _answer(place: Origin, query_id: str, video_id: str, values: Mapping[str, Any]) -> Answer | None:
    match = values.get("match")
    if isinstance(match, list):
        match = match[0] if len(match) == 1 else None
    if match is None:
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
    """How many videos people found falsely categorised.

    Intervals count the answers about one query as hanging together (`rates.py`). `undecided` pairs have as
    many yes as no and are left out, `unknown` answers are about queries or videos that are in none of the
    pools. `agree` is how often two people agreed on a pair, None where nobody was asked twice;
    `same_moment` the share of positives with a moment of a person whose IoU with the pool's is at least 0.5.
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
        """For programs."""
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
        """For people."""
        yield f"falsely categorised: {self.all}, in the pools of {number_of(self.queries, 'query')}"
        yield f"  positives in which nobody finds it: {self.positives}"
        yield f"  negatives in which people find it: {self.negatives}"
        yield f"moments of positives that people place alike (IoU 0.5): {self.same_moment}"
        if self.agree is not None:
            yield f"two people say the same of a video: {self.agree:.1%}"
        for count, what in (
            (self.undecided, "videos have as many yes as no, and are left out"),
            (self.unknown, "answers are about videos that are in none of the pools, and are left out"),
        ):
            if count:
                yield f"{count} {what}"
        yield from (f"  {kind}: {query_id} {video_id}" for query_id, video_id, kind in self.false[:20])


def judge_answers(annotations: Annotations, answers: Sequence[Answer]) -> Verdict:
    """What the answers say of pools; the majority decides where several people were asked.

    Raises UsageError where no answer is about a video that was added to one of the pools.
    """
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
            "the pool "
            "file that the tasks were made from"
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
    """The share of pairs of people who agree, over all videos that several were asked about."""
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
