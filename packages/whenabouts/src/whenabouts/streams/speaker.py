"""The stream of speakers: turns named in subtitles, or voices that a model distinguishes.

A clip's text is the speaker's label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import open_voice_encoder
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.index.sampling import SoundSettings
from whenabouts.index.stream import Cost, Option, Reads, Setup, Stream, StreamRun, label_in
from whenabouts.streams._choices import own_encoder
from whenabouts.streams._clusters import clusters
from whenabouts.video.speakers import Turn, is_role, turns_of
from whenabouts.video.voices import STEP_SECONDS, Diarized, Diarizer, VoiceEncoder, Voices

NAMES = "names in subtitles"
"""Stands for a model's name if turns come from subtitles alone: no vectors, width 0."""

# Seconds: longest gap inside a turn, and shortest turn of a diarizer.
_SAME_TURN, _SHORTEST = 1.0, 0.2
# For an hour of video. Without the speaker model one core takes 24 s (benchmarks/people.py); 180 is a guess.
_COST_OF_NAMES = Cost(seconds=0.001, bytes=0.1e6)
_COST_OF_VOICES = Cost(seconds=180.0, bytes=0.6e6)


class Speaker(Stream):
    """The people who speak."""

    name = "speaker"
    title = "speakers"
    order = 40
    has_words = False
    meets = frozenset()
    filter_key = "speaker"
    is_personal = True
    options = (
        Option(
            "--speakers",
            "[MODEL]",
            "who speaks: by names in subtitles; by voice too with a speaker model (name, folder, ONNX file)",
        ),
    )
    remedy = "index with --speakers"
    absent = "nobody is known to speak there"

    def setup(self, setup: Setup) -> StreamRun | None:
        choice, info = setup.options.get("speakers"), setup.info
        if info is None and not choice:
            return None
        has_model = choice not in (None, False, True) or (info is not None and info.encoder != NAMES)
        encoder = own_encoder(setup, "speakers", self.open_encoder) if has_model else None
        name, fingerprint = (encoder.name, encoder.fingerprint) if encoder else (NAMES, NAMES)
        width, settings = 0, {"same_person": 1.0}
        if encoder is not None and not isinstance(encoder, Diarizer):
            width, settings = encoder.dimension, {"same_person": encoder.same_voice}
        return StreamRun(
            self,
            StreamInfo(self.name, name, fingerprint, width, settings),
            encoder,
            Reads(cues=True, sound=SoundSettings() if encoder else None),
            _COST_OF_VOICES if encoder else _COST_OF_NAMES,
        )

    def open_encoder(self, name: str) -> VoiceEncoder | Diarizer:
        return open_voice_encoder(name)

    def encode(
        self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]
    ) -> Voices | Diarized:
        """The voices in a piece of sound, or the diarizer's speakers; the sound itself is not kept."""
        assert isinstance(batch, SoundBatch)
        if isinstance(run.encoder, Diarizer):
            return run.encoder.follow(batch.samples, batch.start, kept[-1] if kept else None)
        voices: Voices = run.encoder.voices(batch.samples, batch.start)
        return voices

    def settled(self, kept: Voices | Diarized) -> Voices | Diarized:
        """The result without the diarizer's state, which the next batch has used."""
        return kept._replace(state=None) if isinstance(kept, Diarized) else kept

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """The turns named in subtitles; without such names, those of the voices."""
        turns, voices = turns_of(video.cues), None
        if isinstance(run.encoder, Diarizer):
            turns = turns or diarized_turns(batches, run.encoder)
        else:
            voices = _together(batches, run.info.dimension)
            turns = turns or voice_turns(voices, run.info.settings["same_person"])
        labels = [
            label_in(turn.speaker, video.record.video_id) if is_role(turn.speaker) else turn.speaker
            for turn in turns
        ]
        start, end = (
            np.array([getattr(turn, side) for turn in turns], np.float64) for side in ("start", "end")
        )
        return ClipColumns(
            start,
            end,
            labels,
            _vectors(start, end, labels, voices) if voices is not None and run.info.dimension else None,
            [""] * len(turns),
        )


def voice_turns(voices: Voices, same_voice: float) -> list[Turn]:
    """Turns of unnamed voices, by start; windows are clustered at the mean cosine `same_voice`.

    Where the windows of two voices overlap, the turn changes in the middle of the overlap.
    """
    turns: list[Turn] = []
    if not len(voices.start):
        return turns
    speaker = clusters(voices.vectors, same_voice)
    # Consecutive windows overlap; a gap means silence.
    middle = (voices.start[1:] + voices.end[:-1]) / 2
    meets = voices.start[1:] < voices.end[:-1] + STEP_SECONDS / 2
    start = np.append(voices.start[0], np.where(meets, middle, voices.start[1:]))
    end = np.append(np.where(meets, middle, voices.end[:-1]), voices.end[-1])
    for first, last, number in zip(start.tolist(), end.tolist(), speaker.tolist(), strict=True):
        label = f"voice {number + 1}"
        if turns and turns[-1].speaker == label and first - turns[-1].end <= _SAME_TURN:
            turns[-1] = turns[-1]._replace(end=max(last, turns[-1].end))
        elif last > first:
            turns.append(Turn(first, last, label))
    return turns


def diarized_turns(stretches: Sequence[Diarized], diarizer: Diarizer) -> list[Turn]:
    """Turns of a recording's speakers as a diarizer hears them, by start; they may overlap.

    Turns of one speaker at most 1 s apart are merged, and turns under 0.2 s are dropped.
    """
    if not stretches:
        return []
    speaks = np.concatenate([*(stretch.speaks for stretch in stretches), diarizer.rest(stretches[-1])])
    seconds, first = diarizer.frame_seconds, stretches[0].start
    turns: list[Turn] = []
    for number, channel in enumerate(speaks.T, 1):
        if not channel.any():
            continue
        starts, ends = (
            np.flatnonzero(np.diff(channel, prepend=False, append=False)).reshape(-1, 2).T * seconds
        )
        is_new = starts[1:] - ends[:-1] > _SAME_TURN
        times = zip(
            starts[np.append(True, is_new)].tolist(), ends[np.append(is_new, True)].tolist(), strict=True
        )
        turns += [
            Turn(first + start, first + end, f"voice {number}")
            for start, end in times
            if end - start >= _SHORTEST
        ]
    return sorted(turns)


def _together(batches: Sequence[Voices], dimension: int) -> Voices:
    nothing = Voices(np.zeros(0), np.zeros(0), np.zeros((0, dimension), np.float32))
    return Voices(*(np.concatenate(columns) for columns in zip(nothing, *batches, strict=True)))


def _vectors(
    start: NDArray[np.float64], end: NDArray[np.float64], labels: Sequence[str], voices: Voices
) -> NDArray[np.float32]:
    """(n, D) unit vectors: the mean of the windows in each turn, else of the speaker's turns, else zero."""
    middle = (voices.start + voices.end) / 2
    sums = np.concatenate([np.zeros((1, voices.vectors.shape[1])), np.cumsum(voices.vectors, axis=0)])
    first, last = np.searchsorted(middle, start), np.searchsorted(middle, end)
    of_turn = sums[np.maximum(last, first)] - sums[first]
    _, speaker = np.unique(np.array(labels, object).astype(str), return_inverse=True)
    of_speaker = np.zeros((len(labels), sums.shape[1]))
    np.add.at(of_speaker, speaker, of_turn)
    vectors = np.where((last > first)[:, None], of_turn, of_speaker[speaker])
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1), np.float32)


STREAM = Speaker()
