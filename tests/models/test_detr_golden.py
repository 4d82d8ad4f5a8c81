"""The DETR family against what the released programs compute: every case file of the golden folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from whenabouts.models.decoding import Decoding, best_spans

from ..golden_folder import golden_folder
from .detr_cases import CLIP_SECONDS, SYSTEMS, UNUSED, UNUSED_IN, DetrCase, detr_cases, lengths_of, opened

_THEIRS = {"align": "ms_align", "orthogonal": "orthogonal_dummy", "similarity": "sim"}
_ADDITIONAL = ("clip_text", "video_text")
"""Terms of TR-DETR that its program adds up beside the others."""
CASES = [path for system in SYSTEMS for path in detr_cases(system)]


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> DetrCase:
    return opened(request.param)


def near(value: Any, stored: Any, atol: float = 2e-5, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(value, stored, atol=atol, rtol=rtol, check_dtype=False)


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has none of {', '.join(SYSTEMS)}")


def test_every_released_parameter_has_a_name_here(case: DetrCase) -> None:
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    unused = (*UNUSED, *UNUSED_IN.get(case.told["model"], ()))
    assert set(case.names.values()) == {name for name in released if not name.startswith(unused)}


@torch.no_grad()
def test_features_are_made_ready_as_released(case: DetrCase) -> None:
    if "in.src_vid" not in case.arrays:
        pytest.skip("a case of real widths stores no inputs")
    batch = case.batch
    streams = torch.cat(list(batch.videos.streams.values()), -1)
    near(streams, case.arrays["in.src_vid"][..., :-2])
    near(batch.queries.tokens, case.arrays["in.src_txt"])
    assert torch.equal(batch.videos.mask, case.arrays["in.src_vid_mask"].bool())
    assert torch.equal(batch.queries.mask, case.arrays["in.src_txt_mask"].bool())


@torch.no_grad()
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_windows_and_saliency_are_the_released_ones(case: DetrCase, mode: str) -> None:
    queries, videos = case.encoded()
    found = case.model.detect(queries, videos)
    near(found.layers[-1].logits, case.arrays[f"{mode}.pred_logits"])
    near(found.layers[-1].spans, case.arrays[f"{mode}.pred_spans"])
    stored = case.arrays[f"{mode}.saliency_scores"]
    near(found.saliency[videos.mask], stored[videos.mask])
    for layer, windows in enumerate(found.layers[:-1]):
        if mode == "train":
            near(windows.logits, case.arrays[f"train.aux{layer}.pred_logits"])
            near(windows.spans, case.arrays[f"train.aux{layer}.pred_spans"])


def test_losses_and_gradients_are_the_released_ones(case: DetrCase) -> None:
    if "target.saliency_all_labels" not in case.arrays:
        pytest.skip("a case of real widths stores no labels")
    case.model.zero_grad()
    losses = case.model.loss(case.batch)
    weights = case.told["told"]["loss_weights"]
    for name, value in losses.items():
        if name in _ADDITIONAL:
            continue
        theirs = f"loss_{_THEIRS.get(name, name)}"
        stored = case.arrays[f"loss.{theirs}"] * weights[theirs]
        near(value.detach(), stored)
    more = [value.detach() for name, value in losses.items() if name in _ADDITIONAL]
    if more:
        near(sum(more), case.arrays["loss.additional"])
    total = torch.stack(list(losses.values())).sum()
    near(total.detach(), case.arrays["loss.total"])
    total.backward()  # type: ignore[no-untyped-call]
    lengths = lengths_of(case.told)
    for name, parameter in case.model.named_parameters():
        own = 0.0 if parameter.grad is None else parameter.grad.norm().item()
        theirs = case.names[name]
        length = lengths.get(theirs) or lengths.get(f"transformer.decoder.{theirs}") or 0.0
        assert own == pytest.approx(length, rel=1e-3, abs=1e-5), name


@torch.no_grad()
@pytest.mark.parametrize("rounded", [False, True], ids=["windows as found", "rounded to clips"])
def test_best_windows_are_those_of_the_released_evaluation(case: DetrCase, rounded: bool) -> None:
    """Its durations are annotated ones, and empty windows stay in its list; ours are left out."""
    queries, videos = case.encoded()
    scores = case.model.score_spans(queries, videos)
    ends = Decoding(ends="as-released" if rounded else "inclusive")
    best = best_spans(scores, ends, case.model.config.windows)
    for at, note in enumerate(case.told["annotations"]):
        clips = int(videos.mask[at].sum())
        if note["duration"] != clips * CLIP_SECONDS:
            continue  # cut off: the program stretches what it found over what it has not seen
        stored = case.arrays["post.windows" if rounded else "post.windows_before"][at]
        stored = stored[stored[:, 0] < note["duration"]]
        real = stored[stored[:, 0].clamp(min=0) < stored[:, 1]]
        assert best.borders is not None
        there = best.score[at] > -torch.inf
        times = best.borders[at][there] * CLIP_SECONDS
        if rounded:
            inside = stored[:, :2].clamp(max=note["duration"])  # the program's bound is 150 s for all
            near(times[times[:, 0] < times[:, 1]].double(), inside[inside[:, 0] < inside[:, 1]])
            continue
        near(best.score[at][there].exp().double(), real[:, 2], atol=1e-4)
        held = real[:, :2].clamp(0, note["duration"])
        near(times.double(), held, atol=2e-3)


@torch.no_grad()
@pytest.mark.parametrize("as_released", [True, False], ids=["as released", "by default"])
def test_the_released_predictor_is_met_where_it_is_asked_video_by_video(
    case: DetrCase, monkeypatch: pytest.MonkeyPatch, as_released: bool
) -> None:
    """It hands raw features of videos to the model, and does not cut the words.

    What the programs do to padding and to other pairs of a batch does nothing to a pair alone. (UVCOM's walk
    is that of the program here, as an imported checkpoint has it.)
    """
    monkeypatch.setattr(case.model, "config", replace(case.model.config, as_released=as_released))
    read = case.inputs(normalise=False, tokens=10_000)
    raw = replace(read)
    for number in range(2):
        clips = case.clips(raw)
        if f"predictor{number}.windows" not in case.arrays or case.told["sizes"]["clips"][number] > 75:
            continue
        videos = case.model.encode_videos(clips).take(torch.tensor([number]))
        count = int(videos.mask.sum())
        videos = type(videos)(videos.mask[:, :count], parts={"rows": videos.parts["rows"][:, :count]})
        words = raw.queries([case.raw(f"raw.q.{number}")])
        scores = case.model.score_spans(case.model.encode_queries(words), videos)
        best = best_spans(scores, Decoding(), 10)
        stored = case.arrays[f"predictor{number}.windows"]
        real = stored[stored[:, 0] < stored[:, 1]]
        there = best.score[0] > -torch.inf
        assert best.borders is not None
        near((best.borders[0][there] * CLIP_SECONDS).double(), real[:, :2], atol=2e-3)
        near(best.score[0][there].exp().double(), real[:, 2], atol=1e-4)
        curve = case.model.saliency(case.model.encode_queries(words), videos)[0]
        np.testing.assert_allclose(
            curve.numpy(), case.arrays[f"predictor{number}.saliency"].numpy(), atol=2e-3, rtol=2e-3
        )
