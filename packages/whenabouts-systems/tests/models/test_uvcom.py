"""UVCOM: what is mixed of a pair is its own, whatever lies behind its ends and beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from tests.models.small_batches import mask_of, small_batch
from torch import nn

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.uvcom import clustered, released_names, walked


def small(**settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden": 8, "heads": 2, "feedforward": 12, "inner": 10, "windows": 4, "video_centres": 6}
    config = config_of("uvcom", {"streams": {"video": 6}, "query_width": 5, **sizes, **settings})
    return new_model("uvcom", config).eval()


def test_clips_have_two_layers_of_projection_however_many_words_have() -> None:
    """Behind the one of the number of `projections` there is no ReLU; of three it is none of theirs."""
    for projections, bare in ((1, [3]), (2, [7]), (3, [])):
        model = small(projections=projections)
        assert len(model.word_projection) == 4 * projections and len(model.clip_projection) == 8
        assert [at for at, one in enumerate(model.clip_projection) if isinstance(one, nn.Identity)] == bare
        names = set(released_names(model.config).values())
        assert f"input_txt_proj.{projections - 1}.net.1.weight" in names
        assert {"input_vid_proj.1.net.1.weight"} <= names
        assert "input_vid_proj.2.net.1.weight" not in names


def test_a_round_of_clustering_is_the_mean_of_rows_by_their_shares() -> None:
    rows, centres = torch.randn(5, 4), torch.randn(3, 4)
    clusters = clustered(centres[None], rows[None], None, 1)[0]
    shares = torch.tensor(
        [[math.exp(-(math.dist(_unit(c), _unit(x)) ** 2) / 2.88) for x in rows] for c in centres]
    )
    shares = shares / shares.sum(0)
    for cluster, share in zip(clusters, shares, strict=True):
        torch.testing.assert_close(cluster, (share[:, None] * rows).sum(0) / share.sum())


def _unit(row: torch.Tensor) -> list[float]:
    return (row / row.norm()).tolist()  # type: ignore[no-any-return]


def test_the_walk_ends_where_another_step_changes_nothing() -> None:
    """The end v solves v = w^2 A v + (1 - w) (x + w z^T y): what equation 6 of the paper goes on with."""
    torch.manual_seed(1)
    rows, centres = torch.randn(1, 5, 4), torch.randn(1, 3, 4)
    end, once = walked(rows, centres, None, whole=True)[0], walked(rows, centres, None, whole=False)[0]
    unit = [each[0] / each[0].norm(dim=-1, keepdim=True) for each in (rows, centres)]
    shares = (5 * unit[1] @ unit[0].T).softmax(0)
    affinity = shares.T @ (shares / shares.sum(1, keepdim=True))
    start = 0.5 * (rows[0] + 0.5 * shares.T @ centres[0])
    torch.testing.assert_close(end, 0.25 * affinity @ end + start)
    torch.testing.assert_close(once, start - 0.25 * affinity @ start)


def test_rows_of_the_padding_are_in_no_cluster_and_take_no_step() -> None:
    rows, centres, mask = torch.randn(2, 6, 4), torch.randn(2, 3, 4), mask_of([6, 4])
    alone = rows[1:, :4]
    found = clustered(centres, rows, mask, 5)
    torch.testing.assert_close(found[1:], clustered(centres[1:], alone, None, 5))
    torch.testing.assert_close(
        walked(rows, found, mask, whole=True)[1:, :4], walked(alone, found[1:], None, whole=True)
    )


@torch.no_grad()
def test_padding_of_clips_and_words_changes_nothing_but_in_the_released_program() -> None:
    batch = small_batch({"video": 6}, [9, 5], [4, 2], [0, 1])
    words = QueryBatch(batch.queries.tokens[1:, :2], batch.queries.mask[1:, :2])
    clips = ClipBatch({"video": batch.videos.streams["video"][1:, :5]}, batch.videos.mask[1:, :5])
    for released in (False, True):
        model = small(as_released=released)
        together = model.detect(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
        alone = model.detect(model.encode_queries(words), model.encode_videos(clips))
        same = [
            torch.allclose(together.layers[-1].spans[1], alone.layers[-1].spans[0], atol=1e-5),
            torch.allclose(together.saliency[1, :5], alone.saliency[0], atol=1e-5),
        ]
        assert same == [not released] * 2


def test_sentences_that_are_true_for_a_video_are_no_wrong_ones() -> None:
    """Two queries of one video, both true: nothing is left to tell them from."""
    batch = small_batch({"video": 6}, [7], [4, 2], [0, 0], positives=torch.ones(2, 1, dtype=torch.bool))
    alike = torch.randn(2, 2)
    assert small()._among_videos(batch, alike) == 0
    assert small(as_released=True)._among_videos(batch, alike) < -0.1


def test_from_its_epoch_on_the_wrong_sentence_is_the_one_least_like_the_video() -> None:
    """By the mean of two softmaxes over the queries: of cosines with the whole video, and with its clips."""
    batch = small_batch({"video": 6}, [7, 4, 6], [4, 2, 3, 5], [0, 1, 1, 2])
    chosen = {}
    for released in (False, True):
        model = small(unlike_from_epoch=3, as_released=released)
        queries = model.encode_queries(batch.queries)
        own = model.encode_videos(batch.videos).take(batch.video_of)
        found = model.detect(queries, own)
        before, after = (
            model.wrong_queries(replace(batch, epoch=epoch), found, own.mask).tolist() for epoch in (2, 3)
        )
        assert before == [1, 2, 3, 0]
        assert after == [_least_alike(model, found.integrated, row, own.mask, batch) for row in range(4)]
        chosen[released] = after
    assert chosen[False][1] in (0, 3) and chosen[False][2] in (0, 3), "no sentence that is true for the video"


def _least_alike(model: Any, integrated: Any, row: int, mask: torch.Tensor, batch: Any) -> int:
    released = model.config.as_released
    texts = [_unit(text) for text in model.compared_text(integrated.sentence)]
    whole = _unit(model.compared_video(integrated.whole)[row])
    clips = [
        _unit(clip)
        for clip, real in zip(model.compared_video(integrated.mixed)[row], mask[row], strict=True)
        if real or released
    ]
    by_whole = _shares([_product(whole, text) for text in texts])
    by_clips = _shares([sum(_product(clip, text) for clip in clips) / len(clips) for text in texts])
    scores = [sum(pair) for pair in zip(by_whole, by_clips, strict=True)]
    video = batch.video_of[row]
    allowed = [query for query in range(4) if released or not batch.positives[query, video]]
    return min(allowed, key=scores.__getitem__)


def _product(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _shares(values: list[float]) -> list[float]:
    whole = sum(math.exp(value) for value in values)
    return [math.exp(value) / whole for value in values]


def test_the_setting_changes_the_saliency_alone_and_only_from_its_epoch_on() -> None:
    batch = small_batch({"video": 6}, [7, 4, 6], [4, 2, 3, 5], [0, 1, 1, 2])
    always, never = (small(unlike_from_epoch=begins, dropout=0.0).loss(batch) for begins in (0, None))
    assert {name for name in never if not torch.equal(always[name], never[name])} == {"saliency"}
    late = small(unlike_from_epoch=1, dropout=0.0).loss(batch)
    assert all(torch.equal(late[name], never[name]) for name in never)


@torch.no_grad()
def test_in_bfloat16_similarities_are_compared_in_full_precision() -> None:
    """Cosines of bfloat16 have three digits; here they differ in the third."""
    batch, model = small_batch({"video": 6}, [7, 4], [4, 2], [0, 1]), small()
    unit = nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.01]]), dim=1)
    clips = unit[:, None].expand(-1, 7, -1)
    model._compared = lambda _: (unit, unit, clips)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    detected = model.detect(queries, videos)
    expected = model.other_losses(batch, detected, queries, videos)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.other_losses(batch, detected, queries, videos)
    torch.testing.assert_close(found, expected)


def test_all_windows_count_where_clips_are_told_from_others() -> None:
    windows = torch.tensor([[[0.0, 2.0], [4.0, 6.0]], [[1.0, 3.0], [torch.nan, torch.nan]]])
    batch = small_batch({"video": 6}, [8, 4], [4, 2], [0, 1], labels={"windows": windows})
    alike = torch.zeros(2, 8)
    alike[0, 4:6] = 5.0
    model, mask = small(), batch.videos.mask
    assert model._within_videos(batch, alike, mask) > model._within_videos(batch, alike.flip(1), mask)
    released = small(as_released=True)._within_videos(batch, torch.zeros(2, 8), mask)
    torch.testing.assert_close(released, -torch.tensor(8.0).log() * 4 / 16)
