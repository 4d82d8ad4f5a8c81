"""The stream of words: subtitles, or else recognised speech, as passages with the minute around them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import encode_passages
from whenabouts.index.reading import ReadVideo
from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.index.stream import Cost, Option, Reads, Setup, Stream, StreamRun
from whenabouts.streams._choices import made_by, text_encoder
from whenabouts.streams._passages import Passage, passage_vectors, passages_of
from whenabouts.video.cue import Cue

# Measured on two cores (benchmarks/ingest.py): an hour's words in 0.9 s and 0.6 MB.
_COST = Cost(seconds=3.0, bytes=0.6e6, varies=True)


class Subtitle(Stream):
    """Speech in passages of some fifteen seconds."""

    name = "subtitle"
    title = "words"
    order = 0
    has_words = True
    transcript = True
    options = (
        Option(
            "--text",
            "MODEL",
            "sentence encoder (default: the offline MiniLM, English; multilingual-e5: 100 languages)",
        ),
    )
    remedy = "index files that have subtitles, or with --transcribe for speech"
    absent = "no words are said there"
    letters_only = "install one of the text encoders that this report names, and index again"

    def setup(self, setup: Setup) -> StreamRun:
        """Every corpus has this stream; without a sentence encoder it is searched by words only."""
        encoder = text_encoder(setup, self.title)
        return StreamRun(self, StreamInfo(self.name, *made_by(encoder), {}), encoder, Reads(cues=True), _COST)

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        passages = passages_of(video.cues, video.record.duration, language=video.record.language)
        encode = None if run.encoder is None or not passages else partial(encode_passages, run.encoder)
        return ClipColumns(
            start=np.array([passage.start for passage in passages], np.float64),
            end=np.array([passage.end for passage in passages], np.float64),
            text=[passage.text for passage in passages],
            context=[passage.context for passage in passages],
            vectors=None if encode is None else passage_vectors(passages, encode),
            recognised=_recognised(passages, video.cues),
        )


def _recognised(passages: Sequence[Passage], cues: Sequence[Cue]) -> NDArray[np.float32] | None:
    """(n,) the recogniser's certainty of each passage; None if the words were written."""
    sure = [(cue.start, cue.end, cue.confidence) for cue in cues if cue.confidence is not None]
    if not sure or not passages:
        return None
    starts, ends, confidence = np.array(sorted(sure)).T
    values = [confidence[(starts < passage.end) & (ends > passage.start)].mean() for passage in passages]
    return np.nan_to_num(np.array(values, np.float32))


STREAM = Subtitle()
