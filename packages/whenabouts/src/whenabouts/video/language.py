"""Find the language of subtitles and other texts: from the track's tag, else by detection.

Detected by py3langid (4.6 MB, about 140 languages, no download). It was right for all captions of 20 words or
more, and for 95 % of those with 5 words (docs/languages.md).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from whenabouts.video.cues import CueTrack
from whenabouts.video.probe import base_language

SEVERAL = "mul"
"""The code (ISO 639-2) of words in several languages."""

LEAST_LETTERS = 6
"""`language_of_texts` returns "" for fewer letters in all, such as one word read in a picture."""

# Number of sampled pieces of a transcript, and words of each: longer ones would mix alternating languages.
_PIECES, _PIECE_WORDS = 40, 10
# If a smaller share of the recognised pieces agrees, there are several languages.
_AGREED = 0.6
# At this probability no title in twelve languages got a wrong language, and 40 % got one at all.
_SURE = 0.9
_MOST_CHARACTERS = 2_000
_CODE = re.compile(r"[a-z]{2,3}")
_LETTER = re.compile(r"[^\W\d_]")
# Codes for "not known", "no language" and "not coded".
_NO_LANGUAGE = {"und", "zxx", "mis"}
_LOADING = threading.Lock()


def language_of_track(track: CueTrack) -> str:
    """The language code of a track: its tag (two or three letters), else the detected language.

    SEVERAL for mixed languages, "" if unknown.
    """
    tag = base_language(track.language or "")
    if _CODE.fullmatch(tag) and tag not in _NO_LANGUAGE:
        return tag
    return language_of_texts([cue.text for cue in track.cues])


def language_of_texts(texts: Sequence[str]) -> str:
    """The language of most of the recognised pieces of some texts, else SEVERAL.

    "" for too few letters, if no piece is recognised, or if a single piece is uncertain.
    """
    pieces = _pieces(texts)
    if sum(len(_LETTER.findall(piece)) for piece in pieces) < LEAST_LETTERS:
        return ""
    if len(pieces) == 1:
        return sure_language(pieces[0])
    counts = Counter(filter(None, (_recognised(piece)[0] for piece in pieces)))
    if not counts:
        return ""
    (language, count), total = counts.most_common(1)[0], counts.total()
    return language if count >= _AGREED * total else SEVERAL


def sure_language(text: str) -> str:
    """The language of a sentence if it is nearly certain, else "".

    >>> sure_language("Apprentissage supervisé et réseaux de neurones"), sure_language("PyTorch")
    ('fr', '')
    """
    language, probability = _recognised(text)
    return language if probability >= _SURE else ""


def language_among(text: str, candidates: Collection[str]) -> str:
    """The language of a sentence among some candidates, if it is nearly certain; else ""."""
    if not candidates or not _LETTER.search(text):
        return ""
    ranked = _identifier().rank(text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode())
    shares = {str(code): float(share) for code, share in ranked if code in candidates}
    best = max(shares, key=lambda code: shares[code], default="")
    return best if best and shares[best] >= _SURE * sum(shares.values()) else ""


def _pieces(texts: Sequence[str]) -> list[str]:
    """Neighbouring texts joined to pieces of about 10 words: at most 40, evenly spaced."""
    pieces: list[str] = []
    words = _PIECE_WORDS
    for text in texts:
        if words >= _PIECE_WORDS:
            pieces.append("")
            words = 0
        pieces[-1] = f"{pieces[-1]} {text}".strip()
        words += 1 + max(text.count(" "), len(text) // 12)
    if len(pieces) > 1 and words < _PIECE_WORDS // 2:
        short = pieces.pop()
        pieces[-1] += f" {short}"
    return pieces[:: max(1, -(-len(pieces) // _PIECES))] or [""]


def _recognised(text: str) -> tuple[str, float]:
    """The likeliest language of a text and its probability; ("", 0) for a text without letters."""
    beginning = text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()
    if not _LETTER.search(beginning):
        return "", 0.0
    language, probability = _identifier().classify(beginning)
    return ("", 0.0) if language in _NO_LANGUAGE else (str(language), float(probability))


def load_in_background() -> None:
    """Unpack the recogniser in another thread (half a second); if that fails, its first use tries again."""
    with contextlib.suppress(RuntimeError):  # no more threads may be started
        threading.Thread(target=_try_to_load, name="whenabouts-language", daemon=True).start()


def _try_to_load() -> None:
    with contextlib.suppress(Exception):
        _identifier()


def _identifier() -> Any:
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
