"""TVR-Ranking: graded moments per query, and ranked moments.

Truth has three released layouts: a list of pairs `{"query_id", "query", "video_name", "timestamp": [start,
end], "duration", "relevance", ...}` (or one per line); a list of `{"query_id", "query", "relevant_moment":
[pair, ...]}`; and `{query_id: [{"video_name", "timestamp", "relevance"}, ...]}`, for its evaluation.
Predictions: `{query_id: [{"video_name", "timestamp", "model_scores"}, ...]}`, best first; the order counts,
not `model_scores`. The authors' `best_val_predictions.json` is a list of `{"query_id", "desc", "predictions":
[[number, start, end, score], ...]}`, best first. Its numbers are those of `video_name_duration_id.json`
(`{video_name: [duration, number]}`) or TVR-Ranking's `video_corpus.json`, which must lie beside it.

Pairs of pseudo training sets (section 3.3) have `caption` and `similarity` instead of `relevance`, because
nobody judged them. They are read as judgements of relevance 1 with that similarity as training weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from whenabouts.intake.files import (
    FormatError,
    Losses,
    Sign,
    read_head,
    read_json,
    sibling_file,
    write_atomically,
)
from whenabouts_bench.formats.annotations import (
    AnnotationBuilder,
    Annotations,
    caption_fields,
    judgement_rows,
)
from whenabouts_bench.formats.json_records import (
    Cosine,
    Finite,
    Id,
    NotNegative,
    Origin,
    Text,
    Times,
    names_of_numbers,
    read_list,
    read_records,
)
from whenabouts_bench.formats.json_writing import ListWriter, id_as_number, video_durations, whole_as_int
from whenabouts_bench.formats.runs import (
    NO_TIMES,
    RANKED_CORPUS,
    UNSAID,
    MemoryRun,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    RunSource,
    list_to_write,
    refuse_empty,
    rows_of,
)

NAME = "tvr-ranking"
KEEPS = frozenset({"texts", "durations", "grades", "similarities", "captions"})

_RELEASED = Sign("*/query_id */predictions")  # the authors' predictions
SIGNS = {
    "read_annotations": (
        Sign("query_id video_name timestamp"),
        Sign("*/query_id */video_name */timestamp"),
        Sign("*/query_id */relevant_moment"),
        Sign("*/*/video_name */*/timestamp */*/relevance"),
    ),
    "open_run": (
        Sign("*/*/video_name */*/timestamp", without="*/*/relevance"),
        _RELEASED,
    ),
}

_TRUTH = "pairs with query_id, video_name, timestamp, relevance, or query_id -> a list of moments"
_RUN = "query_id -> a list of {video_name, timestamp}, best first"
_BLOCK_QUERIES = 5_000
NUMBERS = ("video_name_duration_id.json", "video_corpus.json")
"""Files that say which number is which video."""


class _Query(msgspec.Struct):
    query_id: Id
    query: Text | None = None


class _Pair(msgspec.Struct):
    video_name: Id
    timestamp: Times
    relevance: NotNegative | None = None
    similarity: Cosine | None = None
    caption: Text | None = None
    duration: NotNegative | None = None


class _Numbered(msgspec.Struct, array_like=True):
    """[number, start, end, score]"""

    number: int
    start: NotNegative
    end: NotNegative
    score: Finite


class _Answered(msgspec.Struct):
    query_id: Id
    predictions: list[_Numbered]


class _Prediction(msgspec.Struct):
    video_name: Id
    timestamp: Times
    model_scores: Finite | None = None


def read_annotations(path: Path) -> Annotations:
    """Queries with their graded moments, in the order of the file; times are kept.

    Grade 0 is a judgement, and duplicate moments stay: the released evaluation lets both use up predictions.
    """
    builder = AnnotationBuilder(str(path), cut=False)
    count = 0
    for query_id, text, origin, fields in _pairs(path):
        pair = origin.convert(fields, _Pair)
        if not builder.add_query(query_id, text):
            continue
        builder.add_video(str(pair.video_name), pair.duration)
        if pair.relevance is None and pair.similarity is None:
            problem = f"is missing (found: {', '.join(fields)[:80]!r})"
            accepted = "relevance, or similarity in a pseudo training set"
            raise origin.at("relevance").error(problem, accepted=accepted)
        relevance = 1.0 if pair.relevance is None else pair.relevance
        about: dict[str, Any] = {"similarity": pair.similarity, "caption": pair.caption or ""}
        builder.judge(query_id, str(pair.video_name), *pair.timestamp, relevance, **about)
        count += 1
    if not count:
        raise FormatError(path, "holds no judgements", accepted=_TRUTH)
    return builder.annotations()


def _pairs(path: Path) -> Iterator[tuple[str, str, Origin, Any]]:
    """(query id, text, place, pair) in any layout of a truth file."""
    head = read_head(path)
    if head.has(SIGNS["read_annotations"][0]):
        for origin, fields in read_records(path):
            yield *_query_of(origin, fields), origin, fields
        return
    if head.first_line.startswith("{"):
        whole = Origin(path)
        for key, pairs in whole.object(read_json(path), _TRUTH).items():
            query_id = whole.at("query id").as_id(key)
            for number, pair in enumerate(whole.at(key).array(pairs)):
                yield query_id, "", whole.at(key, number), pair
        return
    for origin, entry in read_list(path, _TRUTH):
        fields = origin.object(entry, _TRUTH)
        query = _query_of(origin, fields)
        if "relevant_moment" not in fields:
            yield *query, origin, fields
            continue
        pairs = origin.at("relevant_moment").array(fields["relevant_moment"])
        for place, pair in enumerate(pairs):
            yield *query, origin.at("relevant_moment", place), pair


def _query_of(origin: Origin, fields: dict[str, Any]) -> tuple[str, str]:
    query = origin.convert(fields, _Query)
    return str(query.query_id), query.query or ""


def open_run(path: Path) -> RunSource:
    """Predictions, in the order of the file. Empty spans are accepted, but hit nothing.

    `model_scores` become scores if all moments of a query have them, otherwise n .. 1.
    """
    origin, released = Origin(path), read_head(path).has(_RELEASED)
    answers = _released(path) if released else _by_query(origin, read_json(path))
    blocks: list[RunBlock] = []
    builder = RunBlockBuilder()
    for number, (query_id, rows) in enumerate(answers, 1):
        builder.add(query_id, rows)
        if number % _BLOCK_QUERIES == 0:
            blocks.append(builder.block())
    last = builder.block()
    blocks += [last] if len(last) else []
    refuse_empty(path, bool(blocks))
    return MemoryRun(str(path), {"VCMR": tuple(blocks)}, RANKED_CORPUS if released else UNSAID)


def _by_query(origin: Origin, document: Any) -> Iterator[tuple[str, Iterator[RunRow]]]:
    """(query id, rows) of {query_id: [moment, ...]}."""
    for key, moments in origin.object(document, _RUN).items():
        query_id = origin.at("query id").as_id(key)
        yield query_id, _rows(origin.at(key), origin.at(key).array(moments))


def _released(path: Path) -> Iterator[tuple[str, Iterator[RunRow]]]:
    """(query id, rows) of the authors' predictions, with the names of their numbers."""
    names, seen = _names_of_numbers(path), set[str]()
    for origin, entry in read_list(path, "a list of {query_id, predictions}"):
        answered = origin.convert(origin.object(entry), _Answered)
        query_id = str(answered.query_id)
        if query_id in seen:
            raise origin.at("query_id").error("comes a second time:", query_id, "each query once")
        seen.add(query_id)
        yield query_id, _named(origin.at("predictions"), answered.predictions, names)


def _named(origin: Origin, moments: list[_Numbered], names: dict[int, str]) -> Iterator[RunRow]:
    """Rows in the order of the list; scores that contradict it become n .. 1."""
    falls = all(first.score >= second.score for first, second in pairwise(moments))
    for place, moment in enumerate(moments):
        name = names.get(moment.number)
        if name is None:
            raise origin.at(place).error(
                "is no video's number:", moment.number, f"one of {' or '.join(NUMBERS)}"
            )
        yield name, moment.start, moment.end, moment.score if falls else float(len(moments) - place)


def _names_of_numbers(path: Path) -> dict[int, str]:
    """Number -> video. Raises FormatError if there is no file of numbers beside the predictions."""
    beside = next((file for name in NUMBERS if (file := sibling_file(path, name))), None)
    if beside is None:
        accepted = f"{NUMBERS[0]} of TVR-Ranking's repository beside it"
        raise FormatError(
            path, "names videos by numbers, and no file beside it has their names", accepted=accepted
        )
    whole = Origin(beside)
    accepted = "an object, video -> [seconds, number]"
    return names_of_numbers(whole, whole.object(read_json(beside), accepted), accepted)


def _rows(origin: Origin, entries: list[Any]) -> Iterator[RunRow]:
    moments = [origin.at(number).convert(entry, _Prediction) for number, entry in enumerate(entries)]
    scored = all(moment.model_scores is not None for moment in moments)
    for number, moment in enumerate(moments):
        if "relevance" in entries[number]:
            place = origin.at(number, "relevance")
            raise place.error("is in judgements, not in a run", accepted=_RUN)
        start, end = moment.timestamp
        origin.at(number, "timestamp").check_span(start, end, empty=True)
        score = moment.model_scores if scored else None
        yield str(moment.video_name), start, end, float(len(moments) - number) if score is None else score


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write the list of pairs; all have a relevance, also in pseudo training sets."""
    seconds = video_durations(annotations)
    with write_atomically(path) as stream:
        stream.write(b"[")
        members = ListWriter(stream)
        rows = zip(judgement_rows(annotations), caption_fields(annotations), strict=True)
        for pair_id, ((number, video, start, end, grade), about) in enumerate(rows):
            query, video_id = annotations.queries[number], annotations.videos[video].id
            members.add(
                {
                    "pair_id": pair_id,
                    "query_id": id_as_number(query.id),
                    "query": query.text,
                    "video_name": video_id,
                    "timestamp": [start, end],
                    **({"duration": seconds[video_id]} if video_id in seconds else {}),
                    **about,
                    "relevance": whole_as_int(grade),
                }
            )
        stream.write(b"]\n")


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write predictions, best first; a video without moment gets the times 0 and 0, and keeps its rank."""
    losses = Losses(path)
    _, blocks = list_to_write(source, losses, says=())
    with write_atomically(path) as stream:
        stream.write(b"{")
        members = ListWriter(stream)
        for block in blocks:
            losses.count(NO_TIMES, int(np.isnan(block.start).sum()))
            for query_id, rows in rows_of(block, no_time=0.0):
                shown = [
                    {"video_name": video_id, "timestamp": [start, end], "model_scores": score}
                    for video_id, start, end, score in rows
                ]
                members.add(shown, query_id)
        stream.write(b"}\n")
    losses.log()
