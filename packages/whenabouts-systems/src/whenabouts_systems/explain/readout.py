"""Read from a trained system the weights of words and the probabilities of a moment's start and end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from whenabouts.clips import clip_among
from whenabouts.encoders import EncoderUnavailable, TextEncoder, WordPieces, open_text_encoder
from whenabouts.types import Moment
from whenabouts_systems.explain.explained import Borders, SimilarClip, TokenWeights
from whenabouts_systems.models.decoding import Decoding, span_mask
from whenabouts_systems.models.parts.relevant_content import clip_cosines
from whenabouts_systems.models.protocol import Explainer, Named, QueryEncoding, SpanScores, VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.candidates import Candidates, can_retrieve
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, System, device_of, evaluating
from whenabouts_systems.ranking.localize import best_moments, can_localize

# Tokenizers' marks of a piece that continues a word (BERT), begins one (SentencePiece, byte pairs), or ends
# one (CLIP).
_GOES_ON, _BEGINS, _ENDS = "##", ("\u2581", "\u0120"), "</w>"


@runtime_checkable
class WeighsStreams(Protocol):
    """A system that gives the weight of each stream in each clip."""

    def stream_shares(self, queries: QueryEncoding, videos: VideoEncoding) -> Named:
        """Stream -> (P, T) weights for query p and video p, which add up to 1 in each clip."""


def pieces_of(text: str, encoder: str | TextEncoder) -> list[str] | None:
    """The word pieces of a query by an encoder; None if it is not installed or gives no pieces."""
    if isinstance(encoder, str):
        if not encoder:
            return None
        try:
            encoder = open_text_encoder(encoder)
        except EncoderUnavailable:
            return None
    return encoder.word_pieces([text])[0] if isinstance(encoder, WordPieces) else None


def pieces_for(trained: Trained, text: str, encoder: str | TextEncoder) -> list[str] | None:
    """The word pieces that a system reads, by its own tokenizer or else by the encoder."""
    return trained.inputs.pieces(text) if trained.inputs.tokenizer else pieces_of(text, encoder)


def token_weights(
    trained: System, encoded: QueryEncoding, text: str, pieces: Sequence[str] | None = None
) -> TokenWeights | None:
    """The words of one query (Q = 1) with their weights; None for a system that gives no weights.

    `pieces` are the encoder's word pieces, if known; the pieces of a word are joined and their weights added.
    Without pieces, the words of the text are used if they are as many as the tokens; otherwise tokens are
    numbered.
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
    """Start and end probabilities of one query (Q = 1) in a video; None for a system without moments."""
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


def similar_clips(
    trained: System,
    encoded: QueryEncoding,
    corpus: MemoryCorpus,
    video_id: str,
    truth: Sequence[Moment],
    along: Borders | None,
) -> tuple[SimilarClip, ...]:
    """The clips of a video most similar to one query (Q = 1) in each stream, inside and outside a moment.

    Figure 6 (a) of paper 003, with the cosines of its equation 6. The moment is the true one, or else that
    answered `along` the video; "inside" are all clips that it touches, as in equations 7 and 8. Without a
    moment the place is "anywhere". Empty for systems that do not find videos by a key for each clip.
    """
    row = int(corpus.rows_of([video_id])[0])
    video = corpus.take([row]).to(device_of(trained.model))
    mask, keys = video.mask, video.key_masks.values()
    by_clips = bool(keys) and all(key.shape == mask.shape and bool(mask[key].all()) for key in keys)
    if not (by_clips and can_retrieve(trained.model)):
        return ()
    duration, seconds = float(corpus.durations[row]), float(corpus.clip_seconds[row])
    low = np.arange(int(mask.sum()), dtype=np.float64) * seconds
    low = low[low < duration]
    right = [moment for moment in truth if moment.video_id == video_id and moment.start < duration]
    if not right and along is not None and along.answered is not None:
        right = [along.answered]
    inside = np.zeros(len(low), bool)
    for moment in right:
        inside[clip_among(low, moment.start) : clip_among(low, moment.end, ends=True) + 1] = True
    places = {"inside": inside, "outside": ~inside} if right else {"anywhere": ~inside}
    best: dict[tuple[str, int], dict[str, float]] = {}
    for stream, cosines in zip(video.keys, clip_cosines(encoded, video)[:, 0, : len(low), 0], strict=True):
        for place, allowed in places.items():
            values = np.where(allowed, cosines.cpu().numpy(), -np.inf)
            if values.max() > -np.inf:
                best.setdefault((place, int(values.argmax())), {})[stream] = round(float(values.max()), 5)
    times = {at: Moment(video_id, float(low[at]), min(float(low[at]) + seconds, duration)) for _, at in best}
    return tuple(SimilarClip(times[at], place, cosines) for (place, at), cosines in best.items())


def _names(text: str, count: int, pieces: Sequence[str] | None) -> tuple[list[str], bool]:
    """Names of the tokens, and whether they are known. Systems read only the first tokens of long queries."""
    if pieces is not None and len(pieces) >= count:
        return list(pieces[:count]), True
    words = text.split()
    if len(words) == count:
        return words, True
    return [f"token {number}" for number in range(1, count + 1)], False


def _beginnings(names: Sequence[str]) -> list[int]:
    """Indices of the pieces that begin a word, by the tokenizer's marks."""
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
    """Whether a token is special: `<s>`, `<|endoftext|>`, `[SEP]`."""
    return len(name) > 2 and (name[0], name[-1]) in {("<", ">"), ("[", "]")}


def _word(pieces: Sequence[str]) -> str:
    """The word made of pieces without marks; if they are only marks, the marks."""
    plain = (piece.removeprefix(_GOES_ON).removesuffix(_ENDS).lstrip("".join(_BEGINS)) for piece in pieces)
    return "".join(plain) or "".join(pieces)


def _probabilities(scores: SpanScores, clips: int, decoding: Decoding) -> tuple[Tensor, Tensor]:
    """Start and end probabilities (T,): softmaxes of the borders' scores over the video.

    For a 2-D map, a border has the sum of the probabilities of all spans with it. For windows, the clip in
    which a window begins or ends gets the window's probability.
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
