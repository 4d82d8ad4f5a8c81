"""A small store that is measured in a second: words in two languages, pictures, and a silent video."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.toy_encoders import Letters, Shades

from whenabouts.confidence.background import languages
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store

PASSAGES, SECONDS, PICTURES = 6, 20.0, 10
SEEN = "a lantern swings over the deck"
"""`Shades` places the pictures of the silent video beside this sentence."""
NAME = "Zanzibar Quokka"
"""Said once, in the video `en0`."""
WORDS = {
    "en": "the engine of this boat needs cold water because steam heats copper pipes while sailors watch "
    "gauges and rust eats iron bolts under grey paint near heavy anchors beside wooden ladders above narrow "
    "decks where gulls steal bread from tired cooks during long nights when lamps swing over maps drawn by "
    "careful pilots",
    "fr": "le moteur de ce bateau demande une eau froide parce que la vapeur chauffe les tuyaux en cuivre "
    "pendant que ses marins regardent des cadrans et la rouille mange quelques boulons sous cette peinture",
}
_FOREIGN = (languages()["fr"].frequent | languages()["de"].frequent) - languages()["en"].frequent


class OnlyEnglish(Letters):
    """Sentences in French or German are all near each other, whatever they say."""

    name, fingerprint = "only-english", f"only-english weights={'b' * 64}"

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().encode_text(texts)
        is_foreign = np.array([bool(_FOREIGN & set(text.lower().split())) for text in texts], bool)
        vectors[is_foreign, 0] += 3.0
        return _unit(vectors)


class Polyglot(Letters):
    """Unrelated sentences have the vectors of their English translations."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        english = languages()["en"].sentences
        translated = {
            sentence: english[row]
            for language in languages().values()
            for row, sentence in enumerate(language.sentences[:40])
        }
        return super().encode_text([translated.get(text, text) for text in texts])


def fill(store: Store, videos: Mapping[str, int]) -> dict[str, Any]:
    """Add `videos` (language -> number) with words and pictures, and a silent video; gives the encoders."""
    text, shades = OnlyEnglish(), Shades()
    store.add_stream(StreamInfo("subtitle", text.name, text.fingerprint, text.dimension))
    store.add_stream(StreamInfo("vision", shades.name, shades.fingerprint, shades.dimension))
    rng, entries = random.Random(0), [video("silent", "de", text, [], SEEN)]
    for language, count in videos.items():
        for number in range(count):
            lines = _lines(language, rng)
            if (language, number) == ("en", 0):
                lines[3] = f"We met the {NAME} of the old harbour, and then the rain began to fall again."
            entries.append(video(f"{language}{number}", language, text, lines))
    store.put_videos(entries)
    return {"subtitle": text, "vision": shades}


def video(
    name: str, language: str, text: Letters, lines: Sequence[str], seen: str = ""
) -> tuple[VideoRecord, dict[str, ClipColumns]]:
    """A video's row and clips; pictures show noise, or `seen` in the middle."""
    noise = np.random.default_rng(sum(map(ord, name)))
    pictures = _unit(noise.standard_normal((PICTURES, Shades.dimension)))
    if seen:
        pictures[4:7] = Shades().encode_text([seen])
    at = np.arange(len(lines), dtype=np.float64) * SECONDS
    shown = np.arange(PICTURES, dtype=np.float64) * 2
    clips = {"vision": ClipColumns(shown, shown + 2, vectors=pictures)}
    if lines:
        clips["subtitle"] = ClipColumns(at, at + SECONDS - 2, lines, text.encode_text(lines))
    record = VideoRecord(
        name,
        f"/videos/{name}.mp4",
        size=1,
        duration=SECONDS * PASSAGES,
        streams={stream: stream for stream in clips},
        words="subtitles" if lines else "",
        metadata={"language": language},
    )
    return record, clips


def _lines(language: str, rng: random.Random) -> list[str]:
    words = list(dict.fromkeys(WORDS[language].split()))
    return [" ".join(rng.sample(words, 14)) + "." for _ in range(PASSAGES)]


def _unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
