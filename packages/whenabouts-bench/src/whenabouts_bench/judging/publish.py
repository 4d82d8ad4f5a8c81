"""Publish a judged collection as a data set: Parquet files, a Croissant file, a card and a page.

`publish(judged, folder, licence)` writes a new folder that Hugging Face's `datasets` loads as it is:

    data/*.parquet   judgements (final grades), queries, videos, grades (each annotator's), pool (ranks)
    qrels.jsonl, …   the judgements once more, in the files that `whenabouts evaluate --truth FOLDER` reads
    README.md        the card: what was judged by which rule, agreement, licence; `datasets` reads its head
    croissant.json   files and columns described for programs (Croissant 1.0, mlcommons.org/croissant/1.0)
    index.html       the card as a page

Annotators appear as numbers, which they keep when the set is published again. Their names, the videos and
folders are not published, but ids of videos come from file names. Of a run's path, only what distinguishes it
from other runs is published, such as the file's name.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import whenabouts
from whenabouts.intake.files import folder_aside, read_json, write_atomically
from whenabouts.intake.own_files import own_file
from whenabouts.types import UsageError, number_of
from whenabouts_bench.evaluation.comparison import names_of
from whenabouts_bench.formats.json_records import Origin
from whenabouts_bench.formats.jsonl import write_annotations
from whenabouts_bench.judging.agreement import between_annotators, in_words
from whenabouts_bench.judging.model_study import Alpha
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.tasks import HIGHEST, LOWEST

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = "published_annotators.json"
"""A file of the task set with the annotators' names in the order of their numbers; it is not published."""
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_MEANINGS = {
    "judgements": "the final grade of each settled moment",
    "queries": "the queries of all moments",
    "videos": "the videos of all moments, with their lengths in seconds where known",
    "grades": "each annotator's grades, also of moments without a final one; the agreement rests on all",
    "pool": "the rank of each settled moment in each run that found it, where known",
}
_TYPES = {"string": "sc:Text", "double": "sc:Float", "int64": "sc:Integer"}
_CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
} | {
    name: f"cr:{name}"
    for name in (
        "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet",
        "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
        "references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField",
        "transform",
    )
}  # fmt: skip


@dataclass(frozen=True)
class Card:
    """The contents of the card and of the page."""

    name: str
    licence: str
    rows: dict[str, int]
    rules: Sequence[str]
    agreement: Sequence[str]
    made: Sequence[str]
    day: str
    """Date of the last event of the journal (ISO 8601); "" if unknown."""

    @classmethod
    def of(cls, judged: Judged, licence: str, rows: dict[str, int], numbers: dict[str, int]) -> Card:
        """The card of a judged set; annotators appear as their `numbers`."""
        task_set, state = judged.task_set, judged.state
        alpha = Alpha.of([(task.query_id, state.grades(task.id)) for task, _ in judged.outcomes])
        kappas = [
            f"annotators {numbers[each.first]} and {numbers[each.second]}: {number_of(each.tasks, 'task')}, "
            f"{each.same:.1%} the same, weighted kappa {in_words(each.quadratic)}"
            for each in between_annotators(judged)
        ]
        if alpha.value is not None:
            kappas.insert(0, f"Krippendorff's alpha (interval metric): {alpha.value:.2f}")
        counts = judged.counts()
        return cls(
            name=task_set.name,
            licence=licence,
            rows=rows,
            rules=(
                f"Grades go from {LOWEST} to {HIGHEST}; {counts['agreed']:,} of "
                f"{number_of(counts['presented'], 'moment')} are settled, {counts['discarded']:,} discarded.",
                "One annotator's grade is final."
                if task_set.annotators == 1
                else "Two grades that differ by at most 1 become their mean, rounded up. Otherwise two more "
                "people grade, and one highest and one lowest grade are dropped; if the other two differ by "
                "more than 1, the moment is discarded.",
                "Only moments of the pools were judged; others may be relevant.",
            ),
            agreement=kappas or ["No moment has grades of two annotators."],
            made=(
                f"Tasks {task_set.fingerprint}, {number_of(state.seq, 'event')} of the journal"
                f"{f', the last at {state.time}' if state.time else ''}.",
                f"Written by whenabouts {whenabouts.__version__}.",
                # Numbers alone, because a text may hold a path.
                *(f"{key}: {n}" for key, n in sorted(task_set.made.items()) if type(n) in (int, float)),
            ),
            day=state.time[:10],
        )

    def markdown(self) -> str:
        """The card in Markdown. Its head is YAML for Hugging Face's `datasets`, with values as JSON."""
        head = {
            "license": self.licence.lower(),
            "pretty_name": self.name,
            "tags": ["video", "moment-retrieval", "test-collection"],
            "configs": [
                {
                    "config_name": table,
                    "default": table == "judgements",
                    # The only split: judged collections are for evaluation, not training.
                    "data_files": [{"split": "test", "path": f"data/{table}.parquet"}],
                }
                for table in self.rows
            ],
        }
        lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in head.items())
        parts = [f"---\n{lines}---\n", f"# {_in_markdown(self.name)}", "Judged moments of videos."]
        for title, sentences in self.sections():
            parts += [f"## {title}", "\n".join(f"- {_in_markdown(sentence)}" for sentence in sentences)]
        return "\n\n".join(parts) + "\n"

    def sections(self) -> Iterator[tuple[str, Sequence[str]]]:
        """The titles of the card's sections with their sentences."""
        files = [
            f"data/{table}.parquet: {number_of(count, 'row')}, {_MEANINGS[table]}"
            for table, count in self.rows.items()
        ]
        truth = "the judgements once more, for whenabouts evaluate rvmr --truth FOLDER --run RUN"
        yield "Files", [*files, f"qrels.jsonl, queries.jsonl, videos.jsonl, pooled.json: {truth}"]
        yield "How it was judged", self.rules
        yield "Agreement", self.agreement
        yield "Licence", [f"{self.licence}. Videos are not included; their owners' terms apply."]
        yield "Where it comes from", self.made


def publish(judged: Judged, folder: Path, licence: str) -> list[Path]:
    """Write the data set into a new folder; return the paths of its files.

    `licence` is an SPDX identifier such as CC-BY-4.0; only its form is checked. Raises UsageError for another
    form, if nothing is settled or if the folder exists; FormatError if the folder cannot be written. Either
    all files appear or none.
    """
    if not _LICENCE.fullmatch(licence):
        raise UsageError(f"--licence {licence[:80]!r}: give an SPDX identifier such as CC-BY-4.0 or CC0-1.0")
    if folder.exists():
        raise UsageError(f"{folder}: exists; name a new folder")
    if not len(judged.annotations.query):
        raise UsageError(f"{judged.task_set.folder}: nothing is settled yet, so there is nothing to publish")
    from pyarrow import parquet

    numbers = annotator_numbers(judged)
    tables = tables_of(judged, numbers)
    card = Card.of(judged, licence, {name: table.num_rows for name, table in tables.items()}, numbers)
    with folder_aside(folder) as aside:
        (aside / "data").mkdir()
        for name, table in tables.items():
            parquet.write_table(table, aside / "data" / f"{name}.parquet")
        # Captions that tasks were made of belong to another data set.
        write_annotations(replace(judged.annotations, captions=None, similarity=None), aside)
        texts = {
            "README.md": card.markdown(),
            "croissant.json": json.dumps(_croissant(card, tables, aside), indent=1, ensure_ascii=False),
            "index.html": _page(card),
        }
        for name, text in texts.items():
            with write_atomically(aside / name) as stream:
                stream.write(text.encode())
        names, path = list(numbers), own_file(judged.task_set.folder, NUMBERS)
        if not path.exists() or names != read_json(path):
            with write_atomically(path) as stream:
                stream.write(json.dumps(names).encode())
    return sorted(path for path in folder.rglob("*") if path.is_file())


def annotator_numbers(judged: Judged) -> dict[str, int]:
    """Annotator -> number from 1, in their order. New annotators get random ones; `publish` stores them."""
    path = own_file(judged.task_set.folder, NUMBERS)
    numbered = Origin(path).convert(read_json(path), list[str]) if path.exists() else []
    new = sorted({name for _, name, _ in judged.state.rows()} - set(numbered))
    secrets.SystemRandom().shuffle(new)  # nobody who knows the names can work out the numbers
    return {name: number for number, name in enumerate([*numbered, *new], 1)}


def tables_of(judged: Judged, numbers: dict[str, int]) -> dict[str, pa.Table]:
    """The tables by name, without empty ones; starts, ends and durations are seconds."""
    import pyarrow as pa

    text, seconds, integer = pa.string(), pa.float64(), pa.int64()
    moments = [(t, final, judged.moment(t, final)) for t, final in judged.outcomes]
    settled = [(t, final, m) for t, final, m in moments if final.grade is not None]
    sources = judged.task_set.sources()
    runs = list(dict.fromkeys(run for source in sources.values() for run in source.ranks))
    # A run whose file name is not unique is named by its path: publish only what makes it unique.
    shown = {run: short if "/" in run else run for run, short in zip(runs, names_of(runs), strict=True)}
    spans = {"query_id": text, "video_id": text, "start": seconds, "end": seconds}
    rows: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
        "judgements": (
            spans | {"grade": integer},
            [(t.query_id, m.video_id, m.start, m.end, final.grade) for t, final, m in settled],
        ),
        "queries": (
            {"query_id": text, "text": text},
            list(dict.fromkeys((t.query_id, t.text) for t, _, _ in moments)),
        ),
        "videos": (
            {"video_id": text, "duration": seconds},
            list({m.video_id: (m.video_id, t.duration) for t, _, m in moments}.values()),
        ),
        "grades": (
            spans | {"annotator": integer, "grade": integer},
            [
                (t.query_id, m.video_id, m.start, m.end, numbers[name], answer.grade)
                for t, _, m in moments
                for name, answer in judged.state.graded(t.id)
            ],
        ),
        "pool": (
            spans | {"run": text, "rank": integer},
            [
                (t.query_id, m.video_id, m.start, m.end, shown[run], rank)
                for t, _, m in settled
                if t.id in sources
                for run, rank in sources[t.id].ranks.items()
            ],
        ),
    }
    return {
        name: pa.table([*zip(*given, strict=True)], pa.schema(columns))
        for name, (columns, given) in rows.items()
        if given
    }


def _croissant(card: Card, tables: dict[str, pa.Table], folder: Path) -> dict[str, Any]:
    """The Croissant description as JSON, with the hash of each file."""
    files = {name: folder / "data" / f"{name}.parquet" for name in tables}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": card.name,
        "description": " ".join([*card.rules, *card.made]),
        "license": f"https://spdx.org/licenses/{card.licence}.html",
        "version": "1.0.0",
        **({"datePublished": card.day} if card.day else {}),
        "citeAs": f"{card.name} (judged moments of videos, {card.day[:4] or 'no year'})",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path.name,
                "name": path.name,
                "contentUrl": f"data/{path.name}",
                "encodingFormat": "application/x-parquet",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files.values()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": name,
                "name": name,
                "description": _MEANINGS[name],
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"{name}/{column.name}",
                        "name": f"{name}/{column.name}",
                        "dataType": _TYPES[str(column.type)],
                        "source": {
                            "fileObject": {"@id": files[name].name},
                            "extract": {"column": column.name},
                        },
                    }
                    for column in table.schema
                ],
            }
            for name, table in tables.items()
        ],
    }


def _page(card: Card) -> str:
    from jinja2 import Environment, StrictUndefined

    source = resources.files(__package__).joinpath("published.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(source).render(card=card)


def _in_markdown(text: str) -> str:
    """The text on one line, with the special characters of Markdown escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))
