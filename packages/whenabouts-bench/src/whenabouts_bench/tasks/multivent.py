"""MultiVENT 2.0 (train, whose judgements are public): news videos that answer a query about an event.

`multivent_2_train_queries.csv` has the columns Query_id and query, `multivent_2_train_judgments.jsonl` lines
of `{"query_id", "doc_id", "relevance"}`. `multivent_2_ids.csv`, a video id a line under a head, is the corpus
where it is there; without it, the corpus is the judged videos, which is far easier.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec

from whenabouts.intake.files import FormatError, read_document
from whenabouts_bench.datasets.folder import DatasetFolder
from whenabouts_bench.formats.annotations import AnnotationBuilder
from whenabouts_bench.formats.json_records import NotNegative, Words, read_records
from whenabouts_bench.harness.task import Material, Task, file_named

_HOW = (
    "hltcoe/MultiVENT2.0 on the Hugging Face hub (access is granted there) holds "
    "multivent_2_train_queries.csv and multivent_2_train_judgments.jsonl; katesanders9/multiVENT the ids."
)


class _Judgement(msgspec.Struct):
    query_id: Words
    doc_id: Words
    relevance: NotNegative


def _read(folder: Path) -> Material:
    queries = file_named(folder, "multivent_2_train_queries.csv", "multivent_2_q.csv", how=_HOW)
    judged = file_named(folder, "multivent_2_train_judgments.jsonl", "multivent_2_j.jsonl", how=_HOW)
    builder = AnnotationBuilder(str(judged))
    files = [queries, judged]
    if (ids := DatasetFolder(folder).any_of(("multivent_2_ids.csv",))) is not None:
        files.append(ids)
        for row in _table(ids)[1:]:
            builder.add_video(row[0].strip())
    head, *rows = _table(queries) or [[]]
    columns = {name.strip().lower(): number for number, name in enumerate(head)}
    if not {"query_id", "query"} <= columns.keys():
        raise FormatError(queries, f"has the columns {', '.join(head) or '-'}", accepted="Query_id and query")
    texts = {row[columns["query_id"]]: row[columns["query"]] for row in rows if len(row) == len(head)}
    for origin, fields in read_records(judged):
        judgement = origin.convert(fields, _Judgement)
        if judgement.query_id not in texts:
            raise origin.at("query_id").error("is not in the file of queries:", judgement.query_id)
        builder.add_query(judgement.query_id, texts[judgement.query_id])
        builder.judge(judgement.query_id, judgement.doc_id, 0.0, 0.0, judgement.relevance)
    return Material(builder.annotations(), tuple(files))


def _table(path: Path) -> list[list[str]]:
    try:
        text = read_document(path).decode("utf-8-sig")
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(path, f"is not a table in UTF-8: {error}") from None


TASKS = (
    Task(
        name="multivent-2",
        title="MultiVENT 2.0",
        split="train",
        revision="multivent_2_train_judgments.jsonl of hltcoe/MultiVENT2.0",
        licence="As its dataset card says; the videos belong to their makers.",
        how=_HOW,
        read=_read,
        protocol="rvmr",
        of_protocol=False,
        metrics=("VR nDCG@10", "VR R@1", "VR R@10", "VR R@100"),
        headline=("VR nDCG@10", "VR R@1", "VR R@10"),
        notes=("Its judgements name videos, not moments. Those of the test split are not public.",),
    ),
)
