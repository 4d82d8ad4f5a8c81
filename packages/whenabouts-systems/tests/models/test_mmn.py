"""MMN: its settings, what a moment scores and when it is, and what the loss of a batch takes into account."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding, best_spans, seconds_of
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.mmn import Config, Model, averaged, contrast_weight, span_score, truth_of
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch


def config(**settings: Any) -> Config:
    small = {"hidden": 8, "map_layers": 2, "map_kernel": 3, "query_width": 5}
    return Config({"video": 6}, **{**small, **settings})


def model(**settings: Any) -> Model:
    torch.manual_seed(0)
    return Model(config(**settings)).eval()


def videos(lengths: list[int]) -> ClipBatch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    rows = torch.randn(*mask.shape, 6, generator=torch.Generator().manual_seed(1))
    return ClipBatch({"video": rows}, mask)


def queries(count: int) -> QueryBatch:
    tokens = torch.randn(count, 4, 5, generator=torch.Generator().manual_seed(2))
    return QueryBatch(tokens, torch.ones(count, 4, dtype=torch.bool))


def batch(**more: Any) -> Batch:
    own = torch.tensor([0, 0, 1])
    spans = torch.tensor([[0, 3], [5, 7], [2, 5]])
    return Batch(queries(3), videos([8, 8]), own, spans, own[:, None] == torch.arange(2), **more)


def terms(made: Model, one: Batch) -> dict[str, float]:
    with torch.no_grad():
        return {name: float(value) for name, value in made.loss(one).items()}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hidden": 0}, "mmn: hidden is 0; accepted: a whole number, 1 or more"),
        ({"joint": 0}, "joint is 0"),
        ({"map_kernel": 4}, "map_kernel is 4; accepted: an odd number"),
        ({"pooling_counts": ()}, "pooling_counts is (); accepted: whole numbers, 0 or more"),
        ({"pooling_counts": (3, -1)}, "pooling_counts is (3, -1)"),
        ({"pooling_counts": ("3",)}, "pooling_counts is"),
        ({"pooling_counts": 15}, "pooling_counts is 15; accepted: whole numbers, 0 or more"),
        ({"map": "sum"}, "map is 'sum'; accepted: 'pool', 'conv'"),
        (
            {"lowest_iou": 0.8, "highest_iou": 0.5},
            "lowest_iou is 0.8; accepted: less than highest_iou, which is 0.5",
        ),
        ({"temperature_moments": 0.0}, "temperature_moments is 0.0; accepted: a finite number, above 0"),
        ({"text": {"layers": 2}}, "text has no size 'layers'"),
        ({"positives": True}, "positives is True"),
    ],
)
def test_settings_that_make_no_model_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        config(**settings)


def test_without_a_stream_there_is_no_model() -> None:
    with pytest.raises(UsageError, match=r"streams is \{\}; accepted: one stream at least"):
        Config({})


def test_the_joint_spaces_are_half_as_wide_unless_told() -> None:
    assert model().to_iou.weight.shape[0] == 4
    assert model(joint=11).to_contrast.weight.shape[0] == 11


@pytest.mark.parametrize("kind", ["pool", "conv"])
def test_the_map_may_be_of_another_width_than_the_clips(kind: str) -> None:
    made = model(map=kind, map_hidden=5)
    assert [conv.weight.shape[:2] for conv in made.convolution.convs] == [(5, 8), (5, 5)]  # type: ignore[index]
    assert made.to_iou.weight.shape[:2] == (4, 5)
    assert all(np.isfinite(value) for value in terms(made, batch()).values())


def test_a_moment_scores_the_shifted_cosine_to_a_power_times_the_likelihood_of_its_overlap() -> None:
    contrast, overlap = torch.tensor([0.2, -0.5, 1.0]), torch.tensor([0.1, -0.3, 0.9])
    found = span_score(contrast, overlap, 0.3)
    for at in range(3):
        share = 0.5 * float(contrast[at]) + 0.5
        likely = 1 / (1 + np.exp(-10 * float(overlap[at])))
        assert float(found[at]) == pytest.approx(log(share**0.3 * likely), rel=1e-5)


def test_opposite_vectors_score_low_and_not_minus_infinity() -> None:
    worst = span_score(torch.tensor([-1.0]), torch.tensor([-1.0]), 0.5)
    assert worst.isfinite().all()
    assert float(worst) < float(span_score(torch.tensor([-0.9]), torch.tensor([-1.0]), 0.5))


def test_moments_that_the_map_lacks_are_never_answered() -> None:
    made = model(pooling_counts=(2, 1))
    with torch.no_grad():
        scores = made.score_spans(made.encode_queries(queries(1)), made.encode_videos(videos([7])))
    assert scores.spans is not None
    real = {(int(a), int(b)) for a, b in scores.spans[0].isfinite().nonzero()}
    assert real == {(a, b) for a in range(7) for b in range(a, min(a + 3, 7))} | {(0, 4), (2, 6)}
    best = best_spans(scores, Decoding(), 40)
    assert int((best.score > -torch.inf).sum()) == len(real)


def test_a_cell_of_two_clips_is_two_clips_long() -> None:
    """32 clips of a video of 40 s, two to a cell: the cell (4, 7) is [10, 20) s."""
    inputs = Inputs(
        StreamInput(5), {"video": StreamInput(6)}, max_clips=32, long_videos="even", clips_per_cell=2
    )
    made = model(clips_per_cell=2, pooling_counts=(15,))
    rows = np.random.default_rng(0).normal(size=(27, 6)).astype(np.float32)
    with torch.no_grad():
        encoding = made.encode_videos(inputs.clips([{"video": rows}]))
    assert encoding.mask.shape == (1, 16)
    assert encoding.keys["moments"].shape == (1, 136, 4)
    seconds = inputs.clip_seconds_of(27, 40.0)
    assert [one.tolist() for one in seconds_of([4], [7], [seconds], [40.0], Decoding())] == [[10.0], [20.0]]


def test_an_odd_clip_at_the_end_is_a_cell_of_its_own() -> None:
    rows = torch.arange(10.0).view(1, 5, 2)
    mask = torch.tensor([[True, True, True, False, False]])
    cells, there = averaged(rows, mask, 2)
    assert there.tolist() == [[True, True, False]]
    assert cells.tolist() == [[[1.0, 2.0], [4.0, 5.0], [0.0, 0.0]]]


def test_contrast_counts_fully_and_then_a_hundredth() -> None:
    settings = config(lambda_contrast=0.5, contrast_epochs=3)
    assert [contrast_weight(settings, epoch) for epoch in (0, 2, 3, 50)] == [0.5, 0.5, 0.005, 0.005]
    assert contrast_weight(config(lambda_contrast=0.5, contrast_epochs=None), 99) == 0.5


def test_the_loss_falls_to_a_hundredth_of_its_contrast_and_keeps_the_rest() -> None:
    made = model(contrast_epochs=2)
    early, late = terms(made, batch(epoch=1)), terms(made, batch(epoch=2))
    assert late["iou"] == early["iou"]
    assert late["moments"] == pytest.approx(0.01 * early["moments"])
    assert late["sentences"] == pytest.approx(0.01 * early["sentences"])


def test_the_truth_is_the_moments_share_of_the_video_and_else_its_clips() -> None:
    made = model()
    plain = batch()
    shares = torch.tensor([[0.0, 0.5], [0.625, 1.0], [0.25, 0.75]])
    told = batch(labels={"moments": shares})
    assert terms(made, plain) == terms(made, told)
    moved = batch(labels={"moments": shares + 0.05})
    assert terms(made, moved)["iou"] != terms(made, plain)["iou"]
    truth = truth_of(told, made.encoded(told.videos))
    at = [int(row.argmax()) for row in truth.iou]
    cells = made.encoded(told.videos).cells
    assert [(int(cells.first[one]), int(cells.last[one])) for one in at] == [(0, 3), (5, 7), (2, 5)]


def test_a_pair_that_is_known_to_be_true_is_no_negative() -> None:
    made = model()
    known = torch.tensor([[True, True], [True, False], [False, True]])
    fewer = terms(made, replace(batch(), positives=known))
    assert fewer["sentences"] < terms(made, batch())["sentences"]
    assert fewer["moments"] < terms(made, batch())["moments"]
    assert fewer["iou"] == terms(made, batch())["iou"]


def test_the_program_keeps_overlapping_cells_in_the_sum() -> None:
    ours, theirs = model(), model(as_released=True)
    theirs.load_state_dict(ours.state_dict())
    assert terms(theirs, batch())["sentences"] > terms(ours, batch())["sentences"]
    assert terms(theirs, batch())["moments"] == pytest.approx(terms(ours, batch())["moments"])


def test_a_system_without_a_text_encoder_has_nothing_to_read_before_it_begins() -> None:
    made = model()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    made.begin()
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_a_training_begins_with_the_pretrained_text_encoder(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    sizes = {"vocab_size": 9, "dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 12}
    sizes |= {"max_position_embeddings": 16}
    library = transformers.DistilBertModel(transformers.DistilBertConfig(**sizes))
    library.save_pretrained(tmp_path)
    made = model(text_encoder=str(tmp_path), text=sizes)
    made.begin()
    expected: dict[str, Tensor] = library.state_dict()
    assert all(torch.equal(made.state_dict()[f"text.bert.{name}"], one) for name, one in expected.items())
