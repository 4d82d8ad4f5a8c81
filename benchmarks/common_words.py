"""The English words that are no names: said in talks of different fields.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.common_words

A word counts as common if it is said in three recordings or more, of two sets of `transcripts` or more.
Podcasts on Bitcoin and on programming, lectures and the radio of a flight share "setup" and "challenges".
"Mempool", "softmax" and "Lovell" stay in one of them. Writes the words to `confidence/common_words.txt`.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from benchmarks.any_corpus import ENGLISH, ROOT, SETS

from whenabouts.index.lookup import words_of
from whenabouts.video.cues import read_cue_file

WORDS = ROOT / "packages" / "whenabouts" / "src" / "whenabouts" / "confidence" / "common_words.txt"
RECORDINGS, FIELDS = 3, 2


def said_in(folder: Path) -> dict[str, set[str]]:
    """The recordings in which each word is said."""
    said: defaultdict[str, set[str]] = defaultdict(set)
    for name in SETS:
        text = " ".join(cue.text for cue in read_cue_file(folder / f"{name}.vtt").cues)
        for word in set(words_of(text)):
            said[word].add(name)
    return said


def main() -> None:
    """Count and write."""
    common = sorted(
        word
        for word, names in said_in(ENGLISH).items()
        if word.isascii()
        and word.isalpha()
        and len(names) >= RECORDINGS
        and len({SETS[name] for name in names}) >= FIELDS
    )
    WORDS.write_text("\n".join(common) + "\n", encoding="utf-8")
    print(f"{len(common)} words")


if __name__ == "__main__":
    main()
