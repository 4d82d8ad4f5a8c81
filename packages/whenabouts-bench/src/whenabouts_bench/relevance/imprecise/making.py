"""Descriptions rewritten, checked, asked again, and kept as they come.

A caption passes where it is one line that says about as much as the description, means the same (cosine of
the two sentences at least 0.4) and holds no person's name: the two checks of paper 004, section 3.1, and what
a language model's answer needs besides. What fails is asked for again alone and at temperature 0.2, then
listed for a person. Each portion is written down before the next is begun, so a run that was interrupted goes
on where it was.
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
from whenabouts.intake.files import FormatError
from whenabouts.locking import hold
from whenabouts.types import UsageError
from whenabouts_bench.relevance.imprecise.protocol import NameFinder, Rewriter, RewritingError

TEMPERATURES = (0.0, 0.2)
"""Of the first try, and of all others: paper 004, appendix A."""

JOURNAL = "journal.jsonl"
"""The file of a folder in which captions are written down as they come."""

_LONGEST = 2000
_REFUSAL = re.compile(
    r"(i'?m sorry|i am sorry|sorry,|i can('?t|not)\b|i am unable|i'?m unable|as an ai\b|as a language model)",
    re.I,
)


@dataclass(frozen=True)
class Settings:
    """`least` similarity of description and caption, descriptions in a `batch`, `tries` for each."""

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
    """What became of a description: the last caption, how similar it is, after how many tries.

    `fault` says why the caption cannot be used; "" where it can.
    """

    description: str
    caption: str
    similarity: float | None
    tries: int
    fault: str = ""


@dataclass(frozen=True)
class Maker:
    """What makes captions: a rewriter, the two checks, and settings."""

    rewriter: Rewriter
    finder: NameFinder
    encoder: TextEncoder
    settings: Settings

    def about(self, texts: Sequence[str]) -> dict[str, Any]:
        """What decides about the captions of some descriptions."""
        digest = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
        return {
            "descriptions": digest,
            "rewriter": self.rewriter.fingerprint,
            "names": self.finder.fingerprint,
            "encoder": self.encoder.fingerprint,
            **asdict(self.settings),
        }

    def made(self, texts: Sequence[str]) -> list[Caption]:
        """The captions of one portion."""
        results = self._tried(texts, TEMPERATURES[0], 1)
        for number in range(2, self.settings.tries + 1 if self.rewriter.varies else 2):
            for place, result in enumerate(results):
                if result.fault:  # alone: a description that spoils its portion spoils no other
                    (results[place],) = self._tried([texts[place]], TEMPERATURES[1], number)
        return results

    def _tried(self, texts: Sequence[str], temperature: float, tries: int) -> list[Caption]:
        try:
            captions = [caption.strip() for caption in self.rewriter.rewrite(texts, temperature)]
        except RewritingError as error:
            return [Caption(text, "", None, tries, str(error)) for text in texts]
        faults = [_fault_of(text, caption) for text, caption in zip(texts, captions, strict=True)]
        sound = [place for place, fault in enumerate(faults) if not fault]
        cosines = self._similarities([(texts[place], captions[place]) for place in sound])
        names = self.finder.names([captions[place] for place in sound])
        similarity: list[float | None] = [None] * len(texts)
        for place, cosine, left_names in zip(sound, cosines, names, strict=True):
            similarity[place] = round(cosine, 4)
            if cosine < self.settings.least:
                faults[place] = f"means something else: a similarity of {cosine:.2f}"
            elif left_names:
                faults[place] = f"holds a person's name: {', '.join(left_names)}"
        return [
            Caption(text, caption[:_LONGEST], cosine, tries, fault)
            for text, caption, cosine, fault in zip(texts, captions, similarity, faults, strict=True)
        ]

    def _similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The cosine of each pair; equal texts need no encoder."""
        changed = [place for place, (text, caption) in enumerate(pairs) if text != caption]
        cosines = [1.0] * len(pairs)
        if changed:
            both = [pairs[place][side] for side in (0, 1) for place in changed]
            vectors = np.asarray(self.encoder.encode_text(both), np.float32)
            values = (vectors[: len(changed)] * vectors[len(changed) :]).sum(1)
            for place, value in zip(changed, values.tolist(), strict=True):
                cosines[place] = float(value)
        return cosines


def _fault_of(text: str, caption: str) -> str:
    """Why a caption is none, whatever it means."""
    if not caption:
        return "is empty"
    if not caption.isprintable():
        return "has several lines, or signs that are not for printing"
    if _REFUSAL.match(caption) and not _REFUSAL.match(text.strip()):
        return "is a refusal"
    if len(caption.split()) > 2 * len(text.split()) + 8:
        return "says much more than the description"
    return ""


def make_captions(
    texts: Sequence[str], maker: Maker, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> dict[str, Caption]:
    """Description -> its caption, for distinct descriptions; what the folder's journal has is not made again.

    Raises UsageError where the journal is of other descriptions or settings or another run is writing it, and
    RewriterUnavailable where the rewriter is gone: what is done is kept.
    """
    with _journal(folder, maker.about(texts)) as (done, stream):
        left = [text for text in texts if text not in done]
        for begin in range(0, len(left), maker.settings.batch):
            portion = maker.made(left[begin : begin + maker.settings.batch])
            stream.write(b"".join(_line(asdict(caption)) for caption in portion))
            stream.flush()
            os.fsync(stream.fileno())
            done.update((caption.description, caption) for caption in portion)
            progress(len(done) / len(texts))
    return {text: done[text] for text in texts}


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


@contextmanager
def _journal(folder: Path, about: Mapping[str, Any]) -> Iterator[tuple[dict[str, Caption], IO[bytes]]]:
    """(captions that a journal has, the journal open at its end), held by this process alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = hold(folder, "writer.lock")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}; name another") from None
    if held is None:
        raise UsageError(f"{folder}: another run is writing there; wait for it, or name another folder")
    path = folder / JOURNAL
    try:
        with path.open("a+b") as stream:
            stream.seek(0)
            done, end = _read_journal(path, stream, about)
            stream.truncate(end)  # a line that was cut off
            if not end:
                stream.write(_line(about))
            yield done, stream
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        held.release()


def _read_journal(path: Path, stream: IO[bytes], about: Mapping[str, Any]) -> tuple[dict[str, Caption], int]:
    """(captions by description, where the last whole line ends)."""
    done: dict[str, Caption] = {}
    end = 0
    for number, line in enumerate(stream, 1):
        if not line.endswith(b"\n"):
            break
        try:
            value = json.loads(line)
            if number > 1:
                caption = Caption(**value)
                done[caption.description] = caption
        except (ValueError, TypeError):
            raise FormatError(path, "is damaged; remove it to begin anew", line=number) from None
        if number == 1 and value != dict(about):
            changed = [key for key in about if not isinstance(value, dict) or value.get(key) != about[key]]
            raise UsageError(
                f"{path}: its captions were made with other {', '.join(changed)}; name another folder"
            )
        end += len(line)
    return done, end
