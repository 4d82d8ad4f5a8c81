"""Parsers of bytes that others write, attacked with the guidance of their coverage (atheris).

    make fuzz PARSER=subtitles FUZZ_MINUTES=30

A parser gives a value that keeps its promise, or refuses with one printable line. Anything else is a
finding, which libFuzzer prints with its bytes. Inputs that reach new code are kept in `inputs/`: a line of
JSON each, a character a byte. `tests/test_fuzz_inputs.py` reads them again on every run.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from datetime import date
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from whenabouts.types import WhenaboutsError

INPUTS = Path(__file__).with_name("inputs")
_LONGEST_MESSAGE = 3_000
_MOST_BYTES_KEPT = 24_000
_LONGEST_INPUT = 400
_RATES = (None, Fraction(25), Fraction(30000, 1001), Fraction(24000, 1001))


def checked(parse: Callable[[bytes], object], data: bytes) -> None:
    """Parse; raises for whatever is neither a value nor a refusal that a terminal can show."""
    try:
        parse(data)
    except WhenaboutsError as error:
        text = str(error)
        if not text.isprintable() or len(text) > _LONGEST_MESSAGE:
            raise AssertionError(f"a message that cannot be shown: {text[:300]!r}") from error


@cache
def _folder() -> Path:
    import atexit

    held = tempfile.TemporaryDirectory(prefix="whenabouts-fuzz-")
    atexit.register(held.cleanup)
    return Path(held.name)


def _file(data: bytes, suffix: str) -> Path:
    path = _folder() / f"input{suffix}"
    path.write_bytes(data)
    return path


def subtitles(data: bytes) -> None:
    """Cues are in order, have a length, and end within 100 hours."""
    from whenabouts.video.cues import last_time, read_cue_file

    suffix = (".srt", ".vtt", ".sbv", ".ass", ".txt")[data[0] % 5] if data else ".srt"
    path = _file(data[1:], suffix)
    cues = read_cue_file(path).cues
    assert all(0 <= cue.start < cue.end < 360_003 and cue.text for cue in cues), cues
    assert all(first.start <= second.start for first, second in pairwise(cues))
    assert 0 <= last_time(path) <= 360_000


def times(data: bytes) -> None:
    """Times, moments, instants and dates: whatever is accepted is finite and can be written."""
    from whenabouts.times import format_time, parse_date, parse_instant, parse_moment, parse_seconds
    from whenabouts.types import UsageError

    text = data[1:].decode("utf-8", "surrogateescape")
    rate = _RATES[data[0] % len(_RATES)] if data else None
    refusals = []
    for parse in (
        lambda: (parse_seconds(text, rate),),
        lambda: parse_moment(text, lambda _: rate)[1:],
        lambda: parse_instant(text, lambda _: rate)[1:],
    ):
        try:
            seconds = parse()
        except UsageError as error:
            refusals.append(error)
        else:
            assert all(math.isfinite(value) and value >= 0 for value in seconds), seconds
            assert all(map(format_time, seconds))
    try:
        _ = parse_date(text).timestamp()
    except UsageError as error:
        refusals.append(error)
    for refusal in refusals:
        checked(partial(_raise, refusal), b"")


def _raise(error: Exception, _: bytes) -> None:
    raise error


def ignored(data: bytes) -> None:
    """An ignore file, and whether it is about some names."""
    from whenabouts.video.ignored import IGNORE_FILE, Patterns

    folder = _folder()
    (folder / IGNORE_FILE).write_bytes(data)
    patterns = Patterns().with_file_of(folder, IGNORE_FILE)
    for name in ("a.mp4", "b c/friday.srt", "\udcff.mkv", "a" * 200):
        patterns.fits(folder / name)
        patterns.fits(folder / name, is_folder=True)


def toml(data: bytes) -> None:
    """A TOML document; its values can be shown."""
    from whenabouts.intake.files import parse_toml

    json.dumps(parse_toml("settings.toml", data), default=str)


def documents(data: bytes) -> None:
    """A JSON document, and JSON of a corpus or a client; what is accepted can be written as UTF-8."""
    from whenabouts.intake.files import FileHead, loads, parse_json

    head = FileHead(Path("file.json"), data, whole=len(data) % 2 == 0)
    _ = head.keys, head.describe()
    try:
        loads(data)
    except ValueError as error:
        assert len(str(error)) < _LONGEST_MESSAGE
    value = parse_json(Path("file.json"), data)
    json.dumps(value, ensure_ascii=False).encode()


def queries(data: bytes) -> None:
    """A question: its quotations, its rules, its words, and the same text as a condition."""
    from whenabouts.index.filters import Condition
    from whenabouts.index.lookup import words_searched
    from whenabouts.search.phrases import mentions_of, parsed_query
    from whenabouts.search.question_scopes import Names
    from whenabouts.search.questions import read

    text = data.decode("utf-8", "surrogatepass" if len(data) % 2 else "replace") if _is_text(data) else ""
    parsed = parsed_query(text)
    for phrase in parsed.phrases:
        mentions_of(phrase, [text, "on-chain fees"])
    question = read(text, _names(Names), date(2024, 2, 29))
    if question is not None:
        assert question.rules and all(rule.label for rule in question.rules)
    words, joined = words_searched(text, ["en", "de", "fr"])
    assert all(words) and all(joined)
    Condition.parse(text).accepts({"name": text, "path": "/a/b", "duration": 3.5, "speaker": ["a", 7]})


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


@cache
def _names(kind: Callable[..., Any]) -> Any:
    from whenabouts.index.records import VideoRecord

    return kind(
        [
            VideoRecord(f"v{number}", f"/videos/{name}", 1, number * 10**18, "h", title=name)
            for number, name in enumerate(("friday.mp4", "Talk 2024-02-29.mkv", "[x](y).webm", "\udcff.mp4"))
        ]
    )


def judgements(data: bytes) -> None:
    """Judgements in any format of `bench`, recognised by their content."""
    from whenabouts_bench.formats import read_annotations

    suffix = (".jsonl", ".txt", ".json", ".csv")[data[0] % 4] if data else ".txt"
    read = read_annotations(_file(data[1:], suffix))
    assert all(0 <= start <= end < math.inf for start, end in zip(read.start, read.end, strict=True))


def runs(data: bytes) -> None:
    """A run in any format of `bench`, recognised by its content."""
    from whenabouts_bench.formats import open_run

    suffix = (".jsonl", ".txt", ".json")[data[0] % 3] if data else ".txt"
    for block in open_run(_file(data[1:], suffix)).blocks():
        assert block.offsets[-1] == len(block.video)


def trec(data: bytes) -> None:
    """Lines of a TREC run are the same to Arrow's reader and to ours."""
    from whenabouts_bench.formats._trec_lines import _careful, _fast
    from whenabouts_bench.formats.trec import answer_of

    chunk = data.strip(b"\n") + b"\n"
    quick = _fast(1, chunk)
    if quick is None or not chunk.strip():
        return
    slow = _careful(Path("run.trec"), 1, chunk, answer_of)
    assert quick.query_ids == slow.query_ids, (quick.query_ids, slow.query_ids)
    assert quick.video.to_pylist() == slow.video.to_pylist()
    assert re.sub("nan", "", str(quick.numbers.tolist())) == re.sub("nan", "", str(slow.numbers.tolist()))


def headers(data: bytes) -> None:
    """Sizes and matrices in the headers of MP4, Matroska, RIFF, Ogg, FLAC and FLV files."""
    from whenabouts.video import headers as read

    path = _file(data, ".mp4")
    assert read.missing_bytes(path) >= 0
    assert 0 <= read.joined_bytes(path) <= len(data)
    read.lacks_index(path), read.is_chained(path), read.edit_starts(path)
    assert all(0 < first < last <= len(data) for first, last in read.inner_headers(path))
    assert all(seconds >= 0 for seconds in read.flac_lengths(path))
    assert all(len(matrix) == 9 for matrix in read.track_matrices(path).values())


def pickles(data: bytes) -> None:
    """A pickle read as data."""
    from whenabouts.intake.pickled import read_pickle

    read_pickle(io.BytesIO(data), {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2"})


_ALL: tuple[Any, ...] = (
    *(subtitles, times, ignored, toml, documents, queries),
    *(judgements, runs, trec, headers, pickles),
)
PARSERS: dict[str, Callable[[bytes], None]] = {parser.__name__: parser for parser in _ALL}


def kept(name: str) -> list[bytes]:
    """The inputs of a parser that are kept."""
    file = INPUTS / f"{name}.jsonl"
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [json.loads(line).encode("latin-1") for line in lines]


def _keep(name: str, inputs: Iterable[bytes]) -> None:
    """Keep the shortest inputs that fit."""
    lines, left = [], _MOST_BYTES_KEPT
    for data in sorted(set(inputs), key=lambda each: (len(each), each)):
        line = json.dumps(data.decode("latin-1"))
        left -= len(line) + 1
        if left >= 0:
            lines.append(line)
    INPUTS.mkdir(exist_ok=True)
    (INPUTS / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def _drive(name: str, arguments: list[str]) -> None:
    """Give the process to libFuzzer."""
    atheris: Any = importlib.import_module("atheris")  # `make fuzz` installs it
    with atheris.instrument_imports(include=["whenabouts", "whenabouts_bench", "json", "tomllib"]):
        parse = PARSERS[name]
        for data in (b"", *kept(name)):
            checked(parse, data)
    atheris.Setup(arguments, partial(checked, parse))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.parsers")
    parser.add_argument("parser", choices=PARSERS)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--libfuzzer", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.libfuzzer is not None:
        _drive(options.parser, options.libfuzzer)
    place = Path("build", "fuzz", options.parser)
    found, fewer = place / "inputs", place / "fewer"
    for folder in (found, fewer):
        folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(kept(options.parser)):
        (found / f"kept-{number}").write_bytes(data)
    # libFuzzer starts itself again to merge, by the first of its arguments.
    program = place.absolute() / "libfuzzer"
    again = [sys.executable, "-m", "tests.fuzz.parsers", options.parser, "--libfuzzer", str(program)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(again)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    bounds = [f"-max_len={_LONGEST_INPUT}", "-timeout=10", "-rss_limit_mb=3000", f"-artifact_prefix={place}/"]
    seconds = round(60 * options.minutes)
    ended = subprocess.run([program, *bounds, f"-max_total_time={seconds}", found], check=False).returncode
    for path in fewer.iterdir():
        path.unlink()
    subprocess.run([program, *bounds, "-merge=1", fewer, found], check=False)
    _keep(options.parser, (path.read_bytes() for path in fewer.iterdir()))
    return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(main())
