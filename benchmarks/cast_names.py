"""How well the rules rewrite real descriptions with names, with and without a cast list.

    python -m benchmarks.cast_names TVR_VAL.jsonl

Reads TVR's descriptions of three shows. The rules for cast lists and the similarity bound were chosen
on Friends alone; the other two shows are reported. The cast lists below are written from memory of the shows,
not from the descriptions. Each show is rewritten as a set of its own. Writes `results/cast_names.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine

from whenabouts.encoders import open_text_encoder
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.relevance.imprecise.by_rule import RuleRewriter
from whenabouts_bench.relevance.imprecise.cast import Cast, read_cast
from whenabouts_bench.relevance.imprecise.making import LEAST_OF, Settings
from whenabouts_bench.relevance.imprecise.names import SetNames

CHOSEN_ON = "friends"
CAST = {
    "friends": {
        "man": "Ross Geller, Chandler Bing, Joey Tribbiani, Joe, Mike Hannigan, Ben, Frank, Richard Burke, "
        "Gunther, Marcel, Paolo, Barry, Tag, Joshua, Paul, Pete, Gary, Jack Geller, David, Mark, Eddie",
        "woman": "Rachel Green, Rachel Greene, Monica Geller, Phoebe Buffay, Emma, Janice, Carol, Susan, "
        "Emily, Charlie Wheeler, Ursula, Mona, Amy Green, Jill Green, Julie, Kathy, Judy Geller, Erica, "
        "Estelle",
    },
    "house": {
        "man": "Gregory House, Greg House, James Wilson, Eric Foreman, Robert Chase, Chris Taub, "
        "Lawrence Kutner, Edward Vogler, Michael Tritter, Lucas Douglas, Darryl Nolan, Jeffrey Cole",
        "woman": "Lisa Cuddy, Allison Cameron, Remy Hadley, Thirteen, Martha Masters, Jessica Adams, "
        "Chi Park, Amber Volakis, Stacy Warner, Rachel Cuddy, Dominika, Rowan",
    },
    "met": {
        "man": "Ted Mosby, Teddy, Marshall Eriksen, Barney Stinson, Ranjit, James Stinson, Don, Kevin, "
        "Stuart, Carl, Arthur, Nick, Tony, Randy",
        "woman": "Lily Aldrin, Robin Scherbatsky, Victoria, Stella Zinman, Tracy McConnell, Zoey Pierson, "
        "Nora, Quinn, Claudia, Karen, Loretta, Judy, Wendy, Lucy, Patrice",
    },
}
"""Show -> general word -> its persons."""
PERSON = re.compile(r"\b(?:man|woman|men|women|person|people)\b", re.IGNORECASE)
RESULT = Path(__file__).parent / "results" / "cast_names.json"


def cast_of(show: str) -> Cast:
    """The cast of a show, through a file as users give it."""
    lines = [f"{name.strip()}\t{noun}\n" for noun, names in CAST[show].items() for name in names.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "names.tsv"
        path.write_text("".join(lines), encoding="utf-8")
        return read_cast(path)


def measured(texts: Sequence[str], captions: Sequence[str], cast: Cast) -> dict[str, Any]:
    """Cast names left, and the genders of captions whose description begins with a name of the cast."""
    names = "|".join(sorted(cast.nouns, key=len, reverse=True))
    name = re.compile(rf"\b(?:{names})(?:s\b|\b)")
    left = Counter(word for caption in captions for word in name.findall(caption))
    kinds: dict[str, Counter[str]] = {"man": Counter(), "woman": Counter()}
    wrong: Counter[str] = Counter()
    for text, caption in zip(texts, captions, strict=True):
        begin, word = re.match(rf"({names})\b", text), PERSON.search(caption)
        noun = "person" if begin is None else cast.nouns[begin[1]]
        if begin is None or noun == "person":
            continue
        found = "" if word is None else word[0].lower()
        kind = {"man": "wrong", "woman": "wrong", "person": "person", noun: "right"}.get(found, "none")
        kinds[noun][kind] += 1
        wrong[begin[1]] += kind == "wrong"
    return {
        "descriptions": len(texts),
        "cast names": sum(len(name.findall(text)) for text in texts),
        "cast names left": left.total(),
        "left": dict(left.most_common(8)),
        "gender": {noun: _shares(counts) for noun, counts in kinds.items()},
        "wrong most": {word: n for word, n in wrong.most_common(4) if n},
    }


def _shares(counts: Counter[str]) -> dict[str, float]:
    """The number of captions, and the share of each kind among those that begin with one person."""
    told = counts.total() - counts["none"]
    shares = {kind: round(counts[kind] / max(1, told), 4) for kind in ("right", "person", "wrong")}
    return {"captions": counts.total(), "several or no person": counts["none"], **shares}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="descriptions of TVR, its own format")
    options = parser.parse_args()
    annotations = read_annotations(options.file)
    shows: dict[str, list[str]] = {show: [] for show in CAST}
    for query, video in zip(annotations.query.tolist(), annotations.video.tolist(), strict=True):
        shows[annotations.videos[video].id.partition("_")[0]].append(annotations.queries[query].text.strip())
    encoder = open_text_encoder(None)
    bound = LEAST_OF[encoder.name]
    report: dict[str, Any] = {
        "machine": describe_machine("HanTa", "gender-guesser"),
        "date": datetime.now(UTC).date().isoformat(),
        "chosen on": CHOSEN_ON,
        "encoder": encoder.name,
        "shows": {},
    }
    for show, texts in shows.items():
        cast = cast_of(show)
        report["shows"][show] = {}
        for label, given in (("without a cast list", None), ("with a cast list", cast)):
            captions = RuleRewriter(SetNames(texts, given)).rewrite(texts, 0.0)
            vectors = encoder.encode_text([*texts, *captions])
            cosines = (vectors[: len(texts)] * vectors[len(texts) :]).sum(1)
            others = (vectors[: len(texts)] * np.roll(vectors[len(texts) :], 1, axis=0)).sum(1)
            report["shows"][show][label] = {
                **measured(texts, captions, cast),
                f"refused at {Settings.least}": round(float((cosines < Settings.least).mean()), 4),
                f"refused at {bound}": round(float((cosines < bound).mean()), 4),
                f"captions of the description before refused at {bound}": round(
                    float((others < bound).mean()), 4
                ),
            }
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
