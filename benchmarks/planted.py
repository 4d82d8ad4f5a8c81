"""Encoders with planted knowledge, for `fusion.py`: pictures and sounds that are known, under noise.

No picture or sound model can be had here. These know by sight and by hearing which query a frame or a
sound answers, as MiniLM's vector of the query under noise of `NOISE` times its length; everything else is
noise. So they say how streams go together, and nothing of real models.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import open_text_encoder
from whenabouts.video.frames import sample_frames

NOISE = 6.0
RATE = 16_000
SOUND_SECONDS = 4.0

Picture = NDArray[np.uint8]
Vectors = NDArray[np.float32]

SOUNDS = (
    "applause after a concert", "a dog barks twice", "glass breaks on the floor", "a baby is crying",
    "thunder rolls far away", "a car horn", "church bells ring", "an engine starts and stalls",
    "a rooster crows at dawn", "somebody snores loudly", "a kettle whistles", "waves on a pebble beach",
    "a horse gallops by", "the siren of an ambulance", "rain on a tin roof", "a cat purrs",
    "a saxophone solo", "footsteps in the snow", "a door creaks", "fireworks explode",
    "a crowd boos", "frogs croak in a pond", "a train rattles over a bridge", "someone sneezes",
)  # fmt: skip
OTHER_SOUNDS = (
    "an owl hoots at night", "a chainsaw in the woods", "children laugh in a playground", "a clock ticks",
    "a helicopter hovers", "bees hum around a hive", "an accordion waltz", "a cork pops",
    "the howl of a wolf", "water drips from a tap", "a lawn mower", "a trumpet fanfare",
    "hail on a windscreen", "cows moo in a shed", "a coin drops into a slot", "a vacuum cleaner",
    "drums of a marching band", "a duck quacks", "logs crackle in a fire", "a referee's whistle",
    "a seagull screams", "a sewing machine runs", "a tram squeals in a bend", "sheep bleat on a hill",
)  # fmt: skip


def tone_of(place: int) -> float:
    """The pitch (Hz) by which the sound at a place of `SOUNDS` is known."""
    return 420.0 + 70.0 * place


def planted_sound(place: int) -> NDArray[np.float32]:
    """The samples of a sound: its tone."""
    seconds = np.arange(int(SOUND_SECONDS * RATE)) / RATE
    return np.asarray(0.4 * np.sin(2 * np.pi * tone_of(place) * seconds), np.float32)


def signature(image: Picture) -> NDArray[np.float32]:
    """(432,): the mean colours of 12 x 12 cells."""
    height, width = image.shape[:2]
    rows = np.linspace(0, height, 13).astype(int)
    columns = np.linspace(0, width, 13).astype(int)
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.float32), rows[:-1], 0), columns[:-1], 1)
    sizes = np.diff(rows)[:, None, None] * np.diff(columns)[None, :, None]
    return np.asarray((sums / sizes).ravel(), np.float32)


class Planted:
    """What both have: sentences as MiniLM has them, and a vector for what is known."""

    dimension = 384

    def __init__(self) -> None:
        self._text = open_text_encoder()

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """(N, 384): MiniLM's."""
        return self._text.encode_text(texts)

    def vector_of(self, answers: Sequence[str], seed: str) -> NDArray[np.float32]:
        """What answers these queries, under the noise of a seed; without any it is noise alone."""
        digest = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
        noise = np.random.default_rng(digest).standard_normal(self.dimension)
        vector = NOISE * noise / np.linalg.norm(noise)
        if answers:
            vector = vector + self.encode_text(answers).mean(axis=0)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


class PlantedEyes(Planted):
    """Knows frames of some films by sight, and of each which queries it answers."""

    name, fingerprint, image_size = "planted", f"planted noise={NOISE:g}", 96

    def __init__(self, folder: Path, films: Sequence[str], queries: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        signatures, self._answers = [], list[tuple[str, ...]]()
        for film in films:
            rows = [row for row in queries if row["video"] == film]
            with sample_frames(folder / film, 4.0, size=self.image_size) as reader:
                for frame in reader:
                    own = [row["query"] for row in rows if row["start"] <= frame.seconds <= row["end"]]
                    signatures.append(signature(frame.image))
                    self._answers.append(tuple(own))
        self._known = np.stack(signatures)

    def encode_images(self, images: Sequence[Picture]) -> Vectors:
        """(N, 384): what is known of each, under noise."""
        return np.stack([self._encoded(signature(image)) for image in images])

    def _encoded(self, own: NDArray[np.float32]) -> NDArray[np.float32]:
        distance = np.abs(self._known - own).mean(axis=1)
        best = int(distance.argmin())
        answers = self._answers[best] if distance[best] < 4.0 else ()
        return self.vector_of(answers, str(answers) if answers else own.round().tobytes().hex())


class PlantedEars(Planted):
    """Knows `sounds` by their tones, where a tone has half of the power that is heard."""

    name, fingerprint = "planted ears", f"planted ears noise={NOISE:g}"
    sampling_rate, longest_seconds = RATE, 10.0

    def __init__(self, sounds: Sequence[str]) -> None:
        super().__init__()
        self._sounds = sounds

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> Vectors:
        """(N, 384): what is known of each, under noise."""
        return np.stack([self._encoded(samples) for samples in sounds])

    def _encoded(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        power = np.abs(np.fft.rfft(samples)) ** 2
        pitch = np.fft.rfftfreq(len(samples), 1 / RATE)
        shares = [
            power[np.abs(pitch - tone_of(place)) < 8.0].sum() / max(float(power.sum()), 1e-12)
            for place in range(len(self._sounds))
        ]
        best = int(np.argmax(shares))
        answers = (self._sounds[best],) if shares[best] > 0.5 else ()
        return self.vector_of(answers, str(answers) if answers else samples.tobytes().hex()[:4096])


def queries_seen(data: Path) -> list[dict[str, Any]]:
    """The queries of `real_video`: sentences about what is to be seen, with their film and time."""
    lines = (data / "real_video" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
