"""GMMFormer as released, against what the authors' program computes, for every case of the golden folder."""

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
from whenabouts_systems.models.gmmformer import (
    KEYS,
    Config,
    GaussianEncoder,
    Model,
    Videos,
    _scores,
    released_names,
    windows,
)
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, QueryEncoding, VideoEncoding

RELEASED = {"hidden_size": 384, "n_heads": 4, "max_ctx_l": 128, "max_desc_l": 30}
UNUSED = ("input_drop", "drop", "initializer_range")
"""Settings that change no number here."""
SUMMED = "out.score_sum_"
"""Arrays whose names go on with the shares of clips and frames."""


@dataclass(frozen=True)
class Golden:
    """One case: arrays by name, what its json tells, and the model with its weights."""

    arrays: dict[str, Tensor]
    told: dict[str, Any]
    config: Config
    batch: Batch

    def model(self, **settings: Any) -> Model:
        made: Model = new_model("gmmformer", replace(self.config, **settings)).eval()
        weights = {
            ours: self.arrays[f"sd.{theirs}"][: len(made.state_dict()[ours])]
            for ours, theirs in released_names(made.config).items()
        }
        made.load_state_dict(weights)
        return made

    def seen(self, model: Model) -> Videos:
        """The videos through the model, from the averaged clips and frames that were recorded."""
        return model._seen(
            self.arrays["batch.clip_video_features"],
            self.arrays["batch.frame_video_features"],
            self.batch.videos.mask,
        )

    def near(self, name: str, value: Tensor, *, atol: float = 1e-4, rtol: float = 1e-5) -> None:
        torch.testing.assert_close(value, self.arrays[name], atol=atol, rtol=rtol)


CASES = cases("gmmformer", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@cache
def _opened(path: Path) -> Golden:
    told, arrays = told_inside(path), arrays_of(path)
    return Golden(arrays, told, _config(told, arrays), _batch(arrays))


def _config(told: dict[str, Any], arrays: dict[str, Tensor]) -> Config:
    sizes, loss = Settings(told["config"], RELEASED), Settings(told["loss_config"])
    made = Config(
        streams={"video": sizes["visual_input_size"]},
        query_width=sizes["query_input_size"],
        hidden=sizes["hidden_size"],
        heads=sizes["n_heads"],
        windows=tuple(told["gaussian_widths"][1:]),
        frames=sizes["max_ctx_l"],
        clips=arrays["batch.clip_video_features"].shape[1],
        max_tokens=sizes["max_desc_l"],
        margin=loss["margin"],
        weight_clip_contrast=loss["loss_factor"][0],
        weight_frame_contrast=loss["loss_factor"][1],
        weight_diversity=loss["loss_factor"][2],
        diversity_margin=loss["neg_factor"][0],
        diversity_scale=float(loss["neg_factor"][1]),
        as_released=True,
    )
    sizes.refuse_unread(*UNUSED)
    loss.refuse_unread("hard_pool_size", "use_hard_negative")
    return made


def _batch(arrays: dict[str, Tensor]) -> Batch:
    own, frames = arrays["batch.text_labels"], arrays["batch.frame_video_features"]
    return Batch(
        QueryBatch(arrays["batch.text_feat"], arrays["batch.text_mask"].bool()),
        ClipBatch({"video": frames}, arrays["batch.videos_mask"].bool()),
        own,
        torch.zeros(len(own), 2, dtype=torch.int64),
        own[:, None] == torch.arange(len(frames)),
    )


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no gmmformer folder")


def test_every_released_parameter_has_a_name_here(case: Golden) -> None:
    names = released_names(case.config)
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    assert set(names.values()) == released
    assert set(names) == set(case.model().state_dict())


def test_windows_are_the_released_ones(case: Golden) -> None:
    found = [name for name in case.arrays if name.startswith("gauss.")]
    assert found
    for name in found:
        _, length, width = name.split(".", 2)
        steps = int(length.removeprefix("len"))
        made = windows(torch.tensor([steps]), steps, float(width.removeprefix("w")), torch.tensor([steps]))
        case.near(name, made[0], atol=1e-6)


def test_each_block_of_the_first_encoder_sees_what_the_released_one_sees(case: Golden) -> None:
    encoder = case.model().clip.encoder
    assert isinstance(encoder, GaussianEncoder)
    clips = case.arrays["out.clip_embed"]
    mask = torch.ones(clips.shape[:2], dtype=torch.bool)
    first = encoder.blocks[0]
    for at, block in enumerate(first.blocks):  # type: ignore[arg-type]
        case.near(f"out.clip_encoder.attn{at}", block(clips, mask))
    case.near("out.clip_encoder", first(clips, mask))


def test_queries_and_videos_become_the_released_vectors(case: Golden) -> None:
    model = case.model()
    case.near("out.video_query", model._sentences(case.batch.queries).vectors[:, 0])
    seen = case.seen(model)
    case.near("out.encoded_clip", seen.clips)
    case.near("out.encoded_frame", seen.whole)


def test_scores_are_the_released_ones(case: Golden) -> None:
    model = case.model()
    sentences, seen = model._sentences(case.batch.queries).vectors[:, 0], case.seen(model)
    for name, rows in (("clip", seen.clips), ("frame", seen.whole[:, None])):
        products, cosines = _scores(sentences, rows)
        case.near(f"out.{name}_scale_scores_unnorm", products)
        case.near(f"out.{name}_scale_scores", cosines, atol=1e-5)


def test_videos_score_as_released(case: Golden) -> None:
    seen = case.seen(case.model())
    there = torch.ones(seen.clips.shape[:2], dtype=torch.bool)
    unit = torch.nn.functional.normalize
    videos = VideoEncoding(
        there, {KEYS: unit(seen.clips, dim=-1)}, {KEYS: there}, {"whole": unit(seen.whole, dim=-1)}
    )
    summed = [name for name in case.arrays if name.startswith(SUMMED)]
    assert summed
    for name in summed:
        shares = [float(share) for share in name.removeprefix(SUMMED).split("_")]
        model = case.model(clip_share=shares[0], frame_share=shares[1])
        queries: QueryEncoding = model.encode_queries(case.batch.queries)
        case.near(name, model.score_videos(queries, videos), atol=1e-5)


@pytest.fixture()
def draws(case: Golden, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loss of a case with the negatives that its program drew; all of them must be used."""
    drawn = ReleasedDraws(monkeypatch)

    def losses(model: Model, name: str) -> dict[str, Tensor]:
        epoch = 0 if name == "random_neg" else 99
        drawn.begin(case.told[f"loss.{name}.randint_calls"], hardest=epoch > 0 and model.config.pool == 1)
        batch = replace(case.batch, epoch=epoch)
        found = dict(model._terms(batch, model._sentences(batch.queries).vectors[:, 0], case.seen(model)))
        drawn.end()
        return found

    return losses


@pytest.mark.parametrize("name", ["hard_pool1", "hard_pool", "random_neg"])
def test_losses_and_gradients_are_the_released_ones(case: Golden, draws: Any, name: str) -> None:
    pool = 1 if name == "hard_pool1" else case.told["loss_config"]["hard_pool_size"]
    model = case.model(pool=pool)
    found = draws(model, name)
    for ours, theirs in {"clip_contrast": "clip_nce", "frame_contrast": "frame_nce"}.items():
        case.near(f"loss.{theirs}_weighted", found[ours].detach(), rtol=1e-5, atol=1e-6)
    case.near("loss.query_diverse_weighted", found["diversity"].detach(), rtol=1e-5, atol=1e-6)
    total = torch.stack(list(found.values())).sum()
    case.near(f"loss.{name}.total", total.detach(), rtol=1e-5, atol=1e-6)
    total.backward()  # type: ignore[no-untyped-call]
    expected = case.told[f"loss.{name}.grad_l2"]
    for ours, theirs in released_names(case.config).items():
        gradient = model.get_parameter(ours).grad
        assert gradient is not None
        assert gradient.norm().item() == pytest.approx(expected[theirs], rel=1e-3, abs=1e-5), theirs
