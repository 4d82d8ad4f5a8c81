"""Writes the tables of `two_annotators.md` again, from what the programs print of its raw numbers.

    python -m benchmarks.page_tables

A page chooses rows, columns and names; each of its cells whose row and metric are printed is put in anew. New
rows are written by hand, with empty cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from benchmarks.studies import load_studies
from benchmarks.study_outcomes import opened, tables
from benchmarks.two_annotators import OUTCOMES, POOLED, RESULT, table

PAGE = RESULT.with_suffix(".md")
NAMES = {
    "MiniLM, untrained": "MiniLM",
    "strong and weak samples": "retriever",
    "strong samples alone": "retriever_strong",
    "best clip alone": "retriever_one",
}
"""Name of a row on the page -> its name in the file."""
LISTS = {"VR ": "VR ", "in the given video, ": "SVMR ", "in the corpus, ": ""}
"""Begin of a column's title, which holds for the columns after it, too -> begin of the metric's name."""

Cells = Mapping[tuple[str, str], str]


def main() -> None:
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), printed()), encoding="utf-8")


def printed() -> dict[str, Cells]:
    """The first words of a section's heading ("": before the first one) -> its cells."""
    retrievers = RESULT.with_name("two_annotators_retriever.csv.xz")
    return {
        "": cells_of(table(opened(OUTCOMES))),
        "In pools": cells_of(table(opened(POOLED))),
        "Strong and weak": cells_of(tables(load_studies()["two-annotators-retriever"], opened(retrievers))),
    }


def cells_of(lines: Iterable[str]) -> Cells:
    """(Row, column) -> the cell of the first of the tables that has both."""
    found: dict[tuple[str, str], str] = {}
    for _, head, row in _rows(lines):
        for metric, cell in zip(head[1:], row[1:], strict=True):
            found.setdefault((row[0], metric), cell)
    return found


def refreshed(page: str, sections: Mapping[str, Cells]) -> str:
    """The page with the cells that its sections have."""
    lines, begins = page.split("\n"), [""]
    for line in lines:
        begins.append(line[3:] if line.startswith("## ") else begins[-1])
    for number, head, row in _rows(lines):
        cells = _of_section(begins[number], sections)
        name = " - ".join(NAMES.get(part, part) for part in row[0].split(" - "))
        told = (
            cells.get((name, metric), cell) for metric, cell in zip(_metrics(head[1:]), row[1:], strict=True)
        )
        lines[number] = f"| {' | '.join([row[0], *told])} |"
    return "\n".join(lines)


def _of_section(heading: str, sections: Mapping[str, Cells]) -> Cells:
    """The cells of the section with this heading ("": before the first one)."""
    fits = (own for name, own in sections.items() if (heading.startswith(name) if name else not heading))
    return next(fits, {})


def _metrics(columns: Iterable[str]) -> Iterator[str]:
    """The metric of each column: IoU 0.5 unless it says 0.7; "at 0.7" alone is the metric before."""
    prefix = metric = ""
    for column in columns:
        named = column
        for words, meant in LISTS.items():
            if named.startswith(words):
                prefix, named = meant, named.removeprefix(words)
        metric = named.replace("at 0.7", "").strip(" ,") or metric
        iou = f",IoU={0.7 if 'at 0.7' in named else 0.5}" if prefix != "VR " else ""
        yield f"{prefix}{metric}{iou}" if metric.startswith("R@") else column


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """The number of each line that is a row of a table, the table's head, and the row."""
    head: list[str] = []
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            head = []
        elif not head:
            head = _split(line)
        elif not line.startswith("|---"):
            yield number, head, _split(line)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


if __name__ == "__main__":
    main()
