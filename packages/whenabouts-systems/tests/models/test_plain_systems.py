"""The plain systems that the benchmark of a training step is held against compute what ours compute."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer

BOTH, VIDEO = {"video": 24, "sub": 12}, {"video": 24}
EVERY = pytest.mark.parametrize(
    ("system", "streams"),
    [("xml", BOTH), ("xml", VIDEO), ("reloclnet", BOTH), ("reloclnet", VIDEO)],
    ids=["XML", "XML, video only", "ReLoCLNet", "ReLoCLNet, video only"],
)
NEAR: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(name="step")
def _step() -> Any:
    return importlib.import_module("benchmarks.training_step")


def _models(step: Any, system: str, streams: Mapping[str, int]) -> tuple[Any, nn.Module]:
    """Ours with weights large enough that scores differ, and the plain one with the same."""
    torch.manual_seed(3)
    settings = {"streams": dict(streams), "query_width": 9, "hidden": 32, "heads": 4, "first_pool": 1}
    ours = new_model(system, config_of(system, {**settings, "initializer_range": 0.2})).eval()
    plain: nn.Module = step.PLAIN[system](streams, 9, 32, 4).eval()
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def _batch(step: Any, streams: Mapping[str, int]) -> Batch:
    """20 queries for 17 videos of 5 to 60 clips; three videos have two queries."""
    random = torch.Generator().manual_seed(5)
    lengths = torch.randint(5, 60, (17,), generator=random)
    video_of = torch.cat([torch.arange(17), torch.tensor([2, 9, 16])])
    queries = step.random_batch(streams, 9, lengths[video_of], 1)
    videos = step.random_batch(streams, 9, lengths, 2)
    positives = video_of[:, None] == torch.arange(17)
    return Batch(queries.queries, videos.videos, video_of, queries.spans, positives)


@EVERY
def test_videos_and_borders_score_the_same(step: Any, system: str, streams: dict[str, int]) -> None:
    (ours, plain), batch = _models(step, system, streams), _batch(step, streams)
    queries, videos = ours.encode_queries(batch.queries), ours.encode_videos(batch.videos)
    spans = ours.score_spans(queries, videos.take(batch.video_of))
    cosines, start, end = plain.scores(step.as_pairs(batch))  # type: ignore[operator]
    assert cosines.std() > 0.05
    torch.testing.assert_close(ours.score_videos(queries, videos)[:, batch.video_of], cosines, **NEAR)
    for our, theirs in ((spans.start, start), (spans.end, end)):
        torch.testing.assert_close(our[spans.mask], theirs.log_softmax(1)[spans.mask], **NEAR)


@EVERY
@pytest.mark.parametrize("length", [None, 100])
def test_losses_and_gradients_are_the_same(
    step: Any, system: str, streams: dict[str, int], length: int | None
) -> None:
    (ours, plain), batch = _models(step, system, streams), _batch(step, streams)
    our_losses, our_gradients = _gradients(ours, ours.loss(batch))
    losses, gradients = _gradients(plain, plain.loss(step.as_pairs(batch, length), 1))  # type: ignore[operator]
    assert set(our_losses) == set(losses)
    assert set(our_gradients) == set(gradients) == {name for name, _ in plain.named_parameters()}
    for name, loss in losses.items():
        assert loss > 0
        torch.testing.assert_close(our_losses[name], loss, **NEAR)
    for name, gradient in gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, **NEAR)
    assert max(float(one.abs().max()) for one in gradients.values()) > 0.01


def _gradients(model: nn.Module, losses: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {name: loss.detach() for name, loss in losses.items()}, gradients


def test_one_step_of_both_optimizers_leads_to_the_same_weights(step: Any) -> None:
    (ours, plain), batch = _models(step, "xml", BOTH), _batch(step, BOTH)
    before = {name: one.clone() for name, one in ours.state_dict().items()}
    for model, optimizer, losses in (
        (
            ours,
            new_optimizer(TrainingSettings(learning_rate=1e-3), ours),
            ours.loss(batch),
        ),
        (
            plain,
            step.PlainBertAdam(plain.parameters(), 1e-3),
            plain.loss(step.as_pairs(batch), 1),  # type: ignore[operator]
        ),
    ):
        _gradients(model, losses)
        optimizer.step()
    moved = [(one - before[name]).abs().max() for name, one in ours.state_dict().items()]
    assert max(moved) > 1e-3
    for name, one in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], one, rtol=0, atol=2e-4)


def test_a_batch_becomes_a_row_a_query_and_is_padded_as_far_as_asked(step: Any) -> None:
    batch = _batch(step, BOTH)
    pairs, longer = step.as_pairs(batch), step.as_pairs(batch, 100)
    assert pairs.clip_mask.shape == (20, batch.videos.mask.shape[1])
    assert longer.clips["sub"].shape == (20, 100, 12)
    assert torch.equal(longer.clip_mask.sum(1), batch.videos.mask.sum(1)[batch.video_of])
    assert torch.equal(pairs.same_video, batch.positives[:, batch.video_of])
    assert isinstance(batch.videos, ClipBatch) and isinstance(batch.queries, QueryBatch)
