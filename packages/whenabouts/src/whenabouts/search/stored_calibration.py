"""The stored calibration of a corpus: how unrelated sentences score, and how often answers are wrong."""

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
from whenabouts.video.language import language_among


@dataclass(frozen=True, slots=True)
class GroupMeasures:
    """Measurements of one group of a stream (the videos with words in one language).

    They are made with unrelated sentences, which have no answer in the corpus (`confidence.background`).
    `scale`: mean and standard deviation of their cosines with clips; `chance`: the distribution of their best
    scores in a search; None if not measured. `withheld`: why the group's moments get no confidence, else "".
    `foreign`: the stream's encoder does not know the language. `across`: the scale of sentences in each other
    language of the corpus, whose cosines with these clips are lower.
    """

    scale: Scale | None = None
    chance: Chance | None = None
    withheld: str = ""
    foreign: bool = False
    across: Mapping[str, Scale] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        measured = {"scale": self.scale, "chance": self.chance}
        value: dict[str, Any] = {name: each.to_json() for name, each in measured.items() if each is not None}
        value |= {"withheld": self.withheld} if self.withheld else {}
        across = {language: each.to_json() for language, each in self.across.items()}
        value |= {"across": across} if across else {}
        return value | ({"foreign": True} if self.foreign else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupMeasures:
        return cls(
            Scale.from_json(value["scale"]) if "scale" in value else None,
            Chance.from_json(value["chance"]) if "chance" in value else None,
            value.get("withheld", ""),
            bool(value.get("foreign")),
            {name: Scale.from_json(scale) for name, scale in value.get("across", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class StreamMeasures:
    """The measurements of a stream, by group.

    `clips`: number of clips when measured. Each of `groups` is named by the language of its sentences.
    `of_language`: language of a video's words -> group; videos in any other language belong to group `main`.
    """

    clips: int
    groups: Mapping[str, GroupMeasures]
    of_language: Mapping[str, str] = field(default_factory=dict)
    main: str = ""

    def group_of(self, language: str) -> str:
        """The name of the group of videos whose words are in a language ("": unknown)."""
        return self.of_language.get(language, self.main)

    def to_json(self) -> dict[str, Any]:
        groups = {name: group.to_json() for name, group in self.groups.items()}
        languages = dict(self.of_language)
        return {"clips": self.clips, "groups": groups, "of_language": languages, "main": self.main}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamMeasures:
        """The measurements from stored JSON values; older ones without groups become one group."""
        if "groups" not in value:
            return cls(value.get("clips", 0), {"": GroupMeasures.from_json(value)})
        groups = {name: GroupMeasures.from_json(group) for name, group in value["groups"].items()}
        return cls(value["clips"], groups, value["of_language"], value["main"])


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measurements of a corpus's streams, and the error rates of its answers.

    `rates`: error rates as searches return them (`Report.summary`), None without a calibrated stream.
    `adjustment`: what questions with known answers change about probabilities. `note`: for users, on the
    corpus's languages. `foreign`: the languages that no encoder knows.
    """

    streams: Mapping[str, StreamMeasures] = field(default_factory=dict)
    rates: Mapping[str, Any] | None = None
    adjustment: Adjustment = UNADJUSTED
    note: str = ""
    foreign: tuple[str, ...] = ()

    @property
    def calibrated(self) -> tuple[str, ...]:
        """The names of the streams in which at least one group has a fitted `Chance`."""
        return tuple(
            name
            for name, stream in self.streams.items()
            if any(group.chance is not None for group in stream.groups.values())
        )

    @property
    def withheld(self) -> str:
        """The reason of the first group whose confidence is withheld; "" if no group is withheld."""
        groups = (group for stream in self.streams.values() for group in stream.groups.values())
        return next((group.withheld for group in groups if group.withheld), "")

    def group(self, stream: str, language: str) -> GroupMeasures:
        """The measurements of a stream's group of videos in a language; empty ones if there are none."""
        measures = self.streams.get(stream)
        if measures is None:
            return _NOT_MEASURED
        return measures.groups.get(measures.group_of(language), _NOT_MEASURED)

    def is_foreign(self, scored: ScoredMoment, language: str) -> bool:
        """Whether the moment's language is unknown to the encoders of all streams that found it."""
        return all(self.group(stream, language).foreign for stream in scored.evidence)


def load_calibration(store: Store) -> Calibration:
    """The calibration stored with a corpus; an empty one if it was never measured."""
    facts = {name: store.fact(f"calibration:{name}") or {} for name in store.streams}
    # Answers, note and foreign languages are repeated for each stream, so that a search reads one row less.
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
    """Looks up the measurements of a video's group in a calibration, for one version of a store.

    `languages`: video id -> language of its words (`Ledger.language_of`).
    >>> MeasuredCorpus(NOT_CALIBRATED, {}).chance("subtitle", "a") is None
    True
    """

    calibration: Calibration
    languages: Mapping[str, str]

    def scale_of(self, block: ClipBlock, stream: str, query: str = "") -> Scale | None:
        """The scale of a block's n clips: (n,) values, or one for all if equal; None if none was measured.

        Where clips are in several languages, it is that of the query's language, if this is clear.
        """
        groups = [self._group(stream, video_id) for video_id in block.video_ids]
        spoken = {language for group in groups for language in group.across}
        language = language_among(query, spoken) if spoken and query else ""
        scales = [group.across.get(language, group.scale) for group in groups]
        measured = [scale for scale in scales if scale is not None]
        if not measured:
            return None
        if all(scale == measured[0] for scale in scales):
            return measured[0]
        # Groups that were not measured use the scale of the block's first measured one.
        each = [measured[0] if scale is None else scale for scale in scales]
        counts = np.diff(block.offsets)
        level, spread = (np.repeat([getattr(s, name) for s in each], counts) for name in ("level", "spread"))
        return Scale(level, spread)

    def chance(self, stream: str, video_id: str) -> Chance | None:
        """The `Chance` of a stream in the group of a video; None if not measured."""
        return self._group(stream, video_id).chance

    def _group(self, stream: str, video_id: str) -> GroupMeasures:
        return self.calibration.group(stream, self.languages.get(video_id, ""))
