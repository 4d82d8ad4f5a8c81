"""Small encoders in NumPy, and transcripts that they distinguish."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WIDTH = 16
SUBJECTS = ("beetle", "penguin", "glacier", "violin", "harbour", "clock", "lantern", "orchard")
DEEDS = ("sleeps in the sun", "moves to the north", "breaks at night", "is painted red")


class Letters:
    """An encoder in which each word has its own direction; a sentence is the sum of its words."""

    name, fingerprint, dimension = "letters-16", f"letters weights={'a' * 64}", WIDTH

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        words = [["[CLS]", *text.lower().split()] for text in texts]
        return [np.stack([self._word(word.strip(".,")) for word in some]) for some in words]

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        sums = [rows.sum(0) for rows in self.encode_tokens(texts)]
        return np.stack([row / np.linalg.norm(row) for row in sums]) if sums else np.zeros((0, WIDTH), "f4")

    def _word(self, word: str) -> NDArray[np.float32]:
        rng = np.random.default_rng(zlib.crc32(word.encode()))
        return rng.standard_normal(WIDTH).astype(np.float32)


class Shades:
    """An encoder of pictures by the brightness of eight stripes; each sentence has its own direction."""

    name, fingerprint, dimension, image_size = "shades", "shades:1", 8, 32

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        stripes = [np.array_split(image.astype(np.float32), self.dimension) for image in images]
        shades = np.array([[1.0 + stripe.mean() for stripe in own] for own in stripes], np.float32)
        unit: NDArray[np.float32] = shades / np.linalg.norm(shades, axis=1, keepdims=True)
        return unit

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [
            np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dimension) for text in texts
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def write_talk(folder: Path, number: int, again: str = "") -> Path:
    """Write a transcript of four sentences with gaps between them."""
    path = folder / f"talk_{number:03d}.vtt"
    subject = SUBJECTS[number % len(SUBJECTS)]
    cues = [
        f"00:{10 * at + 1:02d}.000 --> 00:{10 * at + 5 + number % 4:02d}.000\n"
        f"The {subject} {number} {again}{deed}.\n"
        for at, deed in enumerate(DEEDS)
    ]
    path.write_text("WEBVTT\n\n" + "\n".join(cues))
    return path
