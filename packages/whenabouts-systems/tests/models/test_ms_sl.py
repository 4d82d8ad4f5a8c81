"""MS-SL by hand on a small corpus: proposals, the key clip and what it attends to; its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch
from torch.nn.functional import cosine_similarity

from whenabouts.types import UsageError
from whenabouts_systems.models import ms_sl, new_model
from whenabouts_systems.models.ms_sl import KEYS, Config, Model, key_clip_attention, means_of_stretches
from whenabouts_systems.models.protocol import Batch, QueryBatch

WIDTH, FRAMES, TOKENS = 6, [5, 9, 3], [3, 1, 4, 2]
OWN = [2, 0, 1, 0]


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 8, "heads": 2, "frames": 7, "clips": 4, "max_tokens": 5}
    told = {"streams": {"video": WIDTH}, "query_width": 5, "initializer_range": 0.4, **settings}
    made: Model = new_model("ms_sl", Config(**{**sizes, **told})).eval()
    return made


def _batch(**more: Any) -> Batch:
    return small_batch({"video": WIDTH}, FRAMES, TOKENS, OWN, **more)


def test_proposals_are_the_means_of_all_stretches_the_shortest_first() -> None:
    clips = torch.randn(2, 4, 3)
    found = means_of_stretches(clips)
    expected = [
        clips[:, first : first + width].mean(1) for width in range(1, 5) for first in range(4 - width + 1)
    ]
    torch.testing.assert_close(found, torch.stack(expected, 1))
    assert found.shape[1] == 10


def test_a_video_scores_its_key_clip_and_the_frames_that_this_attends_to() -> None:
    model, batch = _model(clip_share=0.6, frame_share=0.4), _batch()
    found = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    sentences, seen = model._sentences(batch.queries).vectors[:, 0], model._videos(batch.videos)
    for query, sentence in enumerate(sentences):
        for video in range(3):
            proposals = means_of_stretches(seen.clips[video : video + 1])[0]
            cosines = cosine_similarity(sentence[None], proposals)
            key, real = proposals[cosines.argmax()], seen.mask[video]
            weights = (seen.frame_keys[video][real] @ key).softmax(0)
            attended = weights @ seen.frame_values[video][real]
            expected = 0.6 * cosines.max() + 0.4 * cosine_similarity(sentence, attended, dim=0)
            torch.testing.assert_close(found[query, video], expected, atol=1e-5, rtol=1e-4)


def test_the_loss_attends_in_a_querys_own_video_as_the_search_does() -> None:
    model, batch = _model(clip_share=0.0, frame_share=1.0), _batch()
    sentences = model._sentences(batch.queries).vectors[:, 0]
    *_, frame_cosines = model._scores(sentences, model._videos(batch.videos), batch.video_of)
    searched = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    own = searched.gather(1, batch.video_of[:, None])[:, 0]
    torch.testing.assert_close(frame_cosines.diagonal(), own, atol=1e-5, rtol=1e-4)


def test_keys_are_unit_proposals_and_find_what_the_clip_branch_finds() -> None:
    model, batch = _model(clip_share=1.0, frame_share=0.0), _batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    keys = videos.keys[KEYS]
    torch.testing.assert_close(keys.norm(dim=-1), torch.ones(3, 10))
    best = (keys @ queries.search[KEYS].T).amax(1).T
    torch.testing.assert_close(model.score_videos(queries, videos), best)


def test_padded_frames_are_never_attended_to() -> None:
    keys, frames = torch.randn(1, 2, 3), torch.randn(1, 4, 3)
    mask = torch.tensor([[True, True, False, False]])
    frames[0, 2:] = 1e4
    found = key_clip_attention(keys, frames, frames, mask)
    torch.testing.assert_close(found, key_clip_attention(keys, frames[:, :2], frames[:, :2], mask[:, :2]))


def test_videos_known_to_answer_are_no_negatives_unless_as_released() -> None:
    """All videos answer all queries: there is nothing to tell apart, but the program does not know."""
    every = torch.ones(4, 3, dtype=torch.bool)
    for released in (False, True):
        losses = _model(as_released=released).loss(_batch(positives=every))
        assert all((value.item() > 0) is released for value in losses.values()), losses


def test_negatives_are_the_hardest_from_an_epoch_on() -> None:
    torch.manual_seed(0)
    model = _model(pool=1, pool_from_epoch=20)
    late = [model.loss(_batch(epoch=20))["clip_triplets"].item() for _ in range(5)]
    early = [model.loss(_batch(epoch=19))["clip_triplets"].item() for _ in range(5)]
    assert max(late) == min(late)
    assert max(early) > min(early)
    assert max(early) <= max(late) + 1e-6


def test_the_loss_compares_in_full_precision_where_a_training_computes_in_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A number of bfloat16 is its own rounding; products of some hundreds would be off by 1."""
    seen: list[torch.Tensor] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(scores: torch.Tensor, *more: Any, **how: Any) -> Any:
            seen.append(scores)
            return real(scores, *more, **how)

        return called

    for name in ("contrast", "triplets", "square_contrast", "square_triplets"):
        monkeypatch.setattr(ms_sl, name, watched(getattr(ms_sl, name)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _model().loss(_batch())
    assert len(seen) == 4
    for scores in seen:
        assert (scores != scores.bfloat16().float()).any(), "rounded"


def test_a_search_in_inference_mode_does_not_hinder_a_later_training() -> None:
    model, batch = _model(clips=6), _batch()
    with torch.inference_mode():
        model.encode_videos(batch.videos)
    total = torch.stack(list(model.loss(batch).values())).sum()
    (gradient,) = torch.autograd.grad(total, [model.clip.projection.linear.weight])
    assert gradient.any()


def test_a_sequence_that_has_no_place_is_told() -> None:
    queries = QueryBatch(torch.randn(1, 6, 5), torch.ones(1, 6, dtype=torch.bool))
    with pytest.raises(UsageError, match="6 tokens, but the model has places for 5"):
        _model().encode_queries(queries)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"streams": {}}, "ms_sl: streams is {}"),
        ({"frames": 0}, "ms_sl: frames is 0"),
        ({"clips": 0}, "ms_sl: clips is 0"),
        ({"clips": 1.5}, "ms_sl: clips is 1.5"),
        ({"margin": -0.1}, "ms_sl: margin is -0.1"),
        ({"pool": 0}, "ms_sl: pool is 0"),
        ({"heads": 3}, "ms_sl: hidden = 8 is no multiple of heads = 3"),
    ],
)
def test_settings_that_make_no_model_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as told:
        _model(**settings)
    assert str(told.value).startswith(message)
