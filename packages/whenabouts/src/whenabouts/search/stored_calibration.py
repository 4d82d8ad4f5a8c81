"""What was measured of a corpus: what unrelated sentences score, and how often its answers are wrong."""

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
    """What unrelated sentences score in one group of a stream: the videos whose words are in one language.

    `scale` is that of cosines, `chance` that of the best moments; None
    where it was not measured. `withheld` says why no confidence can be given; "" where one can. `foreign`:
    the encoder does not know the language.
    """

    scale: Scale | None = None
    chance: Chance | None = None
    withheld: str = ""
    foreign: bool = False

    def to_json(self) -> dict[str, Any]:
        """For the corpus's description."""
        measured = {"scale": self.scale, "chance": self.chance}
        value: dict[str, Any] = {name: own.to_json() for name, own in measured.items() if own is not None}
        value |= {"withheld": self.withheld} if self.withheld else {}
        return value | ({"foreign": True} if self.foreign else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupMeasures:
        """Back from the corpus's description."""
        return cls(
            Scale.from_json(value["scale"]) if "scale" in value else None,
            Chance.from_json(value["chance"]) if "chance" in value else None,
            value.get("withheld", ""),
            bool(value.get("foreign")),
        )


@dataclass(frozen=True, slots=True)
class StreamMeasures:
    """What was measured of a stream, by group.

    `clips` is how many there were. `groups` are named by the language of their unrelated sentences;
    `of_language` has the group of videos by the language of their words, `main` that of all others.
    """

    clips: int
    groups: Mapping[str, GroupMeasures]
    of_language: Mapping[str, str] = field(default_factory=dict)
    main: str = ""

    def group_of(self, language: str) -> str:
        """The group of the videos whose words are in a language ("": not known)."""
        return self.of_language.get(language, self.main)

    def to_json(self) -> dict[str, Any]:
        """For the corpus's description."""
        groups = {name: group.to_json() for name, group in self.groups.items()}
        return {
            "clips": self.clips,
            "groups": groups,
            "of_language": dict(self.of_language),
            "main": self.main,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamMeasures:
        """Back from the corpus's description; of one measured before there were groups, the whole is one."""
        if "groups" not in value:
            return cls(value.get("clips", 0), {"": GroupMeasures.from_json(value)})
        groups = {name: GroupMeasures.from_json(own) for name, own in value["groups"].items()}
        return cls(value["clips"], groups, value["of_language"], value["main"])


@dataclass(frozen=True, slots=True)
class Calibration:
    """What has been measured of the streams of a corpus, and how often its answers are wrong.

    `rates` is what a search hands on (`Report.summary`), None where no stream is calibrated. `adjustment` is
    what answers of known truth say of probabilities here. `note` is what users should know of the corpus's
    languages, `foreign` the languages that no encoder knows.
    """

    streams: Mapping[str, StreamMeasures] = field(default_factory=dict)
    rates: Mapping[str, Any] | None = None
    adjustment: Adjustment = UNADJUSTED
    note: str = ""
    foreign: tuple[str, ...] = ()

    @property
    def calibrated(self) -> tuple[str, ...]:
        """The streams of which a group has a chance."""
        return tuple(
            name
            for name, stream in self.streams.items()
            if any(group.chance is not None for group in stream.groups.values())
        )

    @property
    def withheld(self) -> str:
        """Why no confidence can be given in some group of videos; "" where one can in all."""
        groups = (group for stream in self.streams.values() for group in stream.groups.values())
        return next((group.withheld for group in groups if group.withheld), "")

    def group(self, stream: str, language: str) -> GroupMeasures:
        """What was measured of the videos of a stream whose words are in a language."""
        measures = self.streams.get(stream)
        if measures is None:
            return _NOT_MEASURED
        return measures.groups.get(measures.group_of(language), _NOT_MEASURED)

    def is_foreign(self, scored: ScoredMoment, language: str) -> bool:
        """Whether the sentence models of all streams that found a moment do not know its language."""
        return all(self.group(stream, language).foreign for stream in scored.evidence)


def load_calibration(store: Store) -> Calibration:
    """What has been measured on a corpus so far."""
    facts = {name: store.fact(f"calibration:{name}") or {} for name in store.streams}
    # The same with each stream, so that a search reads no further row for it.
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
    """What has been measured, applied to the videos of one state of a store.

    `languages` are those of the videos' words, by id (`Ledger.language_of`).

    >>> MeasuredCorpus(NOT_CALIBRATED, {}).chance("subtitle", "a") is None
    True
    """

    calibration: Calibration
    languages: Mapping[str, str]

    def scale_of(self, block: ClipBlock, stream: str) -> Scale | None:
        """The scale of each clip of a block (n,); None where a stream has none."""
        scales = [self._group(stream, video_id).scale for video_id in block.video_ids]
        measured = [scale for scale in scales if scale is not None]
        if not measured:
            return None
        if all(scale == measured[0] for scale in scales):
            return measured[0]
        # Of a language that came after the measuring: as the others.
        each = [measured[0] if scale is None else scale for scale in scales]
        counts = np.diff(block.offsets)
        level, spread = (np.repeat([getattr(s, name) for s in each], counts) for name in ("level", "spread"))
        return Scale(level, spread)

    def chance(self, stream: str, video_id: str) -> Chance | None:
        """What unrelated sentences score in a stream among videos like one; None: that was not measured."""
        return self._group(stream, video_id).chance

    def _group(self, stream: str, video_id: str) -> GroupMeasures:
        return self.calibration.group(stream, self.languages.get(video_id, ""))
