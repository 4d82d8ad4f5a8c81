"""HERO's pre-training tasks as released, against the authors' program: every case file of the folder."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.golden_folder import golden_folder
from tests.models.hero_cases import CASES, Golden, opened, sentence_batch
from torch import Tensor

from whenabouts_systems.models.hero import Model, released_names
from whenabouts_systems.models.parts.cross_modal import Sequences, sequences_of
from whenabouts_systems.models.parts.pretraining import TASKS, Hidden, Pretraining
from whenabouts_systems.models.protocol import ClipBatch
from whenabouts_systems.released.hero import ReleasedPretraining

EVERY: dict[str, float] = dict.fromkeys(TASKS, 1.0)


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return opened(request.param)


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no hero_full folder")


def _model(case: Golden) -> Model:
    """With the heads of the tasks."""
    model = Model(replace(case.model.config, pretraining=EVERY)).eval()
    names = released_names(model.config)
    model.load_state_dict({ours: case.arrays[f"sd.{name}"] for ours, name in names.items()})
    return model


def _learned(model: Model) -> Pretraining:
    assert model.encoder is not None and model.pretraining_heads is not None
    return ReleasedPretraining(model.encoder, model.pretraining_heads)


def test_all_released_parameters_have_a_name_but_those_that_nothing_uses(case: Golden) -> None:
    names = set(released_names(_model(case).config).values())
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    left = {name for name in released - names if not name.endswith(".pad")}
    # Words are told by the table that reads them.
    assert all("pooler." in name or name.endswith("lm_head.decoder.weight") for name in left)


def _spoken(case: Golden) -> tuple[ClipBatch, Tensor]:
    """The videos of masked language modelling with their hidden words, and which words (R, L) are hidden."""
    told, arrays = case.told, case.arrays
    frames = [told["told"]["kept_subtitle_frames"][name] for name in told["mlm_videos"]]
    most = told["max_clip_len"]
    rows = [arrays[f"raw.v_feat.{name}"][:most] for name in told["mlm_videos"]]
    features = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(features.shape[1]) < torch.tensor([len(one) for one in rows])[:, None]
    ids = torch.split(arrays["mlm.in.input_ids"][:, 1:], [len(one) for one in frames])
    sentences = sentence_batch(list(ids), frames, mask, told["tokens"]["pad"])
    return ClipBatch({"frames": features}, mask, sentences=sentences), arrays["mlm.in.txt_mask_tgt"]


def test_hidden_words_are_told_as_released(case: Golden) -> None:
    model, (videos, targets) = _model(case), _spoken(case)
    assert videos.sentences is not None
    sequences = sequences_of(
        videos.sentences,
        case.told["tokens"]["cls"],
        without_clips=True,
        with_words=True,
    )
    # The program has an unseen clip in front of the words where a sentence has none.
    places = sequences.word_places + (sequences.before == 0)[:, None]
    where = targets.gather(1, places.clamp(max=targets.shape[1] - 1)) & sequences.word_mask
    hidden = Hidden(sequences, where, case.arrays["mlm.in.txt_labels"])
    features = videos.streams["frames"]
    case.near("mlm.out.prediction_scores", _learned(model).word_logits(features, hidden))
    losses = _learned(model).word_loss(features, hidden)
    case.near("mlm.loss.per_token", losses, atol=1e-4)
    case.near("mlm.loss.mean", losses.mean(), atol=0.0)
    losses.mean().backward()  # type: ignore[no-untyped-call]
    _assert_gradients(case, model, "mlm")


def _hidden_clips(case: Golden, model: Model) -> tuple[Tensor, Tensor, Sequences, Tensor]:
    """Features, mask, sequences, and which clips are hidden."""
    videos, hidden = case.videos("mfm"), case.arrays["mfm.in.c_v_masks"]
    # The stored features are hidden already.
    features = videos.streams["frames"].clone()
    features[hidden] = case.arrays["mfm.in.feat_targets"]
    return features, videos.mask, model.sequences(videos), hidden


def test_hidden_clips_are_told_as_released(case: Golden) -> None:
    model = _model(case)
    *_, hidden = drawn = _hidden_clips(case, model)
    predicted = _learned(model).predicted_clips(*drawn)
    case.near("mfm.out.masked_prediction", predicted[hidden])
    case.near("mfm.out.unmasked_prediction", predicted[~hidden])
    # Sums of products of features: their scale is that of the logits.
    case.near("mfm.out.logits", _learned(model).clip_logits(*drawn), atol=1e-3, rtol=1e-4)
    losses = _learned(model).clip_loss(*drawn)
    case.near("mfm.loss.nce.each", losses, atol=1e-3, rtol=1e-4)
    case.near("mfm.loss.nce.mean", losses.mean(), atol=0.0, rtol=1e-4)
    losses.mean().backward()  # type: ignore[no-untyped-call]
    _assert_gradients(case, model, "mfm_nce")


def test_features_of_hidden_clips_are_told_as_released(case: Golden) -> None:
    model = _model(case)
    losses = _learned(model).regression_loss(*_hidden_clips(case, model))
    # The program keeps the squares of the features apart until it takes the root of their sum.
    squares = case.arrays["mfm.loss.regression.each"].sum(1)
    torch.testing.assert_close(losses.detach() ** 2, squares, rtol=1e-5, atol=1e-5)
    case.near("mfm.loss.regression.mean", losses.mean(), atol=0.0)
    losses.mean().backward()  # type: ignore[no-untyped-call]
    _assert_gradients(case, model, "mfm_regression")


def test_old_places_are_told_as_released(case: Golden) -> None:
    model, videos = _model(case), case.videos("fom")
    going, targets = case.arrays["fom.in.shuffled_orders"], case.arrays["fom.in.targets"]
    drawn = (videos.streams["frames"], videos.mask, model.sequences(videos))
    logits = _learned(model).order_logits(*drawn, going)
    case.near("fom.out.logits", logits.flatten(0, 1))
    # Who goes to a place that has a target was drawn.
    places = going.where(targets.gather(1, going) >= 0, -1)
    loss = _learned(model).order_loss(*drawn, places)
    case.near("fom.loss.mean", loss, atol=0.0)
    loss.backward()  # type: ignore[no-untyped-call]
    _assert_gradients(case, model, "fom")


def _assert_gradients(case: Golden, model: Model, task: str) -> None:
    names, lengths = released_names(model.config), case.told["told"]["grad_l2"][task]
    for ours, parameter in model.named_parameters():
        expected = lengths[names[ours]] or 0.0
        found = 0.0 if parameter.grad is None else parameter.grad.norm().item()
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5), names[ours]
