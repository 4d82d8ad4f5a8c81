"""The losses of papers 000 and 003, their values and gradients, against NumPy in float64 (`numpy_losses`).

A model's own layers are left out: the vectors that its encoders would make are the numbers of which gradients
are taken. So whatever a loss does to a score, `detach` included, changes a gradient that is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.numpy_losses import (
    Arrays,
    Facts,
    Paper000,
    PremLocalizer,
    PremRetriever,
    slopes,
)
from tests.models.test_xml import ODD_WEIGHTS, PR, SEGMENT
from torch import Tensor, nn
from torch.nn.functional import normalize

from whenabouts_systems.models import config_of, new_model, prem_localizer, xml
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.parts import ranking_loss
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, QueryEncoding, VideoEncoding

FACTS = Facts(
    clips=[6, 4, 5, 3, 6],
    tokens=[3, 1, 4, 2, 3],
    own=[0, 1, 2, 0, 3],
    spans=[(1, 2), (0, 3), (4, 4), (3, 5), (0, 1)],
    confidence={(0, 1): 0.8, (1, 0): 0.8, (2, 4): 0.3, (0, 3): 0.6, (3, 0): 0.6, (4, 2): 1.0},
)
STREAMS = ("video", "sub")
WIDTH = 3


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _batch(**more: Any) -> Batch:
    """The facts as a batch; features are ones, for nothing reads them."""
    clips, tokens, own = _mask(FACTS.clips), _mask(FACTS.tokens), torch.tensor(FACTS.own)
    confidence = torch.zeros(len(own), len(own), dtype=torch.float64)
    for pair, value in FACTS.confidence.items():
        confidence[pair] = value
    return Batch(
        QueryBatch(torch.ones(*tokens.shape, 1, dtype=torch.float64), tokens),
        ClipBatch({name: torch.ones(*clips.shape, 1, dtype=torch.float64) for name in STREAMS}, clips),
        own,
        torch.tensor(FACTS.spans),
        own[:, None] == torch.arange(len(FACTS.clips)),
        confidence=confidence,
        **more,
    )


def _drawn(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Arrays:
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=shape) for name, shape in shapes.items()}


def _new(system: str, **settings: Any) -> Any:
    sizes = {"streams": dict.fromkeys(STREAMS, 1), "query_width": 1, "hidden": WIDTH, "heads": 1}
    return new_model(system, config_of(system, {**sizes, **settings})).double().eval()


def _compared(loss: Callable[[dict[str, Tensor]], Tensor], plain: Any, arrays: Arrays) -> None:
    """AssertionError where values or gradients differ by more than float32 inside the losses explains."""
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    total = loss(leaves)
    assert total.item() == pytest.approx(plain.loss(arrays), rel=1e-5)
    gradients = torch.autograd.grad(total, list(leaves.values()))
    expected = slopes(plain.loss, arrays)
    for (name, slope), gradient in zip(expected.items(), gradients, strict=True):
        assert np.abs(slope).max() > 1e-4, f"{name} has no part in this loss"
        scale = 1e-4 * np.abs(slope).max()
        np.testing.assert_allclose(gradient.numpy(), slope, rtol=1e-4, atol=scale, err_msg=name)


def _summed(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([term.double() for term in losses.values()]).sum()


# --- paper 000

XML_ROWS: Mapping[str, tuple[Mapping[str, Any], dict[str, Any]]] = {
    "XML": ({}, {}),
    "+PR": (
        PR,
        {"rel_neg": (1.0, 0.0), "pos_rel": (1.0, 0.0), "tl_2": 1.0},
    ),
    "+SL": (SEGMENT, {"vcmr": 1.0}),
    "+SL+PR, other weights": (
        ODD_WEIGHTS,
        {"rel_neg": (0.3, 1.7), "pos_rel": (0.6, 0.2), "tl_2": 0.7, "vcmr": 0.4, "tl": 0.5},
    ),
}
XML_ARRAYS = _drawn(
    {
        "search": (2, 5, WIDTH),
        "keys": (2, 5, 6, WIDTH),
        "asked": (2, 5, WIDTH),
        "seen": (2, 5, 6, WIDTH),
        "kernels": (2, 3),
    },
    seed=4,
)


def _xml(leaves: Mapping[str, Tensor], **settings: Any) -> Any:
    """XML whose encoders give the leaves."""
    model = _new("xml", span_kernel=3, first_pool=1, alpha=3.0, **settings)
    search, keys = (normalize(leaves[name], dim=-1) for name in ("search", "keys"))
    mask = _mask(FACTS.clips)
    parts = {f"span/{name}": leaves["asked"][at] for at, name in enumerate(STREAMS)}
    videos = VideoEncoding(
        mask,
        {name: keys[at] * mask[..., None] for at, name in enumerate(STREAMS)},
        dict.fromkeys(STREAMS, mask),
        {f"clips/{name}": leaves["seen"][at] * mask[..., None] for at, name in enumerate(STREAMS)},
    )
    model.encode_queries = lambda _: QueryEncoding(dict(zip(STREAMS, search, strict=True)), parts)
    model.encode_videos = lambda _: videos
    for at, convolution in enumerate((model.borders["merged"].start, model.borders["merged"].end)):
        del convolution.weight
        convolution.weight = leaves["kernels"][at].view(1, 1, -1)
    return model


def _compare_xml(row: str, reading: str) -> None:
    settings, weights = XML_ROWS[row]

    def loss(leaves: dict[str, Tensor]) -> Tensor:
        return _summed(_xml(leaves, moment_scores=reading, **settings).loss(_batch()))

    # Without PR a relevant pair is a pair like others: a negative.
    facts = FACTS if "PR" in row else replace(FACTS, confidence={})
    _compared(loss, Paper000(facts, alpha=3.0, reading=reading, **weights), XML_ARRAYS)


@pytest.mark.parametrize("row", list(XML_ROWS))
def test_equations_9_to_18_and_their_gradients(row: str) -> None:
    for reading in ("log", "shift", "logits") if "SL" in row else ("log",):
        _compare_xml(row, reading)


@pytest.mark.parametrize("reading", ["log", "logits"])
def test_a_video_score_without_gradient_in_equation_14_is_noticed(
    reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(logits: Tensor, scores: Tensor, *rest: Any) -> Tensor:
        return ranking_loss.moment_relevance(logits, scores.detach(), *rest)

    monkeypatch.setattr(xml, "moment_relevance", without)
    with pytest.raises(AssertionError, match="search"):
        _compare_xml("+SL", reading)


def test_the_weight_of_the_video_in_equation_14_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(logits: Tensor, scores: Tensor, alpha: float, *rest: Any) -> Tensor:
        return ranking_loss.moment_relevance(logits, scores, alpha * 0.99, *rest)

    monkeypatch.setattr(xml, "moment_relevance", lower)
    with pytest.raises(AssertionError):
        _compare_xml("+SL", "log")


@torch.no_grad()
def test_equations_1_to_4_order_the_moments_of_a_query() -> None:
    model = _xml({name: torch.tensor(array) for name, array in XML_ARRAYS.items()})
    queries, videos = model.encode_queries(None), model.encode_videos(_batch().videos)
    query, video = torch.cartesian_prod(torch.arange(5), torch.arange(5)).unbind(1)
    spans = model.score_spans(queries.take(query), videos.take(video))
    best = best_spans(spans, Decoding(min_clips=2, max_clips=4), 30)
    added = model.video_weight * model.score_videos(queries, videos)[query, video]
    row, place = (best.score > -torch.inf).nonzero().unbind(1)
    found = {
        (int(query[r]), int(video[r]), int(best.first[r, p]), int(best.last[r, p])): float(
            best.score[r, p] + added[r]
        )
        for r, p in zip(row.tolist(), place.tolist(), strict=True)
    }
    expected = Paper000(FACTS, alpha=3.0).s_vcmr(XML_ARRAYS, 2, 4)
    assert found.keys() == expected.keys() and len(found) > 100
    assert found == pytest.approx({span: np.log(score) for span, score in expected.items()}, abs=1e-5)


# --- paper 003 (PREM)

RETRIEVER_ARRAYS = _drawn({"words": (5, 4, WIDTH), "clips": (2, 5, 6, WIDTH), "pooling": (2, WIDTH)}, seed=2)


class _Given(nn.Module):
    """A layer that returns what it was made with."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given = given

    def forward(self, *_: Any) -> Any:
        return self.given


class _First(nn.Module):
    """A layer that returns its first argument: a transformer that does nothing."""

    def forward(self, rows: Tensor, *_: Any) -> Tensor:
        return rows

    def keys_and_values(self, words: Tensor) -> Tensor:
        return words


def _with_leaves(model: Any, leaves: Mapping[str, Tensor]) -> Any:
    mask = _mask(FACTS.clips)[..., None]
    model.words = lambda _: leaves["words"]
    model.video_encoder = _Given({name: leaves["clips"][at] * mask for at, name in enumerate(STREAMS)})
    _put(model.pooling.linear, leaves["pooling"])
    return model


def _put(layer: Any, weight: Tensor, bias: Tensor | None = None) -> None:
    del layer.weight
    layer.weight = weight
    if bias is not None:
        del layer.bias
        layer.bias = bias


def test_equations_5_to_8_and_their_gradients() -> None:
    def loss(leaves: dict[str, Tensor]) -> Tensor:
        model = _new("prem_retriever", temperature=0.2, lambda_weak=0.7)
        return _summed(_with_leaves(model, leaves).loss(_batch()))

    _compared(loss, PremRetriever(FACTS, temperature=0.2, weak=0.7), RETRIEVER_ARRAYS)


NEGATIVES = [[1, 4], [2, 0], [3, 4], [2, 1], [0, 4]]
INNER = 3
LOCALIZER_ARRAYS = RETRIEVER_ARRAYS | _drawn(
    {
        "gates": (2, WIDTH, WIDTH),
        "fuse": (WIDTH, 2 * WIDTH),
        "fuse_bias": (WIDTH,),
        "wide": (2, INNER, WIDTH, 3),
        "wide_bias": (2, INNER),
        "narrow": (2, INNER),
        "narrow_bias": (2,),
        "layer_0": (WIDTH, WIDTH),
        "bias_0": (WIDTH,),
        "layer_1": (WIDTH, WIDTH),
        "bias_1": (WIDTH,),
        "layer_2": (1, WIDTH),
        "bias_2": (1,),
    },
    seed=6,
)
PLAIN_LOCALIZER = PremLocalizer(FACTS, NEGATIVES, gamma=0.8, lengths=(1, 3))


def _prem_localizer(leaves: Mapping[str, Tensor]) -> Any:
    model = _new("prem_localizer", span_hidden=INNER, span_kernel=3, gamma=0.8, max_moment_clips=3)
    model = _with_leaves(model, leaves)
    model.fusion = model.classifier.encoder = _First()
    for gate, weight in zip(model.focus.gates, leaves["gates"], strict=True):
        _put(gate, weight)
    _put(model.focus.linear, leaves["fuse"], leaves["fuse_bias"])
    _put(model.borders.wide, leaves["wide"].flatten(0, 1), leaves["wide_bias"].flatten())
    _put(model.borders.narrow, leaves["narrow"].flatten(0, 0)[..., None], leaves["narrow_bias"])
    for at, layer in enumerate(one for one in model.classifier.layers if isinstance(one, nn.Linear)):
        _put(layer, leaves[f"layer_{at}"], leaves[f"bias_{at}"])
    return model


def test_equations_9_to_12_and_their_gradients() -> None:
    def loss(leaves: dict[str, Tensor]) -> Tensor:
        return _summed(_prem_localizer(leaves).loss(_batch(negatives=torch.tensor(NEGATIVES))))

    arrays = LOCALIZER_ARRAYS
    # A number added to all logits of a border changes no softmax over the candidates.
    bias = arrays["narrow_bias"]
    assert np.abs(slopes(PLAIN_LOCALIZER.loss, {**arrays})["narrow_bias"]).max() < 1e-6

    def without_bias(some: dict[str, Tensor]) -> Tensor:
        return loss({**some, "narrow_bias": torch.tensor(bias)})

    class Plain:
        @staticmethod
        def loss(some: Arrays) -> float:
            return PLAIN_LOCALIZER.loss({**some, "narrow_bias": bias})

    _compared(without_bias, Plain, {name: one for name, one in arrays.items() if name != "narrow_bias"})


@torch.no_grad()
def test_equation_13_adds_the_retrievers_cosine_over_t_to_the_logits_of_both_borders() -> None:
    model = _prem_localizer({name: torch.tensor(array) for name, array in LOCALIZER_ARRAYS.items()})
    queries, videos = model.encode_queries(_batch().queries), model.encode_videos(_batch().videos)
    scores = model.score_spans(queries.take(torch.tensor([2])), videos.take(torch.tensor([4])))
    (start, end), _ = PLAIN_LOCALIZER.borders(LOCALIZER_ARRAYS, 2, 4)
    np.testing.assert_allclose(scores.start[0].numpy(), start, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores.end[0].numpy(), end, rtol=1e-5, atol=1e-5)
    assert model.video_weight == pytest.approx(1 / prem_localizer.Config().temperature) == 100.0
