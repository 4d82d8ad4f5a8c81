"""CG-DETR (Moon et al., arXiv 2311.08835, 2023): clips attend to words as much as the words fit.

Clips attend to words and to dummy tokens. Dummies take up the attention of clips that no word describes;
only attention to words changes a clip. The dummies of a query are encoded together with its words. The share
of a clip's attention that goes to words is trained to be its saliency. The token of the whole video is the
mean clip plus the prompts that are most like the clips that attend to words. In training, separate encoders
give moments (the relevant clips) and sentences a vector each, from which the model learns which words belong
to which clips. The encoder over clips, the decoder and the heads are those of `qd_detr`.

Readings:

- A clip belongs to the moment if its saliency label is above 0. Alignment, distillation and attention are
  trained with these clips. Queries of one recording are not wrong for each other's videos (in QVHighlights
  videos are segments of a recording, `labels["source"]`).
- In the paper a moment's vector must not fit its own dummy sentence. The loss here is -log of the probability
  of all other dummy sentences, in a softmax over the dummy sentences of all moments. The token of the whole
  passes through the layers in which clips attend to words, but attends to nothing: attention adds its bias.
- The encoders of dummies and sentences have `text_heads` heads, 8 in the program.

See `moment_detr` and `qd_detr` for the rest, `released/cg_detr.py` for the program's departures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.contrasted_model import ContrastedSettings
from whenabouts_systems.models.parts.detr_layers import SelfLayers, Summing, places_of
from whenabouts_systems.models.parts.detr_names import OF_CONTRASTED, detr_names
from whenabouts_systems.models.parts.layers import drop, in_heads
from whenabouts_systems.models.parts.window_model import AnchoredModel, Detected
from whenabouts_systems.models.parts.window_targets import (
    rating_contrast,
    saliency_hinge,
    saliency_labels,
    saliency_pairs,
    true_windows,
)
from whenabouts_systems.models.protocol import Batch, Losses, QueryBatch, QueryEncoding, VideoEncoding
from whenabouts_systems.models.settings import NotNegative, Size

__all__ = ["Config", "Model", "released_names"]

_TINY = 1e-12


@dataclass(frozen=True)
class Config(ContrastedSettings):
    """Settings of CG-DETR: those of QD-DETR, and more."""

    encoder_layers: Size = 3
    decoder_layers: Size = 3
    dummies: Size = 45
    dummy_layers: Size = 2
    sentence_layers: Size = 1
    moment_layers: Size = 1
    text_heads: Size = 8
    prompts: Size = 10
    prompts_taken: Size = 2
    weight_attention: NotNegative = 1.0
    """Weight of the losses of attention within `weight_saliency`."""
    weight_align: NotNegative = 1.0
    weight_distill: NotNegative = 1.0
    weight_orthogonal: NotNegative = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompts_taken > self.prompts:
            raise UsageError(
                f"cg_detr: prompts_taken = {self.prompts_taken}, but there are {self.prompts} prompts"
            )


class GuidedLayer(Summing):
    """Clips attend to dummies and words without linear maps; attention to dummies passes nothing on."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__(width, inner, dropout, learned=True, path=True)
        self.heads, self.attention_dropout = heads, dropout
        self.output = nn.Linear(width, width)

    def forward(
        self, clips: Tensor, places: Tensor, keys: Tensor, words: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(P, T, D) clips informed by words, and (P, T, K + L) their attention, averaged over heads.

        `keys` (P, K + L, D): dummies and words with places. `words` (P, L, D). `seen` (P, 1 or heads, 1 or T,
        K + L) bool.
        """
        queries, sought = in_heads(clips + places, self.heads), in_heads(keys, self.heads)
        scores = queries @ sought.transpose(2, 3) / math.sqrt(queries.shape[-1])
        shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        kept = drop(shares, self.attention_dropout, training=self.training)[..., -words.shape[1] :]
        mixed = self.output((kept @ in_heads(words, self.heads)).transpose(1, 2).flatten(2))
        return self.informed(clips, mixed), shares.mean(1)

    def of_whole(self, token: Tensor) -> Tensor:
        """(P, 1, D) of a token that attends to nothing."""
        return self.informed(token, self.output.bias.expand_as(token))


@dataclass(frozen=True)
class Guided:
    """P pairs: `clips` (P, T, D) informed by the query, `places` (P, T, D), the token `whole` (P, D).

    `attention` (P, T, K + L) of clips to the K dummies and L words.
    """

    clips: Tensor
    places: Tensor
    whole: Tensor
    attention: Tensor


class Model(AnchoredModel):
    """CG-DETR with fresh weights: a localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config, path=True)
        hidden, heads, inner = config.hidden, config.heads, (config.feedforward, config.dropout)

        def encoder(layers: int, heads: int) -> SelfLayers:
            return SelfLayers(layers, hidden, heads, *inner, learned=True, path=True)

        self.kinds = nn.Embedding(2, hidden)
        nn.init.normal_(self.kinds.weight, std=0.02)
        self.dummies = nn.Parameter(torch.randn(config.dummies, hidden))
        self.dummy_places = nn.Parameter(torch.randn(config.dummies, hidden))
        self.dummy_encoder = encoder(config.dummy_layers, config.text_heads)
        self.text_to_video = nn.ModuleList(
            GuidedLayer(hidden, heads, *inner) for _ in range(config.text_layers)
        )
        self.prompts = nn.Parameter(torch.randn(config.prompts, hidden))
        self.whole_place = nn.Parameter(torch.randn(1, hidden))
        self.encoder = encoder(config.encoder_layers, heads)
        self.salient_clip = nn.Linear(hidden, hidden)
        self.salient_whole = nn.Linear(hidden, hidden)
        self.sentence = nn.Parameter(torch.randn(hidden))
        self.sentence_place = nn.Parameter(torch.randn(hidden))
        self.sentence_encoder = encoder(config.sentence_layers, config.text_heads)
        self.moment = nn.Parameter(torch.randn(hidden))
        self.moment_place = nn.Parameter(torch.randn(hidden))
        self.moment_encoder = encoder(config.moment_layers, heads)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `words` (Q, L, D), `mask` (Q, L), and `dummies` (Q, K, D) encoded with the words."""
        parts = dict(super().encode_queries(queries).parts)
        words = parts["words"] + self.kinds.weight[0]
        rows = torch.cat([self.dummies.expand(len(words), -1, -1), words], 1)
        rows = self.dummy_encoder(rows, self._with_dummy_places(words), self._with_dummies(parts["mask"]))
        return QueryEncoding({}, {**parts, "words": words, "dummies": rows[:, : self.config.dummies]})

    def clips_of(self, videos: VideoEncoding) -> Tensor:
        """See `WindowModel`; a learned vector marks clips."""
        return super().clips_of(videos) + self.kinds.weight[1]

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        guided = self.guided(queries, self.clips_of(videos), videos.mask)
        return Detected(self.windows_in(guided.clips, guided.places, videos.mask), self.salience(guided))

    def guided(self, queries: QueryEncoding, projected: Tensor, mask: Tensor) -> Guided:
        """Encode clips (P, T, D) with the words of their pair."""
        places, words = places_of(mask, self.config.hidden), queries.parts["words"]
        keys = torch.cat([queries.parts["dummies"], words], 1) + self._with_dummy_places(words)
        seen = self._seen(mask, self._with_dummies(queries.parts["mask"]))
        layers: list[GuidedLayer] = list(self.text_to_video)  # type: ignore[arg-type]
        clips, every = projected, []
        for layer in layers:
            clips, shares = layer(clips, places, keys, words, seen)
            every.append(shares)
        attention = torch.stack(every).mean(0)
        whole = self.whole_of(projected, mask, self._to_words(attention))
        for layer in layers:
            whole = layer.of_whole(whole)
        token, clips = self.encoder.with_token(whole, self.whole_place, clips, places, mask)
        return Guided(clips + token[:, None], places, token, attention)

    def whole_of(self, clips: Tensor, mask: Tensor, importance: Tensor) -> Tensor:
        """(P, 1, D) the mean clip plus the prompts most like the clips' differences from it.

        Clips are weighted by `importance` (P, T), their attention to words. Neither the weights nor the mean
        clip has a gradient.
        """
        context = ((clips * mask[..., None]).sum(1, keepdim=True) / mask.sum(1)[:, None, None]).detach()
        distances = functional.normalize(clips - context, dim=-1)
        prompt_shares = (distances @ functional.normalize(self.prompts, dim=-1).T).float().softmax(-1)
        weights = (importance * mask).detach()
        weights = weights / weights.sum(1, keepdim=True).clamp(min=_TINY)
        value, prompt = (weights[..., None] * prompt_shares).sum(1).topk(self.config.prompts_taken)
        return (value[..., None] * self.prompts[prompt]).sum(1, keepdim=True) + context

    def salience(self, guided: Guided) -> Tensor:
        """(P, T): the product of each clip with the token, over the square root of D."""
        clips = self.salient_clip(guided.clips)
        products: Tensor = (clips * self.salient_whole(guided.whole)[:, None]).sum(-1)
        return products / math.sqrt(self.config.hidden)

    def loss(self, batch: Batch) -> Losses:
        """The family's terms, and `align`, `distill`, `orthogonal`."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        own_videos = videos.take(batch.video_of)
        clips, mask = self.clips_of(own_videos), own_videos.mask
        guided = self.guided(queries, clips, mask)
        windows = self.losses_of_layers(
            self.windows_in(guided.clips, guided.places, mask), true_windows(batch, mask.sum(1))
        )
        labels = saliency_labels(batch, mask)
        align, distill = self.alignment_losses(queries, clips, guided, mask, labels > 0)
        orthogonal = unlike_each_other(queries.parts["dummies"]) + unlike_each_other(self.prompts)
        return {
            **windows,
            "saliency": self.config.weight_saliency * self._saliency(batch, queries, clips, guided, mask),
            "align": self.config.weight_align * align,
            "distill": self.config.weight_distill * distill,
            "orthogonal": self.config.weight_orthogonal * orthogonal,
        }

    def _saliency(
        self, batch: Batch, queries: QueryEncoding, clips: Tensor, guided: Guided, mask: Tensor
    ) -> Tensor:
        """The loss of saliency, and that of attention to words as saliency."""
        wrong = torch.arange(len(batch), device=mask.device).roll(-1)
        negative = self._is_negative(batch, wrong)
        rows = negative.nonzero()[:, 0]
        scores, attention = self.salience(guided).float(), self._to_words(guided.attention).float()
        wrong_scores = wrong_attention = None
        low = to_dummies = scores.new_zeros(())
        if len(rows):
            guided_wrong = self.guided(queries.take(wrong[rows]), clips[rows], mask[rows])
            wrong_scores = self.salience(guided_wrong).float()
            wrong_attention = self._to_words(guided_wrong.attention).float()
            low = (functional.softplus(wrong_scores) * mask[rows]).sum(1).mean()
            free = self._to_dummies(guided_wrong.attention).float().clamp(min=_TINY)
            to_dummies = -(free.log() * mask[rows]).sum(1).mean()
        labels, pairs = saliency_labels(batch, mask), saliency_pairs(batch, mask)
        fits = attention.where(labels > 0, self._to_dummies(guided.attention).float())
        margin, of_both = self.config.saliency_margin, (labels, mask, negative)
        of_attention = self._mean_of_clips(-fits.clamp(min=_TINY).log(), mask) + to_dummies
        of_attention = of_attention + saliency_hinge(attention, *pairs, margin)
        of_attention = of_attention + self._contrast_of_attention(attention, wrong_attention, *of_both)
        total = saliency_hinge(scores, *pairs, margin) + self._contrast(scores, wrong_scores, *of_both) + low
        return total + self.config.weight_attention * of_attention

    def _contrast(
        self, scores: Tensor, others: Tensor | None, labels: Tensor, mask: Tensor, negative: Tensor
    ) -> Tensor:
        """The contrast of ratings, over both passes for queries with a wrong query (`negative` (P,) bool).

        `others` (N, T) are the scores of the second pass for these.
        """
        both = scores.new_zeros(scores.shape)
        if others is not None:
            both = both.index_put((negative.nonzero()[:, 0],), others.float())
        joined = torch.cat([scores, both], 1)
        real = torch.cat([mask, mask & negative[:, None]], 1)
        padded = functional.pad(labels, (0, labels.shape[1]))
        return rating_contrast(joined, padded, real, self.config.temperature)

    _contrast_of_attention = _contrast

    def alignment_losses(
        self, queries: QueryEncoding, clips: Tensor, guided: Guided, mask: Tensor, relevant: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The losses of alignment and distillation; `relevant` (P, T) bool are the clips of moments."""
        words, dummies = queries.parts["words"], queries.parts["dummies"]
        tokens = (self.sentence, self.sentence_place)
        sentence, word_rows = self.sentence_encoder.with_token(
            *tokens, words, torch.zeros_like(words), queries.parts["mask"]
        )
        places = self.dummy_places.expand_as(dummies)
        every = dummies.new_ones(dummies.shape[:2], dtype=torch.bool)
        nothing, dummy_rows = self.sentence_encoder.with_token(*tokens, dummies, places, every)
        moment = (self.moment, self.moment_place, clips, guided.places)
        inside, rows_inside = self.moment_encoder.with_token(*moment, mask & relevant)
        outside, rows_outside = self.moment_encoder.with_token(*moment, mask & ~relevant)
        frames = rows_inside.where(relevant[..., None], rows_outside)
        with torch.autocast(frames.device.type, enabled=False):
            align = self._align(inside, outside, sentence, nothing)
            belongs = (inside[:, None].float() * frames.float()).sum(-1)
            align = align + self._mean_of_clips(self._membership(belongs, relevant) * mask, mask)
            similar = rows_inside.float() @ torch.cat([dummy_rows, word_rows], 1).float().transpose(1, 2)
            distill = self._distill(guided.attention.float(), similar, queries.parts["mask"], relevant)
        return align, distill

    def _align(self, inside: Tensor, outside: Tensor, sentence: Tensor, nothing: Tensor) -> Tensor:
        """Moments (P, D) fit their own sentences, but not their own dummy sentences."""
        inside, outside, sentence, nothing = (
            functional.normalize(rows.float(), dim=1) for rows in (inside, outside, sentence, nothing)
        )
        own_columns = torch.arange(len(inside), device=inside.device)
        fits = torch.cat([inside @ sentence.T, outside @ sentence.T], 1)
        empty = torch.cat([inside @ nothing.T, outside @ nothing.T], 1)
        return functional.cross_entropy(fits, own_columns) + self._misfit(empty, own_columns)

    def _misfit(self, logits: Tensor, own: Tensor) -> Tensor:
        """The loss of moments that fit their `own` (P,) dummy sentence, from logits (P, 2 P)."""
        others = logits.masked_fill(functional.one_hot(own, logits.shape[1]).bool(), -torch.inf)
        return (logits.logsumexp(1) - others.logsumexp(1)).mean()

    def _membership(self, logits: Tensor, relevant: Tensor) -> Tensor:
        """(P, T) the cross-entropy of whether clips belong to the moment."""
        return functional.binary_cross_entropy_with_logits(logits, relevant.float(), reduction="none")

    def _distill(self, attention: Tensor, similar: Tensor, words: Tensor, relevant: Tensor) -> Tensor:
        """The divergence of the attention (P, T, K + L) of a moment's clips from the softmax of similarities.

        It is divided by the number of dummies and words.
        """
        seen = self._with_dummies(words)[:, None].expand_as(similar)
        target = similar.detach().masked_fill(~seen, -torch.inf).softmax(-1)
        divergence = torch.xlogy(target, target) - target * (attention + 1e-6).log()
        means = divergence.sum(-1) / seen.sum(-1)
        return (means * relevant).sum() / relevant.sum().clamp(min=1)

    def _is_negative(self, batch: Batch, wrong: Tensor) -> Tensor:
        """(Q,) bool: whether query `wrong` (Q,) is wrong for the video of each query."""
        source = batch.labels.get("source", batch.video_of)
        answering = self._answering(batch)[wrong, torch.arange(len(batch), device=wrong.device)]
        return (source[wrong] != source) & ~answering

    def _to_dummies(self, attention: Tensor) -> Tensor:
        """(P, T) the share of attention to dummies."""
        return attention[..., : self.config.dummies].sum(-1)

    def _to_words(self, attention: Tensor) -> Tensor:
        return attention[..., self.config.dummies :].sum(-1).clamp(0, 1)

    def _with_dummies(self, mask: Tensor) -> Tensor:
        """(Q, K + L) from a mask (Q, L) of words."""
        return functional.pad(mask, (self.config.dummies, 0), value=True)

    def _with_dummy_places(self, words: Tensor) -> Tensor:
        """(Q, K + L, D): learned places of dummies, zeros for words."""
        return torch.cat([self.dummy_places.expand(len(words), -1, -1), torch.zeros_like(words)], 1)

    def _seen(self, clips: Tensor, keys: Tensor) -> Tensor:
        """(P, 1 or heads, 1 or T, K + L) bool: the keys that clips attend to."""
        seen, padding = keys[:, None, None], self._unseen(clips, keys)
        if padding is None:
            return seen
        return seen & ~padding.view(len(clips), self.config.heads, *padding.shape[1:])


def unlike_each_other(tokens: Tensor) -> Tensor:
    """The mean absolute cosine of vectors (..., K, D), with 0 for a vector and itself.

    Only one of the two vectors of a cosine has a gradient.
    """
    unit = functional.normalize(tokens.float(), dim=-1)
    similarity = unit @ unit.detach().transpose(-1, -2)
    return (similarity * (1 - torch.eye(tokens.shape[-2], device=tokens.device))).abs().mean()


released_names = detr_names(
    Model,
    (r"^kinds\.", "token_type_embeddings."),
    (r"^dummies$", "dummy_rep_token"),
    (r"^dummy_places$", "dummy_rep_pos"),
    (r"^prompts$", "global_rep_token"),
    (r"^(sent)ence$", r"\1_rep_token"),
    (r"^(sent)ence_place$", r"\1_rep_pos"),
    (r"^moment$", "moment_rep_token"),
    (r"^moment_place$", "moment_rep_pos"),
    (r"^dummy_encoder\.", "txtproj_encoder.layers."),
    (r"^sentence_encoder\.", "scls_encoder.layers."),
    (r"^moment_encoder\.", "transformer.mcls_encoder.layers."),
    (r"^text_to_video\.(\d+)\.output\.", r"text_to_video.\1.self_attn.out_proj."),
    *OF_CONTRASTED,
)
