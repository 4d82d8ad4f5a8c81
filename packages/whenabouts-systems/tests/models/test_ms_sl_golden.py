"""MS-SL as released, against what the authors' program computes, for every case of the golden folder.

The whole way is compared, from raw frames on: what the program averages beforehand the system averages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_folder import Settings, arrays_of, cases, golden_folder, told_inside
from tests.models.released_draws import ReleasedDraws
from torch import Tensor

from whenabouts_systems.models import new_model
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.ms_sl import (
    KEYS,
    Config,
    Model,
    key_clip_attention,
    means_of_stretches,
    released_names,
)
from whenabouts_systems.models.parts.averaging import clips_of, frames_of
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.released.ms_sl import held_borders

SUMMED = "out.infer.score_sum_"
"""Arrays whose names go on with the shares of clips and frames."""
RELEASED = {
    "hidden_size": 384,
    "n_heads": 4,
    "max_ctx_l": 128,
    "max_desc_l": 30,
    "map_size": 32,
    "margin": 0.1,
    "hard_pool_size": 20,
}
"""The program's settings for TVR."""
UNUSED = ("input_drop", "drop", "initializer_range", "use_hard_negative")
"""Settings that change no number here."""
TERMS = {
    "clip_contrast": "clip_nce_loss",
    "clip_triplets": "clip_trip_loss",
    "frame_contrast": "frame_nce_loss",
    "frame_triplets": "frame_trip_loss",
}


@dataclass(frozen=True)
class Golden:
    """One case: arrays by name, what its json tells, and the model with its weights."""

    arrays: dict[str, Tensor]
    told: dict[str, Any]
    config: Config
    batch: Batch

    def model(self, **settings: Any) -> Model:
        made: Model = new_model("ms_sl", replace(self.config, **settings)).eval()
        weights = {
            ours: self.arrays[f"sd.{theirs}"][: len(made.state_dict()[ours])]
            for ours, theirs in released_names(made.config).items()
        }
        made.load_state_dict(weights)
        return made

    def near(self, name: str, value: Tensor, *, atol: float = 1e-4, rtol: float = 1e-5) -> None:
        torch.testing.assert_close(value, self.arrays[name], atol=atol, rtol=rtol)


CASES = cases("ms_sl", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@cache
def _opened(path: Path) -> Golden:
    told, arrays = told_inside(path), arrays_of(path)
    told["config"] = Settings(told["config"], RELEASED)
    return Golden(arrays, told, _config(told["config"]), _batch(arrays, told["batch_video_order"]))


def _config(config: dict[str, Any]) -> Config:
    told = Settings(config, RELEASED)
    made = Config(
        streams={"video": told["visual_input_size"]},
        query_width=told["query_input_size"],
        hidden=told["hidden_size"],
        heads=told["n_heads"],
        frames=told["max_ctx_l"],
        clips=told["map_size"],
        max_tokens=told["max_desc_l"],
        margin=told["margin"],
        as_released=True,
    )
    told.refuse_unread(*UNUSED)
    return made


def _batch(arrays: dict[str, Tensor], order: list[int]) -> Batch:
    """The batch from raw frames, in the program's order of videos."""
    frames = [arrays[f"raw.frames.{number}"] for number in order]
    mask = torch.arange(max(map(len, frames))) < torch.tensor([len(one) for one in frames])[:, None]
    own = arrays["batch.text_labels"]
    return Batch(
        QueryBatch(arrays["batch.text_feat"], arrays["batch.text_mask"].bool()),
        ClipBatch({"video": torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)}, mask),
        own,
        torch.zeros(len(own), 2, dtype=torch.int64),
        own[:, None] == torch.arange(len(frames)),
    )


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no ms_sl folder")


def test_every_released_parameter_has_a_name_here(case: Golden) -> None:
    names = released_names(case.config)
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    assert set(names.values()) == released
    assert set(names) == set(case.model().state_dict())


def test_raw_frames_become_the_released_clips_and_frames(case: Golden) -> None:
    videos, config = case.batch.videos, case.config
    clips = clips_of(videos, config.streams, config.clips, held_borders)
    case.near("batch.clip_video_features", clips, atol=1e-6)
    frames, mask = frames_of(videos, config.streams, config.frames, held_borders)
    assert torch.equal(mask, case.arrays["batch.videos_mask"].bool())
    for at, number in enumerate(case.told["batch_video_order"]):
        case.near(f"pre.clip.{number}", clips[at], atol=1e-6)
        case.near(f"pre.frame.{number}", frames[at][mask[at]], atol=1e-6)
    case.near("batch.frame_video_features", frames * mask[..., None], atol=1e-6)


def test_raw_captions_become_the_released_words(case: Golden) -> None:
    told, config = case.told, case.config
    captions = [
        case.arrays[f"raw.caption.{video}.{number}"].numpy()
        for video in told["batch_video_order"]
        for number in range(told["captions_per_video"][video])
    ]
    frames = {name: StreamInput(width) for name, width in config.streams.items()}
    words = Inputs(
        StreamInput(config.query_width), frames, clip_seconds=1.0, max_clips=1, max_tokens=config.max_tokens
    ).queries(captions)
    assert torch.equal(words.mask, case.arrays["batch.text_mask"].bool())
    case.near("batch.text_feat", words.tokens, atol=1e-6)


def test_queries_and_videos_become_the_released_vectors(case: Golden) -> None:
    model, batch = case.model(), case.batch
    case.near("out.video_query", model._sentences(batch.queries).vectors[:, 0])
    videos = model._videos(batch.videos)
    case.near("out.encoded_clip", videos.clips)
    case.near("out.proposal_map", means_of_stretches(videos.clips))
    real = videos.mask
    expected = case.arrays["out.encoded_frame"][real]
    torch.testing.assert_close(videos.frame_values[real], model.taken(expected), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(videos.frame_keys[real], model.asked(expected), atol=1e-4, rtol=1e-4)


def test_key_clips_take_from_frames_what_the_released_ones_take(case: Golden) -> None:
    videos, index = case.model()._videos(case.batch.videos), case.arrays["out.key_clip_index"].T
    proposals = means_of_stretches(videos.clips)
    chosen = proposals.gather(1, index[..., None].expand(-1, -1, proposals.shape[2]))
    taken = key_clip_attention(chosen, videos.frame_keys, videos.frame_values, videos.mask)
    case.near("out.infer.key_clip_frame_feat", taken)
    own = taken[case.batch.video_of, torch.arange(len(case.batch))]
    case.near("out.train.key_clip_frame_feat", own)


def test_videos_score_and_rank_as_released(case: Golden) -> None:
    batch, told, ranked = case.batch, case.told, 0
    summed = [name for name in case.arrays if name.startswith(SUMMED)]
    assert summed
    for name in summed:
        shares = [float(share) for share in name.removeprefix(SUMMED).split("_")]
        model = case.model(clip_share=shares[0], frame_share=shares[1])
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        scores = model.score_videos(queries, videos)
        case.near(name, scores, atol=1e-5)
        if shares == [told["clip_scale_w"], told["frame_scale_w"]]:
            ordered = scores.gather(1, case.arrays["out.infer.rank_order"])
            assert (ordered.diff(dim=1) <= 1e-5).all()  # nearly equal ones may change places
            ranked += 1
    assert ranked


@pytest.mark.parametrize(("shares", "name"), [((1.0, 0.0), "clip"), ((0.0, 1.0), "frame")])
def test_each_branch_scores_as_released(case: Golden, shares: tuple[float, float], name: str) -> None:
    model, batch = case.model(clip_share=shares[0], frame_share=shares[1]), case.batch
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    case.near(f"out.infer.{name}_scale_scores", model.score_videos(queries, videos), atol=1e-5)
    keys = videos.keys[KEYS] @ queries.search[KEYS].T
    chosen = keys.gather(1, case.arrays["out.key_clip_index"].T[:, None])[:, 0]
    torch.testing.assert_close(chosen, keys.amax(1), atol=1e-6, rtol=0.0)  # nearly equal ones may be taken


def test_training_compares_the_released_scores(case: Golden) -> None:
    model, batch = case.model(), case.batch
    sentences = model._sentences(batch.queries).vectors[:, 0]
    scores = model._scores(sentences, model._videos(batch.videos), batch.video_of)
    clip_products, clip_cosines, frame_products, frame_cosines = scores
    case.near("out.train.clip_scale_scores", clip_cosines, atol=1e-5)
    case.near("out.train.frame_scale_scores", frame_cosines, atol=1e-5)
    case.near("out.train.clip_scale_scores_unnorm", clip_products)
    case.near("out.clip_scale_scores", clip_cosines, atol=1e-5)
    case.near("out.clip_scale_scores_unnorm", clip_products)
    case.near("out.train.frame_scale_scores_unnorm", frame_products)


@pytest.fixture()
def draws(case: Golden, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loss of a case with the negatives that its program drew; all of them must be used."""
    drawn = ReleasedDraws(monkeypatch)

    def losses(model: Model, name: str) -> dict[str, Tensor]:
        epoch = 0 if name == "random_neg" else 99
        drawn.begin(case.told[f"loss.{name}.randint_calls"], hardest=epoch > 0 and model.config.pool == 1)
        found = dict(model.loss(replace(case.batch, epoch=epoch)))
        drawn.end()
        return found

    return losses


def _pool(name: str, told: dict[str, Any]) -> int:
    return int({"hard_pool1": 1, "hard_pool": told["config"]["hard_pool_size"]}.get(name, 20))


@pytest.mark.parametrize("name", ["hard_pool1", "hard_pool", "random_neg"])
def test_losses_and_gradients_are_the_released_ones(case: Golden, draws: Any, name: str) -> None:
    model = case.model(pool=_pool(name, case.told))
    found = draws(model, name)
    for ours, theirs in TERMS.items():
        case.near(f"loss.{name}.{theirs}", found[ours].detach(), rtol=1e-5, atol=1e-6)
    total = torch.stack(list(found.values())).sum()
    case.near(f"loss.{name}.total", total.detach(), rtol=1e-5, atol=1e-6)
    case.near(f"loss.{name}.loss_overall", total.detach().double(), rtol=1e-5, atol=1e-6)
    total.backward()  # type: ignore[no-untyped-call]
    expected = case.told[f"loss.{name}.grad_l2"]
    for ours, theirs in released_names(case.config).items():
        gradient = model.get_parameter(ours).grad
        assert gradient is not None
        assert gradient.norm().item() == pytest.approx(expected[theirs], rel=1e-3, abs=1e-5), theirs
