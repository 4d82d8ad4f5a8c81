"""Asking a trained system: which words it heeded, and where it thinks that a moment starts and ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from whenabouts.encoders import EncoderUnavailable, TextEncoder, WordPieces, open_text_encoder
from whenabouts.types import Moment
from whenabouts_systems.explain.explained import Borders, TokenWeights
from whenabouts_systems.models.decoding import Decoding, span_mask
from whenabouts_systems.models.protocol import Explainer, Named, QueryEncoding, SpanScores, VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.candidates import Candidates
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, System, device_of, evaluating
from whenabouts_systems.ranking.localize import best_moments, can_localize

# How tokenizers mark a piece that goes on a word (BERT), one that begins it (SentencePiece, byte pairs), and
# one that ends it (CLIP).
_GOES_ON, _BEGINS, _ENDS = "##", ("\u2581", "\u0120"), "</w>"


@runtime_checkable
class WeighsStreams(Protocol):
    """A system that can say how much each stream counts in each clip."""

    def stream_shares(self, queries: QueryEncoding, videos: VideoEncoding) -> Named:
        """(P, T) by stream: shares that add up to 1 in each clip, for query p and video p."""
        ...


def pieces_of(text: str, encoder: str | TextEncoder) -> list[str] | None:
    """The word pieces that an encoder makes of a query; None where it cannot be had, or does not tell."""
    if isinstance(encoder, str):
        if not encoder:
            return None
        try:
            encoder = open_text_encoder(encoder)
        except EncoderUnavailable:
            return None
    return encoder.word_pieces([text])[0] if isinstance(encoder, WordPieces) else None


def pieces_for(trained: Trained, text: str, encoder: str | TextEncoder) -> list[str] | None:
    """The word pieces that a system reads: of its own tokenizer where it has one, else of the encoder."""
    return trained.inputs.pieces(text) if trained.inputs.tokenizer else pieces_of(text, encoder)


def token_weights(
    trained: System, encoded: QueryEncoding, text: str, pieces: Sequence[str] | None = None
) -> TokenWeights | None:
    """The words of one query (Q = 1) with their weights; None for a system that tells none.

    `pieces` are the encoder's word pieces, where they are known; those of one word become one word and
    their weights are added up. Without them the words of the text are taken, where there are as many as
    tokens; else tokens are called by number.
    """
    if not isinstance(trained.model, Explainer):
        return None
    with evaluating(trained.model):
        weights = {
            stream: row[0].double().cpu().numpy()
            for stream, row in trained.model.word_weights(encoded).items()
        }
    count = len(next(iter(weights.values())))
    names, named = _names(text, count, pieces)
    begins = _beginnings(names) if named else list(range(count))
    words = [_word(names[a:b]) for a, b in pairwise([*begins, count])]
    summed = {stream: tuple(np.add.reduceat(row, begins).tolist()) for stream, row in weights.items()}
    return TokenWeights(tuple(words), summed, named)


def borders(trained: System, encoded: QueryEncoding, corpus: MemoryCorpus, video_id: str) -> Borders | None:
    """Start and end of one query (Q = 1) along a video; None for a system that finds no moments."""
    model = trained.model
    if not can_localize(model):
        return None
    row = int(corpus.rows_of([video_id])[0])
    video = corpus.take([row]).to(device_of(model))
    shares: Named = {}
    with evaluating(model):
        scores = model.score_spans(encoded, video)
        if isinstance(model, WeighsStreams):
            shares = model.stream_shares(encoded, video)
    clips = int(scores.mask[0].sum())
    start, end = _probabilities(scores, clips, trained.decoding)
    seconds, duration = float(corpus.clip_seconds[row]), float(corpus.durations[row])
    low = np.arange(clips, dtype=np.float64) * seconds
    high = np.minimum(low + seconds, np.maximum(duration, low)).astype(np.float64)
    return Borders(
        low,
        high,
        start.cpu().numpy(),
        end.cpu().numpy(),
        trained.decoding.ends == "exclusive",
        _best(trained, encoded, corpus, video_id),
        {stream: share[0, :clips].double().cpu().numpy() for stream, share in shares.items()}
        if len(shares) > 1
        else {},
    )


def _names(text: str, count: int, pieces: Sequence[str] | None) -> tuple[list[str], bool]:
    """What to call the tokens, and whether they are known. Systems read the first tokens of a long query."""
    if pieces is not None and len(pieces) >= count:
        return list(pieces[:count]), True
    words = text.split()
    if len(words) == count:
        return words, True
    return [f"token {number}" for number in range(1, count + 1)], False


def _beginnings(names: Sequence[str]) -> list[int]:
    """Places of the pieces with which a word begins, by the marks that the tokenizer writes."""
    ends = any(name.endswith(_ENDS) for name in names)
    marked = any(name.startswith(_BEGINS) for name in names)

    def goes_on(at: int) -> bool:
        name, before = names[at], names[at - 1]
        if ends:
            return not (before.endswith(_ENDS) or _is_special(before) or _is_special(name))
        if marked:
            return not (name.startswith(_BEGINS) or _is_special(before) or _is_special(name))
        return name.startswith(_GOES_ON)

    return [at for at in range(len(names)) if at == 0 or not goes_on(at)]


def _is_special(name: str) -> bool:
    """Whether a token stands for no words: `<s>`, `<|endoftext|>`, `[SEP]`."""
    return len(name) > 2 and (name[0], name[-1]) in {("<", ">"), ("[", "]")}


def _word(pieces: Sequence[str]) -> str:
    """The word that is made of pieces; of marks alone, these."""
    plain = (piece.removeprefix(_GOES_ON).removesuffix(_ENDS).lstrip("".join(_BEGINS)) for piece in pieces)
    return "".join(plain) or "".join(pieces)


def _probabilities(scores: SpanScores, clips: int, decoding: Decoding) -> tuple[Tensor, Tensor]:
    """(T,) twice: the borders' scores brought to a sum of 1 along the video.

    Scores that are logarithms of probabilities stay what they are. Of a 2-D map, a border has what all spans
    with it have together; of windows, the clip in which one begins or ends has the window's probability.
    """
    if scores.windows is not None:
        begin, stop, score = scores.windows[0].double().unbind(-1)
        share = score.softmax(0)
        at = (begin.floor().long(), stop.ceil().long() - 1)
        start, end = (share.new_zeros(clips).index_add(0, clip.clamp(0, clips - 1), share) for clip in at)
        return start, end
    start, end = scores.start[0, :clips].double(), scores.end[0, :clips].double()
    if scores.spans is not None:
        spans = start[:, None] + end + scores.spans[0, :clips, :clips].double()
        spans = spans.masked_fill(~span_mask(clips, decoding, spans.device), -torch.inf)
        start, end = spans.logsumexp(1), spans.logsumexp(0)
    return start.softmax(0), end.softmax(0)


def _best(trained: System, encoded: QueryEncoding, corpus: MemoryCorpus, video_id: str) -> Moment | None:
    """The best moment of the query in one video."""
    candidates = Candidates.ragged([corpus.rows_of([video_id])], device_of(trained.model))
    best, rows = best_moments(trained.model, encoded, corpus, candidates, trained.decoding, 1, weight=0.0)
    if not best.score[0, 0] > -torch.inf:
        return None
    row = int(rows[0, 0])
    times = best.seconds(corpus.clip_seconds[row], corpus.durations[row], trained.decoding)
    start, end = (float(time[0, 0]) for time in times)
    return Moment(video_id, start, end) if start < end else None
