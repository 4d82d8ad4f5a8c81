"""`whenabouts search`: one sentence in, ranked moments out; or many, as a run. Loaded by `cli.main`."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whenabouts import plugins
from whenabouts.cli.opened import add_narrowing, corpus_and_search, searched
from whenabouts.cli.options import (
    add_check,
    add_corpus,
    add_force,
    add_format,
    add_places,
    add_rerank,
    add_retriever,
    add_rewrite,
    add_segments,
    add_verb,
)
from whenabouts.cli.terminal import console, counting_bar, for_terminal, print_json, print_notes, wants_json
from whenabouts.intake.files import refuse_overwriting
from whenabouts.search.search_result import SearchResult, percent_beside
from whenabouts.streams import stream as stream_named
from whenabouts.times import format_time
from whenabouts.types import Moment, ScoredMoment, UsageError, Verdict, number_of
from whenabouts.video.aside import check_free

_EPILOG = """\
examples:
  whenabouts search "a red flower opens" --corpus my.corpus -k 3
  whenabouts search "quarterly numbers" --within meeting.mp4 --min-confidence 0.9
  whenabouts search "sunset" --stream vision --where 'path=*/2024/*' --where camera=drone
  whenabouts search '"main bus" voltage' --corpus my.corpus
  whenabouts search 'oxygen tank' --all --corpus my.corpus
  whenabouts search --like flower.jpg --corpus my.corpus
  whenabouts search --like my-holiday.mp4@1:02 --corpus my.corpus
  whenabouts search "at night" --like my-holiday.mp4@1:02-1:05 --corpus my.corpus
  whenabouts search "the first time a bell rings in lecture-3" --corpus my.corpus
  whenabouts search "budget" --after 2024-01-01 --json | jq 'select(.answer == "match").moments[0]'
  whenabouts search "a person opens the door" --corpus my.corpus --model runs/xml
  whenabouts search "a person opens the door" --corpus my.corpus --model runs/prem
  whenabouts search "a person opens the door" --corpus my.corpus --retriever runs/xml --model runs/mmn
  whenabouts search "the vote on the budget" --corpus my.corpus --model runs/prem --segments 4
  whenabouts search "a red flower opens" --corpus my.corpus --check http://127.0.0.1:8000/v1#qwen3-vl
  whenabouts search "who pays for it" --corpus my.corpus --rerank cross-encoder/ms-marco-MiniLM-L6-v2
many queries at once, as a run that `evaluate` measures and `run --retriever` takes:
  whenabouts search --queries qrels.jsonl --corpus my.corpus -k 100 --out run.jsonl"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "search",
        run,
        description="Answer a sentence with ranked moments: video, start-end, confidence, and what matched.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "query",
        metavar="QUERY",
        nargs="?",
        help='what to look for, in your own words; words in "quotes" must be said exactly so',
    )
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help="in place of QUERY: judgements in any format that `evaluate` reads, our queries.jsonl, "
        "questions as `calibrate` takes them, or a text file (.txt) with a query a line",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="with --queries: write the answers as a run (JSON lines); with --highlights: the curve (CSV)",
    )
    add_force(parser)
    add_corpus(parser, several=True)
    add_places(parser, k=10)
    add_narrowing(parser)
    parser.add_argument(
        "--model",
        metavar="RUN",
        help="find moments with this trained system: a folder of `whenabouts train`, or owner/name on a hub",
    )
    add_retriever(parser)
    add_segments(parser)
    add_check(parser, "let this model look at the best moments once more and say whether they match")
    parser.add_argument(
        "--check-best", metavar="N", type=int, default=5, help="number of moments to look at (default 5)"
    )
    parser.add_argument(
        "--check-seconds",
        metavar="S",
        type=float,
        default=60.0,
        help="seconds for checking one answer (default 60); moments not reached by then are not checked",
    )
    add_rerank(parser, "let this model read the first forty moments and put them in order")
    parser.add_argument(
        "--rerank-seconds",
        metavar="S",
        type=float,
        default=10.0,
        help="seconds for reranking (default 10); moments not read by then keep their rank",
    )
    add_rewrite(parser, "search also in other words, which are shown, and fuse the answers")
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    """Search, and print the answer. Returns 1 if nothing matches."""
    if options.queries is not None or options.out is not None:
        return _run_of_queries(options)
    if options.query is None and options.like is None:
        raise UsageError(
            "what to look for? Give a QUERY, an example with --like, or many with --queries FILE --out FILE"
        )
    from whenabouts.video.language import load_in_background  # with av, which --help needs not

    load_in_background()
    result = searched(options)
    if wants_json(options):
        print_json(result.to_json())
    else:
        _show(result, narrowed=bool(options.within or options.after or options.before or options.where))
    print_notes(result.notes)
    return 1 if result.answer == "no_match" else 0


def _run_of_queries(options: argparse.Namespace) -> int:
    """Answer a file of queries and write the run. Returns 1 if no query has an answer."""
    if options.queries is None or options.out is None:
        raise UsageError("--queries FILE and --out FILE belong together: what to ask, where to write the run")
    if options.query is not None:
        raise UsageError("QUERY is one query and --queries is a file of them; give one of the two")
    files = plugins.only("query_files", "--queries", "bench")
    queries = files.read_queries(options.queries)
    refuse_overwriting(Path(options.out), *files.files_of(Path(options.queries)))
    check_free(Path(options.out), force=options.force)
    corpus, search_options = corpus_and_search(options)
    answers: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    with counting_bar("queries") as show:

        def count(result: SearchResult) -> None:
            answers[result.answer] += 1
            notes.update(set(result.notes))
            show(answers.total(), len(queries.queries))

        run = corpus.answers(queries, options=search_options, show=count)
        files.write_run(run, options.out, queries)
    _tell(options, queries, {"videos_named": len(run.called), "answers": dict(answers)}, notes)
    return 1 if answers["no_match"] == len(queries.queries) else 0


def _tell(options: argparse.Namespace, queries: Any, counts: dict[str, Any], notes: Counter[str]) -> None:
    """Print what was written, and the command to evaluate it if there are judgements."""
    number, command = len(queries.queries), None
    if len(queries.query):
        measure = ("evaluate", queries.protocol, "--truth", options.queries, "--run", options.out)
        command = shlex.join(("whenabouts", *measure))
    if wants_json(options):
        print_json(
            {"out": options.out, "queries": number, **counts, "notes": dict(notes), "evaluate": command}
        )
        return
    words = {"match": "a match", "unsure": "unsure", "no_match": "no match"}
    answers = ", ".join(f"{counts['answers'].get(answer, 0):,} {name}" for answer, name in words.items())
    lines = [f"{options.out}: {number_of(number, 'query')}: {answers}"]
    if queries.videos:
        corpora = options.corpora or [options.corpus]
        named = f"{counts['videos_named']:,} of the {len(queries.videos):,} videos"
        lines.append(f"{named} that {options.queries} names are in {' and '.join(corpora)}")
    lines += [f"note ({number_of(times, 'query')}): {note}" for note, times in notes.items()]
    for line in [*lines, *([command] if command else [])]:
        console().print(for_terminal(line), soft_wrap=True)


# If nothing matches, the closest few are still worth a look.
_CLOSEST = 3
_HEADS = ("#", "video", "start - end", "is it there?")
_SHORTEST_NAME = 20


def _lines_above(result: SearchResult) -> Iterator[tuple[str, str]]:
    """What was understood and searched, other spellings and titles: lines with their styles."""
    if result.understood:
        yield result.understood_line, "dim"
    if result.rewrite is not None:
        yield result.rewrite.line, "dim"
    if result.spelling:
        yield f"did you mean: {result.spelling}", "bold"
    if result.titled:
        names = (
            f"{each.file_name} ({each.title})" if each.title else each.file_name for each in result.titled
        )
        yield f"in the title of: {'; '.join(names)}", ""


def _show(result: SearchResult, *, narrowed: bool) -> None:
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.text import Text

    table = console()
    shown = result.answers
    for above, style in _lines_above(result):
        table.print(for_terminal(above), style=style, soft_wrap=True)
    if result.answer == "no_match":
        shown = result.moments[:_CLOSEST]
        where = "what the filters leave of this corpus" if narrowed else "this corpus"
        if result.coverage is not None and not result.coverage.is_whole and result.coverage.searched:
            where = f"the {result.coverage.searched} of {where}"
        closest = " The closest are:" if shown else ""
        table.print(for_terminal(f"Nothing like it in {where}.{closest}"), style="bold")
    elif result.like:
        doubt = f" ({result.doubt})" if result.doubt else ""
        table.print(for_terminal(f"Like {result.like}{doubt}:"), style="bold", soft_wrap=True)
    elif result.answer == "unsure":
        best = " The best are:" if shown else ""
        table.print(for_terminal(f"Maybe: {result.doubt}.{best}"), style="bold", soft_wrap=True)
    if result.places is not None and result.places.total:
        table.print(f"Said in {number_of(result.places.total, 'place')}, in order of time:", style="bold")
    is_unrated = result.like and all(scored.confidence is None for scored in shown)
    heads = _HEADS[:-1] if result.places is not None or is_unrated else _HEADS
    rows = [_cells(result, rank, scored)[: len(heads)] for rank, scored in result.numbered[: len(shown)]]
    if table.is_terminal:
        rows = _within(table.width, rows)
    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    if rows:
        table.print(Text(_line(heads, widths), style="dim"), soft_wrap=True)
    for row, scored in zip(rows, shown, strict=True):
        line = Text(_line(row, widths))
        name_at = widths[0] + 2
        span_at = name_at + len(row[1]) + widths[1] - cell_len(row[1]) + 2
        line.stylize("bold", name_at, name_at + len(row[1]))
        line.stylize(f"link {result.link(scored)}", span_at, span_at + len(row[2]))
        table.print(line, soft_wrap=True)
        table.print(Padding(Text.assemble(*_evidence(scored)), (0, 0, 0, widths[0] + 2)))
        if scored.partner is not None:
            table.print(Padding(_partner(result, scored.partner), (0, 0, 0, widths[0] + 2)), style="dim")
        if scored.verdict is not None:
            table.print(Padding(Text.assemble(*_verdict(scored.verdict)), (0, 0, 0, widths[0] + 2)))
    if result.answer == "match" and len(shown) < len(result.moments):
        hidden = len(result.moments) - len(shown)
        table.print(
            for_terminal(f"and {hidden} more that are hardly ever right (--json lists them)"), style="dim"
        )
    if result.check is not None and result.check.moments:
        table.print(for_terminal(f"checked: {result.check.line}"), style="dim", soft_wrap=True)
    if result.rerank is not None and result.rerank.moments:
        table.print(for_terminal(result.rerank.line), style="dim", soft_wrap=True)
    if result.coverage is not None:
        table.print(for_terminal(result.coverage.line), style="dim", soft_wrap=True)


def _cells(result: SearchResult, rank: int, scored: ScoredMoment) -> tuple[str, ...]:
    moment = scored.moment
    span = f"{format_time(moment.start)} - {format_time(moment.end)}"
    return str(rank), for_terminal(result.name(scored)), span, _sureness(result, scored)


def _within(width: int, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Shorten names in the rows so that lines fit the terminal and times align."""
    from rich.cells import cell_len

    other_cells = max(
        (sum(2 + cell_len(cell) for at, cell in enumerate(row) if at != 1) for row in rows), default=0
    )
    room = max(_SHORTEST_NAME, width - other_cells)
    return [(row[0], _shortened(row[1], room), *row[2:]) for row in rows]


def _shortened(name: str, room: int) -> str:
    """Cut out the middle of a name wider than `room`, because copies and parts differ at the end.

    >>> _shortened("a very long name of a talk, part 2.mp4", 20)
    'a very lon…art 2.mp4'
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(name) <= room:
        return name
    end = name[-(room // 2 - 1) :]
    while cell_len(end) >= room // 2:
        end = end[1:]
    return f"{set_cell_size(name, room - cell_len(end) - 1).rstrip()}…{end}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len

    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _sureness(result: SearchResult, scored: ScoredMoment) -> str:
    """The word for a moment, with its probability if one fits the word."""
    word = result.word_of(scored)
    percent = percent_beside(word, scored.confidence)
    return word if percent is None else f"{word}, {percent} %"


def _partner(result: SearchResult, partner: Moment) -> str:
    """The time of the other event of an ordered question."""
    relation = next(rule.name for rule in result.understood if rule.name in ("after", "before"))
    return f"{relation} {format_time(partner.start)} - {format_time(partner.end)}"


def _verdict(verdict: Verdict) -> list[tuple[str, str]]:
    """A checker's verdict as styled text."""
    parts = [("match " if verdict.matches else "no match ", "green" if verdict.matches else "red")]
    if verdict.start is not None and verdict.end is not None:
        parts.append((f"({format_time(verdict.start)} - {format_time(verdict.end)}) ", ""))
    return [*parts, (for_terminal(verdict.reason), "italic")]


def _evidence(scored: ScoredMoment) -> list[tuple[str, str]]:
    """The streams that matched, with the matching line or instant, as styled text."""
    parts: list[tuple[str, str]] = []
    for name, piece in scored.evidence.items():
        line = for_terminal(stream_named(name).evidence_text(piece))
        line = line if len(line) <= 200 else line[:199].rstrip() + "…"
        parts += [(f"{name} ", "cyan"), (line + "  ", "")]
        if piece.recognised is not None:
            parts.append((f"(recognised, {int(100 * piece.recognised)} % sure of its words)  ", "dim"))
    return parts
