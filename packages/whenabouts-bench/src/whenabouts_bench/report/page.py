"""Render a report as one HTML file and write it atomically; text from data is escaped."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import whenabouts
from whenabouts.intake.files import write_atomically
from whenabouts.times import format_time
from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.evaluation.evaluate import annotations_of
from whenabouts_bench.evaluation.protocols import find_protocol
from whenabouts_bench.report.charts import TABLE_DEPTHS
from whenabouts_bench.report.content import gather
from whenabouts_bench.report.diagnosis import CLASSES
from whenabouts_bench.report.sentences import chance

if TYPE_CHECKING:
    from whenabouts_bench.report.content import Report

PAGE: Final = "index.html"
_NEEDED: Final = ("jinja2", "matplotlib")
_UNFIT: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Controls except tabs and line ends, and surrogates."""


@dataclass(frozen=True)
class Written:
    """A written page and its report."""

    page: Path
    report: Report

    def to_json(self) -> dict[str, Any]:
        return {
            "page": str(self.page),
            "protocol": self.report.protocol.label,
            "runs": [
                {
                    "name": run.name,
                    "run": run.evaluation.run,
                    "summary": run.summary.text,
                    "classes": {
                        kind.key: number for kind, number in zip(CLASSES, run.class_counts, strict=True)
                    },
                    "weak": list(run.weak),
                }
                for run in self.report.runs
            ],
            "verdict": None if self.report.verdict is None else self.report.verdict.headline,
        }

    def lines(self) -> list[str]:
        lines = [f"{run.name}: {run.summary.text}" for run in self.report.runs]
        if self.report.verdict is not None:
            lines.append(" ".join((self.report.verdict.headline, *self.report.verdict.details)))
        return [*lines, f"see {self.page}"]


def write_report(
    truth: str | Path,
    runs: Sequence[str | Path],
    folder: str | Path,
    *,
    protocol: str | None = None,
    names: Sequence[str] = (),
    truth_format: str | None = None,
    run_format: str | None = None,
    relevant_from: float | None = None,
) -> Written:
    """Evaluate one or two run files and write `index.html` into a folder; called by the command line.

    Raises UsageError if a package is missing or inputs do not fit, FormatError for files.
    """
    require_packages()
    chosen = find_protocol(protocol) if protocol else None
    annotations = annotations_of(truth, chosen, truth_format)
    sources = [formats.open_run(run, run_format, annotations) for run in runs]
    report = gather(annotations, sources, chosen, names, relevant_from)
    return Written(write_page(report, Path(folder)), report)


def require_packages() -> None:
    """Raise UsageError, with the remedy, if packages that draw the page are missing."""
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            raise UsageError(
                f"a report needs {name}, which is not installed: pip install 'whenabouts[bench]'"
            ) from None


def write_page(report: Report, folder: Path) -> Path:
    """Write a report into a folder, which is created if missing; returns the page's path."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; --out names a folder")
    page = render(report).encode("utf-8")
    path = folder / PAGE
    with write_atomically(path) as stream:
        stream.write(page)
    return path


def render(report: Report) -> str:
    """The page as text; text from data is escaped, and characters that HTML forbids are replaced."""
    from jinja2 import Environment, StrictUndefined

    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_shown, **blocks)
    clock = partial(format_time, decimals=1)
    filters = {"share": _share, "fraction": _fraction, "chance": chance, "whole": "{:,}".format}
    environment.filters.update(clock=clock, signed=lambda value: f"{100 * value:+.2f}", **filters)
    source = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    names = " and ".join(run.name for run in report.runs)
    page = environment.from_string(source).render(
        report=report,
        classes=CLASSES,
        table_depths=TABLE_DEPTHS,
        version=whenabouts.__version__,
        title=f"Where {names} {'fail' if report.two else 'fails'}",
    )
    return page.strip() + "\n"


def _shown(value: Any) -> Any:
    """A value; text without characters that HTML or UTF-8 forbid."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value


def _share(number: int, total: int) -> str:
    return f"{100 * number / total:.1f} %" if total else "–"


def _fraction(value: float, decimals: int = 2) -> str:
    return f"{100 * value:.{decimals}f}"
