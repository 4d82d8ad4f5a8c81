"""How well names become general words by rule, on captions whose names and genders are known.

    python -m benchmarks.imprecise_queries ACTIVITYNET_CAPTIONS_FOLDER

Every "a man", "the woman" and so on in the captions of val_1 that hold no capital within a sentence becomes
a name from television series; the same words keep the same name within a caption. Then names are taken out
again, in one set and in portions of 100 captions, and held against what was put in. Captions as they are
are counted and some printed, to be read. Writes `results/imprecise_queries.json`, where what was read is
added by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine

from whenabouts.encoders import open_text_encoder
from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.relevance.imprecise.by_rule import RuleRewriter
from whenabouts_bench.relevance.imprecise.names import SetNames

MEN = [
    "Joey",
    "Chandler",
    "Ross",
    "Sheldon",
    "Leonard",
    "Howard",
    "Raj",
    "Ted",
    "Marshall",
    "Barney",
    "House",
    "Wilson",
    "Foreman",
    "Chase",
    "Derek",
    "George",
    "Alex",
    "Castle",
    "Ryan",
    "Esposito",
]
WOMEN = [
    "Rachel",
    "Monica",
    "Phoebe",
    "Penny",
    "Amy",
    "Bernadette",
    "Lily",
    "Robin",
    "Cuddy",
    "Cameron",
    "Meredith",
    "Cristina",
    "Izzie",
    "Beckett",
    "Alexis",
    "Martha",
    "Lanie",
    "Bailey",
    "Callie",
    "Thirteen",
]
PERSON = re.compile(r"\b(?:a|the|another) (man|woman)\b(?! (?:named|called))", re.IGNORECASE)
CAPITAL = re.compile(r"(?<=[a-z,;] )[A-Z]")
RESULT = Path(__file__).parent / "results" / "imprecise_queries.json"


@dataclass(frozen=True)
class Planted:
    """A caption with names: `names` with the word that each took the place of."""

    original: str
    text: str
    names: dict[str, str]


def _name(own: dict[str, str], match: re.Match[str]) -> str:
    return own[match[1].lower()]


def planted(captions: list[str]) -> list[Planted]:
    """The captions that hold a person who can have a name, with names drawn by chance."""
    draw = np.random.default_rng(0)
    made = []
    for caption in captions:
        if CAPITAL.search(caption) or not PERSON.search(caption):
            continue
        own = {"man": str(draw.choice(MEN)), "woman": str(draw.choice(WOMEN))}
        text = PERSON.sub(partial(_name, own), caption)
        made.append(Planted(caption, text, {name: word for word, name in own.items() if name in text}))
    return made


def measured(cases: list[Planted], at_once: int) -> tuple[dict[str, Any], list[str]]:
    """Numbers for sets of so many captions, and the captions."""
    begin = time.process_time()
    captions: list[str] = []
    for start in range(0, len(cases), at_once):
        texts = [case.text for case in cases[start : start + at_once]]
        captions += RuleRewriter(SetNames(texts)).rewrite(texts, 0.0)
    seconds = time.process_time() - begin
    left = [
        any(re.search(rf"\b{n}\b", caption) for n in case.names)
        for case, caption in zip(cases, captions, strict=True)
    ]
    single = [
        (case, caption)
        for case, caption, has_name in zip(cases, captions, left, strict=True)
        if len(case.names) == 1 and not has_name and not re.search(r"\b(?:wo)?man\b", case.text)
    ]
    words = [re.findall(r"\b(?:wo)?man\b|\bperson\b", caption) for _, caption in single]
    truth = [next(iter(case.names.values())) for case, _ in single]
    kinds = [
        "none" if not own else "person" if "person" in own else "right" if set(own) == {word} else "wrong"
        for own, word in zip(words, truth, strict=True)
    ]
    return {
        "captions": len(cases),
        "captions at once": at_once,
        "with a name left": round(sum(left) / len(cases), 4),
        "gender, of captions with one name": {
            kind: round(kinds.count(kind) / len(kinds), 4) for kind in set(kinds)
        },
        "captions a second of processor time": round(len(cases) / seconds),
    }, captions


def left_by_name(cases: list[Planted], captions: list[str]) -> dict[str, float]:
    """The share of captions in which a name is left, for the names that are left most."""
    shares = {}
    for name in MEN + WOMEN:
        own = [
            bool(re.search(rf"\b{name}\b", t))
            for c, t in zip(cases, captions, strict=True)
            if name in c.names
        ]
        shares[name] = round(sum(own) / max(1, len(own)), 3)
    return dict(sorted(shares.items(), key=lambda item: -item[1])[:8])


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the captions of ActivityNet are")
    options = parser.parse_args()
    queries = open_dataset("activitynet_captions", options.folder).annotations("val_1").queries
    texts = list(dict.fromkeys(query.text.strip() for query in queries))
    cases = planted(texts)
    whole, captions = measured(cases, len(cases))
    small, _ = measured(cases, 100)
    rewritten = RuleRewriter(SetNames(texts)).rewrite(texts, 0.0)
    encoder = open_text_encoder(None)
    sample = np.random.default_rng(1).permutation(len(cases))[:1000].tolist()
    vectors = encoder.encode_text([side for i in sample for side in (cases[i].text, captions[i])])
    cosines = (vectors[0::2] * vectors[1::2]).sum(1)
    report = {
        "machine": describe_machine("HanTa", "gender-guesser"),
        "date": datetime.now(UTC).date().isoformat(),
        "names put in": [whole, small],
        "names left most": left_by_name(cases, captions),
        "similarity of 1000": {
            "mean": round(float(cosines.mean()), 3),
            "below 0.4": round(float((cosines < 0.4).mean()), 4),
        },
        "captions as they are": {
            "captions": len(texts),
            "without a capital within": sum(not CAPITAL.search(text) for text in texts),
            "changed": sum(a != b for a, b in zip(texts, rewritten, strict=True)),
            "changed without a capital within": sum(
                a != b and not CAPITAL.search(a) for a, b in zip(texts, rewritten, strict=True)
            ),
        },
    }
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    for i in sample[:40]:
        print("-", cases[i].text, "\n  >", captions[i])
    changed = [(a, b) for a, b in zip(texts, rewritten, strict=True) if a != b]
    for i in np.random.default_rng(2).permutation(len(changed))[:40].tolist():
        print("*", *changed[i], sep="\n  > ")


if __name__ == "__main__":
    main()
