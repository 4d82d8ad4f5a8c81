"""What was measured of a corpus: scales, chances, and how often its answers are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whenabouts.confidence.chance import Chance
from whenabouts.confidence.probability import UNADJUSTED, Adjustment
from whenabouts.models.fusion import Scale
from whenabouts.product.index.store import Store

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scales and chances of the streams that have been measured, and how often answers are wrong.

    `clips` is how many clips each stream had then. `rates` is what a search hands on (`Report.summary`), None
    where no stream is calibrated. `adjustment` is what answers of known truth say of probabilities here.
    `banks` are the languages of the unrelated sentences of each stream; `withheld` says why there are none,
    `note` what users should know of the corpus's language, `foreign` the languages that no encoder knows.
    """

    scales: Mapping[str, Scale] = field(default_factory=dict)
    chances: Mapping[str, Chance] = field(default_factory=dict)
    clips: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, Any] | None = None
    adjustment: Adjustment = UNADJUSTED
    banks: Mapping[str, str] = field(default_factory=dict)
    withheld: str = ""
    note: str = ""
    foreign: tuple[str, ...] = ()


def load_calibration(store: Store) -> Calibration:
    """What has been measured on a corpus so far."""
    facts = {name: store.fact(f"calibration:{name}") or {} for name in store.streams}
    # The same with each stream, so that a search reads no further row for it.
    answers = next(
        (fact["answers"] for fact in facts.values() if "adjustment" in fact.get("answers", ())), None
    )
    texts = {
        key: next((fact[key] for fact in facts.values() if fact.get(key)), "") for key in ("withheld", "note")
    }
    return Calibration(
        {name: Scale.from_json(fact["scale"]) for name, fact in facts.items() if "scale" in fact},
        {name: Chance.from_json(fact["chance"]) for name, fact in facts.items() if "chance" in fact},
        {name: fact["clips"] for name, fact in facts.items() if "clips" in fact},
        answers,
        UNADJUSTED if answers is None else Adjustment.from_json(answers["adjustment"]),
        {name: fact["bank"] for name, fact in facts.items() if "bank" in fact},
        foreign=tuple(next((fact["foreign"] for fact in facts.values() if fact.get("foreign")), ())),
        **texts,
    )


NOT_CALIBRATED = Calibration()
