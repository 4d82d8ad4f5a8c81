"""The stored calibration of a corpus: scores of unrelated sentences, and error rates of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whenabouts.confidence.probability import UNADJUSTED, Adjustment, Chance
from whenabouts.index.records import ClipBlock
from whenabouts.index.store import Store
from whenabouts.moments.fusion import Scale
from whenabouts.types import ScoredMoment


@dataclass(frozen=True, slots=True)
class GroupMeasures:
    """Scores of unrelated sentences in one group of a stream: the videos whose words are in one language.

    `scale`: of cosines; `chance`: of best moments; None if not measured. `withheld`: why no confidence can be
    given, else "". `foreign`: the encoder does not know the language.
    """

    scale: Scale | None = None
    chance: Chance | None = None
    withheld: str = ""
    foreign: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON values for the corpus's description."""
        measured = {"scale": self.scale, "chance": self.chance}
        value: dict[str, Any] = {name: each.to_json() for name, each in measured.items() if each is not None}
        value |= {"withheld": self.withheld} if self.withheld else {}
        return value | ({"foreign": True} if self.foreign else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupMeasures:
        """Parse the corpus's description."""
        return cls(
            Scale.from_json(value["scale"]) if "scale" in value else None,
            Chance.from_json(value["chance"]) if "chance" in value else None,
            value.get("withheld", ""),
            bool(value.get("foreign")),
        )


@dataclass(frozen=True, slots=True)
class StreamMeasures:
    """The measurements of a stream, by group.

    `clips`: number of clips when measured. `groups` are named by the language of their unrelated sentences;
    `of_language` maps the language of a video's words to its group, `main` is the group of all others.
    """

    clips: int
    groups: Mapping[str, GroupMeasures]
    of_language: Mapping[str, str] = field(default_factory=dict)
    main: str = ""

    def group_of(self, language: str) -> str:
        """The group of videos whose words are in a language ("": unknown)."""
        return self.of_language.get(language, self.main)

    def to_json(self) -> dict[str, Any]:
        """JSON values for the corpus's description."""
        groups = {name: group.to_json() for name, group in self.groups.items()}
        return {
            "clips": self.clips,
            "groups": groups,
            "of_language": dict(self.of_language),
            "main": self.main,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamMeasures:
        """Parse the corpus's description; an old one without groups is one group."""
        if "groups" not in value:
            return cls(value.get("clips", 0), {"": GroupMeasures.from_json(value)})
        groups = {name: GroupMeasures.from_json(group) for name, group in value["groups"].items()}
        return cls(value["clips"], groups, value["of_language"], value["main"])


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measurements of a corpus's streams, and the error rates of its answers.

    `rates` is what searches return (`Report.summary`), None without a calibrated stream. `adjustment` moves
    probabilities by questions with known answers. `note` is for users, on the corpus's languages; `foreign`
    are the languages that no encoder knows.
    """

    streams: Mapping[str, StreamMeasures] = field(default_factory=dict)
    rates: Mapping[str, Any] | None = None
    adjustment: Adjustment = UNADJUSTED
    note: str = ""
    foreign: tuple[str, ...] = ()

    @property
    def calibrated(self) -> tuple[str, ...]:
        """The streams with a chance in some group."""
        return tuple(
            name
            for name, stream in self.streams.items()
            if any(group.chance is not None for group in stream.groups.values())
        )

    @property
    def withheld(self) -> str:
        """Why some group of videos has no confidence; "" if all have."""
        groups = (group for stream in self.streams.values() for group in stream.groups.values())
        return next((group.withheld for group in groups if group.withheld), "")

    def group(self, stream: str, language: str) -> GroupMeasures:
        """The measurements of a stream's videos whose words are in a language."""
        measures = self.streams.get(stream)
        if measures is None:
            return _NOT_MEASURED
        return measures.groups.get(measures.group_of(language), _NOT_MEASURED)

    def is_foreign(self, scored: ScoredMoment, language: str) -> bool:
        """Whether no sentence model of the streams that found a moment knows its language."""
        return all(self.group(stream, language).foreign for stream in scored.evidence)


def load_calibration(store: Store) -> Calibration:
    """The calibration of a corpus as stored."""
    facts = {name: store.fact(f"calibration:{name}") or {} for name in store.streams}
    # Stored with each stream, so that a search reads no further row for it.
    answers = next(
        (fact["answers"] for fact in facts.values() if "adjustment" in fact.get("answers", ())), None
    )
    return Calibration(
        {name: StreamMeasures.from_json(fact) for name, fact in facts.items() if fact},
        answers,
        UNADJUSTED if answers is None else Adjustment.from_json(answers["adjustment"]),
        next((fact["note"] for fact in facts.values() if fact.get("note")), ""),
        tuple(next((fact["foreign"] for fact in facts.values() if fact.get("foreign")), ())),
    )


NOT_CALIBRATED = Calibration()
_NOT_MEASURED = GroupMeasures()


@dataclass(frozen=True, slots=True)
class MeasuredCorpus:
    """A calibration applied to the videos of one state of a store.

    `languages` maps videos' ids to the language of their words (`Ledger.language_of`).
    >>> MeasuredCorpus(NOT_CALIBRATED, {}).chance("subtitle", "a") is None
    True
    """

    calibration: Calibration
    languages: Mapping[str, str]

    def scale_of(self, block: ClipBlock, stream: str) -> Scale | None:
        """The scale of each clip of a block (n,); None if the stream has none."""
        scales = [self._group(stream, video_id).scale for video_id in block.video_ids]
        measured = [scale for scale in scales if scale is not None]
        if not measured:
            return None
        if all(scale == measured[0] for scale in scales):
            return measured[0]
        # Languages that were added after measuring use the scale of another group.
        each = [measured[0] if scale is None else scale for scale in scales]
        counts = np.diff(block.offsets)
        level, spread = (np.repeat([getattr(s, name) for s in each], counts) for name in ("level", "spread"))
        return Scale(level, spread)

    def chance(self, stream: str, video_id: str) -> Chance | None:
        """The chance of a stream among videos like this one; None if not measured."""
        return self._group(stream, video_id).chance

    def _group(self, stream: str, video_id: str) -> GroupMeasures:
        return self.calibration.group(stream, self.languages.get(video_id, ""))
