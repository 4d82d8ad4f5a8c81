"""The cost of a corpus of up to a billion clips: makes the tables of `benchmarks/results/scale.md`.

    python -m benchmarks.scale_costs                                         # prints the tables
    python -m benchmarks.scale_costs --write benchmarks/results/scale.md     # puts them into the page
    python -m benchmarks.scale_costs --core-hour 0.02 --gb-month 0.01 --machine-cores 64

No number is typed by hand: costs of streams come from the results of their own benchmarks, growth from
`scale.py`, what can be done about it from `scale_choices.py`. Prices are assumptions, each an argument.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Assumptions, in US dollars, and the machine that is counted with."""

    core_hour: float = 0.04
    gb_month: float = 0.023
    machine_cores: int = 16
    machine_gb: int = 64
    table_clips: int = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamCost:
    """What a stream costs for an hour of video: processor seconds, clips, the width of their vectors.

    `megabytes` is given where clips were not counted: the estimate of `index`.
    """

    stream: str
    encoder: str
    seconds: float
    clips: float
    width: int
    source: str
    megabytes: float = 0.0


def result(name: str) -> Any:
    """A committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def stream_costs() -> list[StreamCost]:
    """The streams that were measured."""
    from whenabouts.streams import screen_text

    watching, people, encoders = result("watching")["models"], result("people"), result("encoders")
    # The recordings of both are the same.
    spoken = result("serving_clients")["clips"] / people["names"]["hours"]
    words = spoken * encoders["runs"][0]["medians"]["whenabouts"]["cpu_s"] / encoders["sentences"]
    read = [row["seconds_an_hour"] for row in result("screen_text")["reading"]]
    voices = people["voices"]
    voice_seconds = voices["silero_and_banks_seconds_an_hour"] + voices["clustering_seconds_an_hour"]
    windows = 3600 * voices["windows"] / voices["seconds_of_sound"]
    written = screen_text._BYTES_PER_HOUR / 1e6
    faces = people["faces"]["seconds_an_hour_of_one_frame_a_second"]
    likeness = result("likeness")["cost"]["encoding_processor_seconds_an_hour"]
    heard = result("speech")["search"]["processor_seconds_an_hour"]
    return [
        StreamCost("words of subtitles", "MiniLM", words, spoken, 384, "encoders.json"),
        StreamCost("recognised speech", "Whisper tiny.en, MiniLM", heard, spoken, 384, "speech.json"),
        StreamCost(
            "text on the screen", "PP-OCR", sum(read) / len(read), 0, 384, "screen_text.json", written
        ),
        StreamCost("look-alikes", "EfficientNet-lite2", likeness, 3600, 1280, "likeness.json"),
        StreamCost("who speaks", "yours", voice_seconds, windows, 192, "people.json, without the network"),
        StreamCost("who is seen", "yours", faces, 3600, 512, "people.json, without the network"),
        *(_watched(watching[name], stream, width) for name, stream, width in _WATCHED),
    ]


_WATCHED = (("clip", "pictures", 512), ("siglip", "pictures", 768), ("clap", "sounds", 512))


def _watched(measured: dict[str, Any], stream: str, width: int) -> StreamCost:
    seconds, clips = measured["processor_seconds_an_hour"], measured["items_an_hour"]
    return StreamCost(stream, measured["name"].split(",")[0], seconds, clips, width, "watching.json")


def bytes_a_clip(width: int, choices: dict[str, Any]) -> float:
    """Bytes on disk of a clip of that width, by the line through the measured ones."""
    sizes = {int(key): value for key, value in choices["bytes_a_clip_by_width"].items() if key != "load"}
    nearest = sorted(sizes, key=lambda other: abs(other - width))[:2]
    first, second = min(nearest), max(nearest)
    slope = (sizes[second] - sizes[first]) / (second - first)
    return float(sizes[first] + slope * (width - first))


# Tables ---------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def rounded(value: float) -> str:
    """A number in three digits, with commas."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{round(value, digits) if digits else float(f'{value:.3g}'):,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def measured_table(prices: Prices) -> str:
    """One row for each size that was measured."""
    rows = []
    for row in result("scale")["rows"]:
        search, build = row["search"], row["build"]
        nearest = search["nearest_100%_of_videos"]
        rows.append(
            [
                rounded(row["clips"]),
                rounded(build["processor_seconds"]),
                rounded(build["one_more_video_ms"]),
                rounded(row["disk"]["mb"]),
                f"{rounded(nearest['p50_ms'])} / {rounded(nearest['p99_ms'])}",
                f"{nearest['recall_at_10']:.3f} / {nearest['recall_at_200']:.3f}",
                rounded(search["words"]["p50_ms"]),
                rounded(search["resident_mb"]),
                f"{row['load'][0]:.0f}-{row['load'][1]:.0f}",
            ]
        )
    head = ["clips", "build, processor s", "one more video, ms", "disk MB"]
    head += [
        "nearest 200: p50 / p99 ms",
        "recall@10 / @200",
        "words p50 ms",
        "search MB",
        "load",
    ]
    note = result("scale").get("note", "")
    return table(head, rows) + (f"\n\n{note}" if note else "")


_LAWS = {
    "build_processor_seconds": "build, processor s",
    "one_more_video_ms": "one more video, ms",
    "disk_mb": "disk MB",
    "search_processor_ms": "nearest 200, processor ms",
    "words_processor_ms": "words, processor ms",
    "resident_mb": "search MB",
}


def laws_table(prices: Prices) -> str:
    """The exponent of each quantity, and what one table of a billion would take."""
    rows = []
    for name, title in _LAWS.items():
        law = result("scale")["growth"][name]
        interval = "" if law["interval"] is None else " to ".join(f"{end:.2f}" for end in law["interval"])
        ahead = [rounded(at(law, clips)) for clips in (10_000_000, 100_000_000, BILLION)]
        rows.append([title, f"{law['exponent']:.2f}", interval, *ahead])
    return table(["", "exponent", "95 % interval", "*at 10⁷*", "*at 10⁸*", "*at 10⁹*"], rows)


def at(law: dict[str, Any], clips: int) -> float:
    """The value of a power law."""
    return float(law["scale"] * clips ** law["exponent"])


def streams_table(prices: Prices) -> str:
    """What an hour of video costs in each stream."""
    choices, rows = result("scale_choices"), []
    for cost in stream_costs():
        megabytes = cost.megabytes or cost.clips * bytes_a_clip(cost.width, choices) / 1e6
        thousand = 1000 * (cost.seconds / 3600 * prices.core_hour + megabytes / 1e3 * prices.gb_month)
        rows.append(
            [
                cost.stream,
                cost.encoder,
                rounded(cost.seconds),
                rounded(megabytes),
                rounded(thousand),
                cost.source,
            ]
        )
    head = ["stream", "encoder", "processor s", "MB", "$ for 1,000 hours and a month", "from"]
    return table(head, rows)


def billion_table(prices: Prices) -> str:
    """A billion clips in tables of the size that was measured: machines, hours, storage, price."""
    part = next(row for row in result("scale")["rows"] if row["clips"] == prices.table_clips)
    tables = BILLION // prices.table_clips
    costs = {cost.encoder: cost for cost in stream_costs()}
    rows = []
    for name in ("MiniLM", "CLIP ViT-B/32"):
        cost = costs[name]
        hours = BILLION / cost.clips
        encode = hours * cost.seconds / 3600
        build = tables * part["build"]["processor_seconds"] / 3600
        size = BILLION * bytes_a_clip(cost.width, result("scale_choices")) / 1e9
        seconds = tables * part["search"]["nearest_100%_of_videos"]["processor_ms"] / 1e3
        memory = tables * part["disk"]["indices_mb"] / 1e3 * cost.width / 384
        machines = math.ceil(memory / prices.machine_gb)
        once, month = (encode + build) * prices.core_hour, size * prices.gb_month
        servers = machines * prices.machine_cores * prices.core_hour * 730
        rows.append(
            [
                f"{cost.stream} ({name})",
                rounded(hours),
                rounded(encode),
                rounded(build),
                rounded((encode + build) / prices.machine_cores / 24),
                rounded(size),
                f"{machines} ({rounded(seconds)} core s a query)",
                rounded(once),
                f"{rounded(month)} + {rounded(servers)}",
                rounded(1000 * once / hours),
            ]
        )
    head = ["", "hours of video", "encoding, core hours", "building, core hours"]
    head += [f"days on one machine of {prices.machine_cores} cores", "storage GB", "machines that search"]
    head += ["$ once", "$ a month: storage + machines", "$ once for 1,000 hours of video"]
    return table(head, rows)


# The page shows these; benchmarks/results/scale_choices.json has all.
_PARTITIONS, _SEGMENTS = ("0.05", "0.1", "0.5"), ("50", "800")


def choices_table(prices: Prices) -> str:
    """What segments and partitions find and take."""
    choices = result("scale_choices")
    part = next(row for row in result("scale")["rows"] if row["clips"] == choices["clips"])
    own = part["search"]["nearest_100%_of_videos"]
    rows = [["the product as it is", *_found(own)]]
    for share, found in choices["partitions"].items():
        if share in _PARTITIONS:
            rows.append([f"{float(share):.0%} of the partitions", *_found(found)])
    for count, found in choices["segments"]["found"].items():
        if count in _SEGMENTS:
            rows.append([f"videos of the {count} nearest segments, compared exactly", *_found(found)])
    return table(["", "processor ms", "p50 ms", "recall@10", "recall@200"], rows)


def _found(found: dict[str, float]) -> list[str]:
    return [
        rounded(found["processor_ms"]),
        rounded(found["p50_ms"]),
        f"{found['recall_at_10']:.3f}",
        f"{found['recall_at_200']:.3f}",
    ]


TABLES: dict[str, Callable[[Prices], str]] = {
    "measured": measured_table,
    "laws": laws_table,
    "streams": streams_table,
    "billion": billion_table,
    "choices": choices_table,
}


def filled(page: str, prices: Prices) -> str:
    """A page with the tables put where it names them. ValueError for a page that names another."""
    named = re.findall(r"<!-- table: (\w+) -->", page)
    if sorted(named) != sorted(TABLES):
        raise ValueError(f"the page names the tables {named}; there are {sorted(TABLES)}")
    for name, make in TABLES.items():
        mark = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.S)
        page = mark.sub(lambda found, make=make: f"{found[1]}{make(prices)}\n{found[2]}", page)  # type: ignore[misc]
    return page


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for field in fields(Prices):
        default: Any = field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    prices = Prices(**{field.name: getattr(options, field.name) for field in fields(Prices)})
    if options.write:
        page = options.write.read_text("utf-8")
        options.write.write_text(filled(page, prices), encoding="utf-8")
        return
    for name, make in TABLES.items():
        print(f"## {name}\n\n{make(prices)}\n")


if __name__ == "__main__":
    main()
