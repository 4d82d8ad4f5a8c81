"""UVCOM (Xiao et al., CVPR 2024): predict windows and saliency from clips mixed with words and neighbours.

Clips attend to words, and words to clips. Both are clustered; the cluster of clips most similar to the
clusters of words represents the whole video. Convolutions mix clips with their neighbours. A random walk then
mixes them with the clusters of words. The windows' initial content is the sentence after it has attended to
the clips. In training the sentence must be more similar to its own video than to others of the batch, and to
clips of the moment than to other clips. Saliency is as in QD-DETR.

Readings:

- The walk runs to its limit, as in the paper and the authors' program. lighthouse, whose checkpoints are
  published, uses a matrix in place of its inverse (`whole_walk` False; see `walked`).
- The wrong sentence is that of the next query. From the epoch `unlike_from_epoch` on it is the batch's
  sentence least similar to the video, as in the authors' program (80 on QVHighlights, 70 on Charades-STA).
  lighthouse never passes the epoch to its model.
- A span is relative to the anchor that its layer has refined.
- `projections` counts the layers of words. Clips have two; layer number `projections`, if there is one, has
  no ReLU, as in lighthouse.

`released/uvcom.py` has lighthouse's departures.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.contrasted_model import ContrastedModel, ContrastedSettings
from whenabouts_systems.models.parts.detr_layers import (
    Projection,
    SelfLayers,
    TextToVideo,
    mean_of_rows,
    places_of,
)
from whenabouts_systems.models.parts.detr_names import (
    OF_ANCHOR_DECODER,
    OF_SELF_LAYERS,
    OF_SLOT_ATTENTION,
    detr_names,
    perceptron_names,
)
from whenabouts_systems.models.parts.slot_attention import SlotAttention
from whenabouts_systems.models.parts.transformer import perceptron
from whenabouts_systems.models.parts.window_model import Detected
from whenabouts_systems.models.parts.window_targets import relevant_clips
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding, VideoEncoding
from whenabouts_systems.models.settings import Count, NotNegative, Size

__all__ = ["Config", "Model", "released_names"]

_SLOT_ROUNDS = 5
_CLIP_LAYERS = 2
_SPREAD = 1.2
_SHARPNESS = 5.0
_STAY = 0.5
_TINY = 1e-9


@dataclass(frozen=True)
class Config(ContrastedSettings):
    """Settings of UVCOM: those of QD-DETR, and more.

    `text_layers` is also the number of layers in which words attend to clips; `rounds` are the clustering's.
    """

    text_layers: Size = 3
    encoder_layers: Size = 3
    decoder_layers: Size = 3
    windows: Size = 30
    text_centres: Size = 5
    video_centres: Size = 30
    rounds: Size = 5
    inner: Size = 1024
    """Inner width of the perceptrons that compare sentence and video, and of the slot attention's."""
    whole_walk: bool = True
    weight_similarity: NotNegative = 1.0
    unlike_from_epoch: Count | None = None
    """The first epoch, from 0, in which wrong sentences are those least similar to the video; None: never."""


@dataclass(frozen=True)
class Integrated:
    """P pairs: `clips` (P, T, D) and `whole` (P, D) after the encoder, and the clips' `places`.

    `mixed` (P, T, D) are the clips before the encoder, `sentence` (P, D) is the mean of the words.
    """

    clips: Tensor
    whole: Tensor
    places: Tensor
    mixed: Tensor
    sentence: Tensor


@dataclass(frozen=True)
class WithSentence(Detected):
    """Windows and saliency, with the encoded pairs."""

    integrated: Integrated


class Model(ContrastedModel):
    """UVCOM with fresh weights: a localizer (see `protocol`)."""

    counts_padding = False
    """Whether padding takes part, in the slots with the same weight for each (`SlotAttention`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        hidden, inner = config.hidden, (config.inner, config.inner)
        if config.projections != _CLIP_LAYERS:
            width, bare = sum(config.streams.values()) + 2 * config.tef, config.projections - 1
            self.clip_projection = Projection(width, hidden, _CLIP_LAYERS, config.input_dropout, bare)
        sizes = (hidden, config.heads, config.feedforward, config.dropout)
        self.text_to_video = TextToVideo(config.text_layers, *sizes)
        self.video_to_text = TextToVideo(config.text_layers, *sizes)
        self.encoder = SelfLayers(config.encoder_layers, *sizes, learned=True)
        self.whole_place = nn.Parameter(torch.randn(hidden))
        self.text_centres = nn.Parameter(torch.randn(config.text_centres, hidden))
        self.video_centres = nn.Parameter(torch.randn(config.video_centres, hidden))
        self.sentence = nn.Sequential(nn.Linear(hidden, hidden), nn.LayerNorm(hidden))
        self.neighbours = nn.ModuleList(
            nn.Conv1d(hidden, hidden, width, padding=width // 2) for width in (1, 3, 1)
        )
        self.slot_attention = SlotAttention(hidden, _SLOT_ROUNDS, inner, share_padding=self.counts_padding)
        self.held = nn.Embedding(config.windows, hidden)
        self.compared_video = perceptron(hidden, hidden, inner)
        self.compared_text = perceptron(hidden, hidden, inner)

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> WithSentence:
        integrated = self.integrated(queries, videos)
        clips, places, mask = integrated.clips, integrated.places, videos.mask
        slots = integrated.sentence[:, None].expand(-1, self.config.windows, -1)
        contents = self.slot_attention(slots, clips, mask) + self.held.weight
        windows = self.windows_in(clips, places, mask, contents, mended=True)
        return WithSentence(windows, self.salience(clips, integrated.whole), integrated)

    def saliency_for(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        integrated = self.integrated(queries, videos)
        return self.salience(integrated.clips, integrated.whole)

    def integrated(self, queries: QueryEncoding, videos: VideoEncoding) -> Integrated:
        """Encode clips with the words of their pair."""
        mask, word_mask = videos.mask, queries.parts["mask"]
        places = places_of(mask, self.config.hidden)
        clips, words = self._attended(self.clips_of(videos), places, mask, queries)
        counted, counted_words = self._counted(mask), self._counted(word_mask)
        sentence = mean_of_rows(self.sentence(words), counted_words)
        text = self._clusters(self.text_centres, words, counted_words)
        whole = _most_alike(self._clusters(self.video_centres, clips, counted), text)
        mixed = clips + self._walked(self._with_neighbours(clips, mask), text, counted)
        whole, clips = self.encoder.with_token(whole[:, None], self.whole_place, mixed, places, mask)
        return Integrated(clips, whole, places, mixed, sentence)

    def _attended(
        self, clips: Tensor, places: Tensor, mask: Tensor, queries: QueryEncoding
    ) -> tuple[Tensor, Tensor]:
        """Clips (P, T, D) that have attended to words, and words (P, L, D) that have attended to clips."""
        words, word_mask = queries.parts["words"], queries.parts["mask"]
        unseen, unheard = self._unseen(mask, word_mask), self._unseen(word_mask, mask)
        mixed_clips = self.text_to_video.inform(clips, places, words, word_mask, unseen)
        mixed_words = self.video_to_text.inform(words, torch.zeros_like(words), clips, mask, unheard, places)
        return mixed_clips, mixed_words

    def _counted(self, mask: Tensor) -> Tensor | None:
        """The mask of the steps that clusters, means and the walk include; None: all steps."""
        return None if self.counts_padding else mask

    def _walked(self, clips: Tensor, text: Tensor, mask: Tensor | None) -> Tensor:
        """(P, T, D) the random walk from clips (P, T, D) to the clusters of words."""
        return walked(clips, text, mask, whole=self.config.whole_walk)

    def _clusters(self, centres: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
        return clustered(centres.expand(len(rows), -1, -1), rows, mask, self.config.rounds)

    def _with_neighbours(self, clips: Tensor, mask: Tensor) -> Tensor:
        """(P, T, D) clips plus a convolution of their neighbours."""
        first, second, third = self.neighbours
        columns = first((clips * mask[..., None]).transpose(1, 2))
        if (counted := self._counted(mask)) is not None:
            columns = columns * counted[:, None]
        near: Tensor = clips + third(second(columns)).transpose(1, 2)
        return near

    def other_losses(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Losses:
        """Term `similarity`: of sentences with their videos, and with clips of their moments."""
        assert isinstance(detected, WithSentence)
        text, whole, clips = self._compared(detected.integrated)
        with torch.autocast(text.device.type, enabled=False):
            among = self._among_videos(batch, whole @ text.T)
            within = self._within_videos(batch, (clips @ text[..., None])[..., 0], videos.mask)
        return {"similarity": -self.config.weight_similarity * (among + within) / 2}

    def _compared(self, integrated: Integrated) -> tuple[Tensor, Tensor, Tensor]:
        """Unit vectors of the sentences and the whole videos (P, D), and of the clips (P, T, D)."""
        given = (
            self.compared_text(integrated.sentence),
            self.compared_video(integrated.whole),
            self.compared_video(integrated.mixed),
        )
        text, whole, clips = (functional.normalize(rows.float(), dim=-1) for rows in given)
        return text, whole, clips

    @torch.no_grad()
    def wrong_queries(self, batch: Batch, detected: Detected, mask: Tensor) -> Tensor:
        """(Q,) the next query, or the one least similar to the video (see `Config.unlike_from_epoch`)."""
        begins = self.config.unlike_from_epoch
        if begins is None or batch.epoch < begins:
            return super().wrong_queries(batch, detected, mask)
        assert isinstance(detected, WithSentence)
        text, whole, clips = self._compared(detected.integrated)
        mean = mean_of_rows(clips, self._counted(mask))
        similarity = (whole @ text.T).softmax(1) + (mean @ text.T).softmax(1)
        return similarity.masked_fill(self._answering(batch).T, torch.inf).argmin(1)

    def _among_videos(self, batch: Batch, alike: Tensor) -> Tensor:
        """The mean log-probability of the own pairs among (Q, Q), both ways, without known positives."""
        own = torch.eye(len(alike), dtype=torch.bool, device=alike.device)
        alike = alike.masked_fill(self._answering(batch).T & ~own, -torch.inf)
        both = alike.log_softmax(1).diagonal() + alike.log_softmax(0).diagonal()
        return both.mean() / 2

    def _within_videos(self, batch: Batch, alike: Tensor, mask: Tensor) -> Tensor:
        """The sum of the log-probabilities of a moment's clips, divided by the number of all clips."""
        inside = relevant_clips(batch, mask)
        every = alike.masked_fill(~mask, -torch.inf).log_softmax(1).masked_fill(~inside, 0.0)
        return (every.sum(1) / mask.sum(1).clamp(min=1)).mean()


def clustered(centres: Tensor, rows: Tensor, mask: Tensor | None, rounds: int) -> Tensor:
    """(P, K, D) centres after some rounds of expectation and maximisation, from `centres` (P, K, D).

    The shares of a row (P, T, D) in centres follow a Gaussian of the distance of their directions; a centre
    becomes the mean of its rows, weighted by these shares (section 3.2). `mask` (P, T) marks the rows that
    take part; None: all.
    """
    directions = _unit(rows)
    for _ in range(rounds):
        unit = _unit(centres)
        products = unit @ directions.transpose(1, 2)
        lengths = unit.square().sum(-1)[..., None] + directions.square().sum(-1)[:, None]
        distances = (lengths - 2 * products).clamp(min=0)
        shares = _of_rows((-0.5 * distances / _SPREAD**2).softmax(1), mask)
        centres = _shared(shares) @ rows
    return centres


def walked(rows: Tensor, centres: Tensor, mask: Tensor | None, *, whole: bool) -> Tensor:
    """(P, T, D) rows after a random walk between them and centres (P, K, D).

    With the shares z of rows x in centres y, the affinity A of rows by these shares, and w = 0.5, the result
    is (1 - w) (I - w^2 A)^-1 (x + w z^T y). With `whole` False, I - w^2 A replaces its inverse, as in
    lighthouse: it kept the order of arguments of the authors' solver, which PyTorch has changed.
    """
    shares = _of_rows((_SHARPNESS * (_unit(centres) @ _unit(rows).transpose(1, 2))).softmax(1), mask)
    affinity = shares.transpose(1, 2) @ _shared(shares)
    steps = torch.eye(rows.shape[1], device=rows.device, dtype=rows.dtype) - _STAY**2 * affinity
    mixed = _STAY * (shares.transpose(1, 2) @ centres) + rows
    end: Tensor = torch.linalg.solve(steps, mixed) if whole else steps @ mixed
    return end * (1 - _STAY)


def _unit(rows: Tensor) -> Tensor:
    unit: Tensor = rows / (rows.norm(dim=-1, keepdim=True) + _TINY)
    return unit


def _of_rows(shares: Tensor, mask: Tensor | None) -> Tensor:
    """(P, K, T) shares, zero for rows that do not take part."""
    return shares if mask is None else shares * mask[:, None]


def _shared(shares: Tensor) -> Tensor:
    """(P, K, T) shares, normalised so that those of each centre add up to 1."""
    return shares / (shares.sum(-1, keepdim=True) + _TINY)


def _most_alike(centres: Tensor, text: Tensor) -> Tensor:
    """(P, D) the centre among (P, K, D) with the largest mean cosine with the clusters of words."""
    cosines = functional.normalize(centres, dim=-1) @ functional.normalize(text, dim=-1).transpose(1, 2)
    best = cosines.mean(-1).argmax(1)
    return centres[torch.arange(len(centres), device=centres.device), best]


released_names = detr_names(
    Model,
    *perceptron_names("span", "span_embed", 3),
    *perceptron_names("compared_video", "CIM.sim_vid", 3),
    *perceptron_names("compared_text", "CIM.sim_txt", 3),
    (r"^classes\.", "class_embed."),
    (r"^whole_place$", "global_rep_pos"),
    (r"^salient_clip\.", "saliency_proj1."),
    (r"^salient_whole\.", "saliency_proj2."),
    (r"^text_centres$", "CIM.txt_mu"),
    (r"^video_centres$", "CIM.vid_mu"),
    (r"^sentence\.", "CIM.feature_proj."),
    (r"^neighbours\.", "CIM.conv_local."),
    (r"^slot_attention\.", "CIM.processer_for_tgt."),
    *OF_SLOT_ATTENTION,
    (r"^held\.", "CIM.decoder.span_embed."),
    (r"^text_to_video\.", "CIM.t2v_encoder.layers."),
    (r"^video_to_text\.", "CIM.v2t_encoder.layers."),
    (r"^encoder\.", "CIM.GKA_Module.layers."),
    *OF_ANCHOR_DECODER,
    (r"^transformer\.decoder\.", "CIM.decoder."),
    *OF_SELF_LAYERS,
    of_clips=_CLIP_LAYERS,
)
