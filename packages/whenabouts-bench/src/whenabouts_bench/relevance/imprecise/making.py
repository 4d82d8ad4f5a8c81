"""Rewrite descriptions, check the captions, retry failures, and journal the results.

A caption passes if it is one printable line, not much longer than the description and no refusal, means the
same (sentence cosine at least 0.4, or the encoder's bound) and contains no person's name. Meaning and names
are the checks of paper 004, section 3.1; those of form catch faults of language models.
Rejected captions are tried again one by one at temperature 0.2, if the rewriter's output varies; what still
fails keeps its `fault`. Each batch is journalled before the next starts, so interrupted runs resume.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from whenabouts.encoders.protocol import TextEncoder
from whenabouts.intake.files import FormatError, loads
from whenabouts.intake.own_files import open_appending, own_file
from whenabouts.locking import hold
from whenabouts.types import UsageError
from whenabouts_bench.relevance.imprecise.protocol import NameFinder, Rewriter, RewritingError

TEMPERATURES = (0.0, 0.2)
"""Temperatures of the first try and of retries (paper 004, appendix A)."""

LEAST_OF = {"minilm": 0.25}
"""Encoder -> least similarity. The paper's 0.4 is for SimCSE, where it rejects 0.04 % of the captions.

MiniLM's is the largest multiple of 0.05 that rejects at most that share on one show of TVR (cast_names.py).
"""
JOURNAL = "journal.jsonl"
"""The file of captions made so far."""

_LONGEST = 2000
_REFUSAL = re.compile(
    r"(i'?m sorry|i am sorry|sorry,|i can('?t|not)\b|i am unable|i'?m unable|as an ai\b|as a language model)",
    re.I,
)


@dataclass(frozen=True)
class Settings:
    """`least` similarity of description and caption; descriptions in a `batch`; `tries` for each of them."""

    least: float = 0.4
    batch: int = 20
    tries: int = 3

    def __post_init__(self) -> None:
        if not -1 <= self.least <= 1:
            raise UsageError(f"similarity {self.least:g}: a cosine lies between -1 and 1")
        if self.batch < 1 or self.tries < 1:
            raise UsageError(f"--batch {self.batch}, tries {self.tries}: give 1 or more of each")


@dataclass(frozen=True)
class Caption:
    """A description's last caption, its similarity, the number of tries, and why it is rejected, or ""."""

    description: str
    caption: str
    similarity: float | None
    tries: int
    fault: str = ""


@dataclass(frozen=True)
class Maker:
    """A rewriter, the two checks, and settings."""

    rewriter: Rewriter
    finder: NameFinder
    encoder: TextEncoder
    settings: Settings

    def about(self, texts: Sequence[str]) -> dict[str, Any]:
        """Everything that determines the captions of descriptions."""
        digest = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
        return {
            "descriptions": digest,
            "rewriter": self.rewriter.fingerprint,
            "names": self.finder.fingerprint,
            "encoder": self.encoder.fingerprint,
            **asdict(self.settings),
        }

    def made(self, texts: Sequence[str]) -> list[Caption]:
        """The captions of one batch."""
        results = self._tried(texts, TEMPERATURES[0], 1)
        for number in range(2, self.settings.tries + 1 if self.rewriter.varies else 2):
            for place, result in enumerate(results):
                if result.fault:  # alone, so that a bad description cannot spoil others
                    (results[place],) = self._tried([texts[place]], TEMPERATURES[1], number)
        return results

    def _tried(self, texts: Sequence[str], temperature: float, tries: int) -> list[Caption]:
        try:
            captions = [caption.strip() for caption in self.rewriter.rewrite(texts, temperature)]
        except RewritingError as error:
            return [Caption(text, "", None, tries, str(error)) for text in texts]
        faults = [_fault_of(text, caption) for text, caption in zip(texts, captions, strict=True)]
        well_formed = [place for place, fault in enumerate(faults) if not fault]
        cosines = self._similarities([(texts[place], captions[place]) for place in well_formed])
        names = self.finder.names([captions[place] for place in well_formed])
        similarity: list[float | None] = [None] * len(texts)
        for place, cosine, left_names in zip(well_formed, cosines, names, strict=True):
            similarity[place] = round(cosine, 4)
            if cosine < self.settings.least:
                faults[place] = f"means something else: a similarity of {cosine:.2f}"
            elif left_names:
                faults[place] = f"contains a person's name: {', '.join(left_names)}"
        return [
            Caption(text, caption[:_LONGEST], cosine, tries, fault)
            for text, caption, cosine, fault in zip(texts, captions, similarity, faults, strict=True)
        ]

    def _similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The cosine of each pair; equal texts are not encoded."""
        changed = [place for place, (text, caption) in enumerate(pairs) if text != caption]
        cosines = np.ones(len(pairs))
        if changed:
            both = [pairs[place][side] for side in (0, 1) for place in changed]
            vectors = np.asarray(self.encoder.encode_text(both), np.float32)
            cosines[changed] = (vectors[: len(changed)] * vectors[len(changed) :]).sum(1)
        return cosines.tolist()


def _fault_of(text: str, caption: str) -> str:
    """Why a caption is rejected for its form; "" if it is not."""
    if not caption:
        return "is empty"
    if not caption.isprintable():
        return "has several lines, or characters that cannot be printed"
    if _REFUSAL.match(caption) and not _REFUSAL.match(text.strip()):
        return "is a refusal"
    if len(caption.split()) > 2 * len(text.split()) + 8:
        return "says much more than the description"
    return ""


def make_captions(
    texts: Sequence[str], maker: Maker, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> dict[str, Caption]:
    """Description -> its caption, for distinct descriptions; journalled captions are reused.

    Raises UsageError if the journal has other descriptions or settings or another run is writing it, and
    RewriterUnavailable if the rewriter fails; finished captions are kept.
    """
    with _journal(folder, maker.about(texts)) as (done, stream):
        left = [text for text in texts if text not in done]
        for begin in range(0, len(left), maker.settings.batch):
            portion = maker.made(left[begin : begin + maker.settings.batch])
            stream.write(b"".join(json_line(asdict(caption)) for caption in portion))
            stream.flush()
            os.fsync(stream.fileno())
            done.update((caption.description, caption) for caption in portion)
            progress(len(done) / len(texts))
    return {text: done[text] for text in texts}


def json_line(value: Mapping[str, Any]) -> bytes:
    """A value as a line of JSON; halves of surrogate pairs, which no file can hold, are escaped."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


@contextmanager
def _journal(folder: Path, about: Mapping[str, Any]) -> Iterator[tuple[dict[str, Caption], IO[bytes]]]:
    """(journalled captions, the journal opened for appending), locked by this process."""
    path = own_file(folder, JOURNAL)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder, "writer.lock")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}; name another") from None
    if lock is None:
        raise UsageError(f"{folder}: another run is writing there; wait for it, or name another folder")
    try:
        with os.fdopen(open_appending(path), "a+b") as stream:
            stream.seek(0)
            done, end = _read_journal(path, stream, about)
            stream.truncate(end)  # without an incomplete last line
            if not end:
                stream.write(json_line(about))
            yield done, stream
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        lock.release()


def _read_journal(path: Path, stream: IO[bytes], about: Mapping[str, Any]) -> tuple[dict[str, Caption], int]:
    """(captions by description, end of the last complete line)."""
    done: dict[str, Caption] = {}
    end = 0
    for number, line in enumerate(stream, 1):
        if not line.endswith(b"\n"):
            break
        try:
            value = loads(line)
            if number > 1:
                caption = Caption(**value)
                done[caption.description] = caption
        except (ValueError, TypeError):
            raise FormatError(path, "is damaged; remove it to begin anew", line=number) from None
        if number == 1 and value != dict(about):
            changed = [key for key in about if not isinstance(value, dict) or value.get(key) != about[key]]
            raise UsageError(
                f"{path}: its captions were made with different settings ({', '.join(changed)}); "
                "name another folder"
            )
        end += len(line)
    return done, end
