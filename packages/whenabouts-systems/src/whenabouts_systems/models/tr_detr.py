"""TR-DETR (Sun et al., AAAI 2024): predict windows and saliency, each with the help of the other.

Clips are fused with words (the context-query attention of VSLNet), then attend to them as in QD-DETR. A first
saliency weights the clips, which are added again before a second pass through the encoder: salient clips lead
the search for windows. A recurrent network then reads the clips of the best window, and clips that resemble
its state become more salient. In training, features are aligned before they are mixed: clips of the moment
with their sentence, whole videos with theirs.

Readings: the network reads as many steps as the video has clips, with zeros after the window, as the program
does for a single video. Classes of windows have a sigmoid focal loss, without a weight of the background.
Videos that are known to answer a query are not its negatives.

See `moment_detr` and `qd_detr` for the family, `released/tr_detr.py` for the program's departures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.contrasted_model import ContrastedSettings
from whenabouts_systems.models.parts.detr_layers import SelfLayers, TextToVideo, mean_of_rows, places_of
from whenabouts_systems.models.parts.detr_names import OF_CONTRASTED, detr_names
from whenabouts_systems.models.parts.layers import Dropout
from whenabouts_systems.models.parts.window_model import AnchoredModel, Detected
from whenabouts_systems.models.parts.window_targets import (
    FOREGROUND,
    Windows,
    borders_of,
    rating_contrast,
    relevant_clips,
    saliency_labels,
)
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding, VideoEncoding
from whenabouts_systems.models.settings import NotNegative, Positive, Share

__all__ = ["Config", "Model", "released_names"]


@dataclass(frozen=True)
class Config(ContrastedSettings):
    """Settings of TR-DETR: those of QD-DETR, and more. `weight_background` is not used."""

    focal_share: Share = 0.25
    focal_power: NotNegative = 2.0
    align_temperature: Positive = 0.07
    weight_clip_text: NotNegative = 0.5
    weight_video_text: NotNegative = 0.3


class Fusion(nn.Module):
    """Fuse clips with words: context-query attention, and the query as a whole (VSLNet, section 3.3).

    The similarity of a clip c and a word w is a c + b w + (c * p) w, with learned vectors a, b and p.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.of_clip = nn.Parameter(torch.empty(width, 1))
        self.of_word = nn.Parameter(torch.empty(width, 1))
        self.of_both = nn.Parameter(torch.empty(1, 1, width))
        self.of_query = nn.Parameter(torch.empty(width, 1))
        for weight in (self.of_clip, self.of_word, self.of_both, self.of_query):
            nn.init.xavier_uniform_(weight)
        self.mixed = nn.Conv1d(4 * width, width, 1)
        self.joined = nn.Conv1d(2 * width, width, 1)
        self.dropout = Dropout(dropout)

    def forward(self, clips: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor) -> Tensor:
        """The fused clips (P, T, D), from clips (P, T, D) and words (P, L, D), each with its mask."""
        similar = self._similar(self.dropout(clips), self.dropout(words))
        to_words = similar.masked_fill(~word_mask[:, None], -torch.inf).softmax(2)
        to_clips = similar.masked_fill(~mask[..., None], -torch.inf).softmax(1)
        of_words = to_words @ words
        of_clips = to_words @ (to_clips.transpose(1, 2) @ clips)
        mixed = _linear(self.mixed, torch.cat([clips, of_words, clips * of_words, clips * of_clips], 2))
        share = (words @ self.of_query).masked_fill(~word_mask[..., None], -torch.inf).softmax(1)
        query = (words * share).sum(1, keepdim=True).expand_as(mixed)
        return _linear(self.joined, torch.cat([mixed, query], 2)).relu()

    def _similar(self, clips: Tensor, words: Tensor) -> Tensor:
        similarity = (clips * self.of_both) @ words.transpose(1, 2)
        return clips @ self.of_clip + (words @ self.of_word).transpose(1, 2) + similarity


class Model(AnchoredModel):
    """TR-DETR with fresh weights: a localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        hidden = config.hidden
        sizes = (hidden, config.heads, config.feedforward, config.dropout)
        self.fusion = Fusion(hidden, config.dropout)
        self.text_to_video = TextToVideo(config.text_layers, *sizes)
        self.encoder = SelfLayers(config.encoder_layers, *sizes, learned=True)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.salient = nn.Linear(hidden, hidden)

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        projected, mask = self.clips_of(videos), videos.mask
        words, word_mask = queries.parts["words"], queries.parts["mask"]
        places, unseen = places_of(mask, self.config.hidden), self._unseen(mask, word_mask)
        clips = self.fusion(projected, mask, words, word_mask)
        clips = self.text_to_video.inform(clips, places, words, word_mask, unseen)
        encoded = self.encoder(clips, places, mask)
        weights = self.salience(encoded).float().masked_fill(~self._counted(mask), -torch.inf)
        if self.training:  # dropout differs between the two
            encoded = self.encoder(clips, places, mask)
        memory = self.encoder(encoded + clips * weights.softmax(1)[..., None], places, mask)
        windows = self.windows_in(memory, places, mask)
        read = self.read(projected, mask, windows[-1])
        similarity = (projected.float() @ read[..., None])[..., 0]
        return Detected(windows, self.salience(memory * (1 + similarity[..., None])))

    def salience(self, clips: Tensor) -> Tensor:
        """(P, T): the saliency of clips (P, T, D)."""
        summed: Tensor = self.salient(clips).sum(-1)
        return summed / math.sqrt(self.config.hidden)

    def read(self, clips: Tensor, mask: Tensor, windows: Windows) -> Tensor:
        """(P, D) float32: the recurrent network's state after the clips of each pair's likeliest window."""
        first, end, length = self._best(windows, mask)
        steps = torch.arange(mask.shape[1], device=mask.device)
        at = first[:, None] + steps
        inside = at < end[:, None]
        rows = clips.gather(1, at.clamp(max=len(steps) - 1)[..., None].expand_as(clips))
        with torch.autocast(clips.device.type, enabled=False):
            states = self.reader(rows.float() * inside[..., None])[0]
        last: Tensor = states[torch.arange(len(states), device=mask.device), length - 1]
        return last

    def _best(self, windows: Windows, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(P,) each: first clip of the likeliest window, the clip after its last, and the steps to read."""
        best = windows.logits.float().softmax(-1)[..., FOREGROUND].argmax(1)
        span = windows.spans.detach().float()[torch.arange(len(best), device=mask.device), best]
        length = self._counted(mask).sum(1)
        first, last = (borders_of(span) * length[:, None]).floor().long().unbind(-1)
        return self._within(first, length), self._within(last + 1, length), length

    def _within(self, place: Tensor, length: Tensor) -> Tensor:
        """(P,) places clamped to 0 to `length` (P,)."""
        return torch.minimum(place.clamp(min=0), length)

    def _counted(self, mask: Tensor) -> Tensor:
        """The mask of the steps that weights and means include."""
        return mask

    def other_losses(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Losses:
        """Terms `clip_text` and `video_text`: the alignment of features."""
        clips, words = self.clips_of(videos).float(), queries.parts["words"].float()
        with torch.autocast(clips.device.type, enabled=False):
            arguments = (clips, videos.mask, words, queries.parts["mask"])
            clip_text = self._clips_with_text(*arguments, relevant_clips(batch, videos.mask))
            video_text = self._videos_with_texts(batch, *arguments)
        return {
            "clip_text": self.config.weight_clip_text * clip_text,
            "video_text": self.config.weight_video_text * video_text,
        }

    def saliency_loss(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Tensor:
        """The hinge of Moment-DETR and the contrast of ratings (see `qd_detr`), without wrong queries."""
        hinge = super().saliency_loss(batch, detected, queries, videos)
        labels = saliency_labels(batch, videos.mask)
        scores = detected.saliency.float()
        return hinge + rating_contrast(scores, labels, videos.mask, self.config.temperature)

    def class_loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """The sigmoid focal loss (Lin et al., 2017) of both classes' logits (Q, N, 2)."""
        target = functional.one_hot(classes, 2).to(logits.dtype)
        entropy = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        missed = (logits.sigmoid() - target).abs() ** self.config.focal_power
        share = torch.where(target > 0, self.config.focal_share, 1 - self.config.focal_share)
        return (share * missed * entropy).mean()

    def _clips_with_text(
        self, clips: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor, relevant: Tensor
    ) -> Tensor:
        """The cross-entropy of whether clips are `relevant` (P, T), by their cosine with the mean word."""
        text = mean_of_rows(functional.normalize(words, dim=-1), word_mask)
        similarity = (functional.normalize(clips, dim=-1) @ text[..., None])[..., 0]
        logits, labels = similarity * mask / self.config.align_temperature, relevant.float()
        entropy = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return self._mean_of_clips(entropy, mask)

    def _videos_with_texts(
        self, batch: Batch, clips: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor
    ) -> Tensor:
        """InfoNCE: each text finds its video among those of the batch, and each video its text."""
        texts, videos = (
            functional.normalize(mean_of_rows(rows, self._counted(real)), dim=-1)
            for rows, real in ((words, word_mask), (clips, mask))
        )
        logits = texts @ videos.T / self.config.align_temperature
        own_columns = torch.arange(len(logits), device=logits.device)
        logits = logits.masked_fill(
            self._answering(batch) & (own_columns[:, None] != own_columns), -torch.inf
        )
        both = functional.cross_entropy(logits, own_columns) + functional.cross_entropy(logits.T, own_columns)
        return both / 2


def _linear(layer: nn.Conv1d, rows: Tensor) -> Tensor:
    """Rows (..., D) through a convolution of width 1, the form that checkpoints have."""
    return functional.linear(rows, layer.weight[..., 0], layer.bias)


released_names = detr_names(
    Model,
    (r"^salient\.", "saliency_proj1."),
    (r"^reader\.", "gru_extractor.gru."),
    (r"^fusion\.of_clip$", "fuser.cq_attention.w4C"),
    (r"^fusion\.of_word$", "fuser.cq_attention.w4Q"),
    (r"^fusion\.of_both$", "fuser.cq_attention.w4mlu"),
    (r"^fusion\.of_query$", "fuser.cq_concat.weighted_pool.weight"),
    (r"^fusion\.mixed\.", "fuser.cq_attention.cqa_linear.conv1d."),
    (r"^fusion\.joined\.", "fuser.cq_concat.conv1d.conv1d."),
    *OF_CONTRASTED,
)
