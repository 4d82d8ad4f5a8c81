"""GMMFormer by hand on a small corpus: the best clip and the whole; what is no negative; its settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch
from torch.nn.functional import cosine_similarity

from whenabouts.types import UsageError
from whenabouts_systems.models import new_model
from whenabouts_systems.models.gmmformer import KEYS, Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch

WIDTH, FRAMES, TOKENS = 6, [5, 9, 3], [3, 1, 4, 2]
OWN = [2, 0, 1, 0]


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 8, "heads": 2, "frames": 7, "clips": 4, "max_tokens": 5}
    told = {"streams": {"video": WIDTH}, "query_width": 5, "initializer_range": 0.4, **settings}
    made: Model = new_model("gmmformer", Config(**{**sizes, **told})).eval()
    return made


def _batch(**more: Any) -> Batch:
    return small_batch({"video": WIDTH}, FRAMES, TOKENS, OWN, **more)


def test_a_video_scores_its_best_clip_and_all_its_frames() -> None:
    model, batch = _model(clip_share=0.6, frame_share=0.4), _batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    found = model.score_videos(queries, videos)
    sentences, seen = model._sentences(batch.queries).vectors[:, 0], model._videos(batch.videos)
    for query, sentence in enumerate(sentences):
        for video in range(3):
            best = cosine_similarity(sentence[None], seen.clips[video]).max()
            whole = cosine_similarity(sentence, seen.whole[video], dim=0)
            torch.testing.assert_close(found[query, video], 0.6 * best + 0.4 * whole, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(videos.keys[KEYS].norm(dim=-1), torch.ones(3, 4))


def test_the_padded_length_moves_no_vector_unless_as_released() -> None:
    batch = _batch()
    short = ClipBatch({"video": batch.videos.streams["video"][2:, :3]}, batch.videos.mask[2:, :3])
    for released in (False, True):
        model = _model(as_released=released, frames=9)
        together, alone = model._videos(batch.videos).whole[2], model._videos(short).whole[0]
        assert torch.allclose(together, alone, atol=1e-5) is not released


def test_videos_known_to_answer_are_no_negatives_unless_as_released() -> None:
    every = torch.ones(4, 3, dtype=torch.bool)
    for released in (False, True):
        losses = dict(_model(as_released=released).loss(_batch(positives=every)))
        assert losses.pop("diversity") > 0
        assert all((value.item() > 0) is released for value in losses.values()), losses


def test_negatives_are_the_hardest_from_an_epoch_on() -> None:
    torch.manual_seed(0)
    model = _model(pool=1, pool_from_epoch=3)
    late = [model.loss(_batch(epoch=3))["frame_triplets"].item() for _ in range(5)]
    early = [model.loss(_batch(epoch=2))["frame_triplets"].item() for _ in range(5)]
    assert max(late) == min(late)
    assert max(early) > min(early)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"streams": {}}, "gmmformer: streams is {}"),
        ({"blocks": 0}, "gmmformer: blocks is 0"),
        ({"windows": (1.0, 0.0)}, "gmmformer: windows is (1.0, 0.0)"),
        ({"windows": ("1",)}, "gmmformer: windows is ('1',)"),
        ({"windows": 5.0}, "gmmformer: windows is 5.0"),
        ({"windows": None}, "gmmformer: windows is None"),
        ({"diversity_scale": -1.0}, "gmmformer: diversity_scale is -1.0"),
    ],
)
def test_settings_that_make_no_model_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as told:
        _model(**settings)
    assert str(told.value).startswith(message)
