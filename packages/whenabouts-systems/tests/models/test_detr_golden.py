"""The DETR family against what the released programs compute: every case file of the golden folder."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import golden_folder
from tests.models.detr_cases import NOISY, SYSTEMS, UNUSED, UNUSED_IN, DetrCase, detr_cases, literal, opened
from torch import Tensor

from whenabouts.types import Query
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.parts.detr_layers import places_of
from whenabouts_systems.models.parts.window_targets import matched, relevant_clips, true_windows
from whenabouts_systems.training.labels import WindowLabels

_THEIRS = {"align": "ms_align", "orthogonal": "orthogonal_dummy", "similarity": "sim"}
_ADDITIONAL = ("clip_text", "video_text")
"""Terms of TR-DETR that its program adds up beside the others."""
_SLICED = "tr_detr"
"""Reads another stretch, as released, where its best window begins before its video."""
_LATEST = 150.0
"""Seconds at which the program's evaluation cuts windows off."""
_ANY = 10_000
_NOT_OURS = re.compile(
    r"\b(position_embed|token_type_embeddings|(t2v|v2t)_encoder(\.layers\.\d+)?|gru_extractor)\.call0$"
)
"""Modules of the programs whose whole output none of ours gives."""
_STACKED = re.compile(r"step\.(transformer|CIM)(\.decoder)?\.call0")
"""All layers as one; EaTR's has its slots before them."""
_LATER = re.compile(
    r"\b(transformer\.encoder(\.layers\.\d+)?|saliency_proj\d|CIM\.(feature_proj|conv_local|GKA_Module|sim_vid))"
    r"\.call1$"
)
"""What the programs make a second time, of the wrong words, and ours too."""
_PROJECTED = re.compile(r"(eval|train)\.src_(vid|txt)_ed")
_TOKEN = re.compile(r"step\.transformer\.t2v_encoder(\.layers\.\d+)?\.call\d+")
"""CG-DETR's layers between clips and words, of which its token passes alone."""
_REFINED = re.compile(
    r"(.*\.decoder\.(?:ref_point_head|ref_anchor_head|bbox_embed|query_scale))\.call([1-9])$"
)
"""Modules that windows pass once a layer."""
_DECODED_TWICE = ("qd_detr", "cg_detr")
"""Whose programs look for windows of the wrong words, too, which nothing reads."""
CASES = [path for system in SYSTEMS for path in detr_cases(system)]


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> DetrCase:
    return opened(request.param)


def near(value: Any, stored: Any, atol: float = 2e-5, rtol: float = 1e-4, equal_nan: bool = False) -> None:
    torch.testing.assert_close(value, stored, atol=atol, rtol=rtol, check_dtype=False, equal_nan=equal_nan)


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
    clips = case.model.with_endpoints(case.model.encode_videos(batch.videos))
    near(clips[batch.videos.mask], case.arrays["in.src_vid"][batch.videos.mask])
    near(batch.queries.tokens, case.arrays["in.src_txt"])
    assert torch.equal(batch.videos.mask, case.arrays["in.src_vid_mask"].bool())
    assert torch.equal(batch.queries.mask, case.arrays["in.src_txt_mask"].bool())


@torch.no_grad()
def test_places_of_clips_are_the_released_ones(case: DetrCase) -> None:
    if "step.position_embed.call0" not in case.arrays:
        pytest.skip("a case of real widths stores no steps")
    mask = case.batch.videos.mask
    places = places_of(mask, case.model.config.hidden)
    near(places[mask], case.arrays["step.position_embed.call0"][mask])


@torch.no_grad()
def test_every_step_that_our_modules_make_too_is_the_released_one(case: DetrCase) -> None:
    """The outputs of each module of the program are among ours, with axes in any order.

    Left out is what no module of ours gives as a whole: words beside clips that a layer leaves as they are,
    places.
    """
    stored = [name for name in case.arrays if name.startswith("step.") and is_ours(case, name)]
    stored += [name for name in case.arrays if _PROJECTED.fullmatch(name)]
    if not stored:
        pytest.skip("a case of real widths stores no steps")
    made = outputs_of_modules(case)
    for name in stored:
        step = case.arrays[name]
        alike = (
            value.permute(axes)
            for value in made
            if sorted(value.shape) == sorted(step.shape)
            for axes in permutations(range(step.ndim))
        )
        same = (one.shape == step.shape and torch.allclose(one, step, 1e-3, 1e-4) for one in alike)
        assert any(same), name


def is_ours(case: DetrCase, name: str) -> bool:
    """Whether our modules compute that output of one of the program's."""
    if _TOKEN.fullmatch(name) and len(case.arrays[name]) == 1:
        return True
    if _STACKED.fullmatch(name):
        return bool(len(case.arrays[name]) == case.model.config.decoder_layers)
    if refined := _REFINED.fullmatch(name):
        calls = sum(one.startswith(f"{refined[1]}.call") for one in case.arrays)
        return int(refined[2]) < calls // (1 + (case.told["model"] in _DECODED_TWICE))
    return bool(_LATER.search(name)) or (name.endswith(".call0") and not _NOT_OURS.search(name))


def outputs_of_modules(case: DetrCase) -> list[Tensor]:
    """All tensors that a module gives as its output, or as a part of it, while the loss is computed.

    And what it gives layer by layer as one: the programs stack the layers of their decoders.
    """
    made: dict[object, list[Tensor]] = {}

    def note(module: object, arguments: object, output: Any) -> None:
        parts = output if isinstance(output, tuple) else (output,)
        made.setdefault(module, []).extend(part for part in parts if isinstance(part, Tensor))

    hooks = [module.register_forward_hook(note) for module in case.model.modules()]
    try:
        case.model.loss(case.batch)
    finally:
        for hook in hooks:
            hook.remove()
    layers = case.model.config.decoder_layers
    alike = (own[:layers] for own in made.values() if len({one.shape for one in own[:layers]}) == 1)
    return [one for own in made.values() for one in own] + [torch.stack(own) for own in alike]


@torch.no_grad()
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_windows_and_saliency_are_the_released_ones(case: DetrCase, mode: str) -> None:
    queries, videos = case.encoded()
    found = case.model.detect(queries, videos)
    near(found.layers[-1].logits, case.arrays[f"{mode}.pred_logits"], atol=1e-4)
    near(found.layers[-1].spans, case.arrays[f"{mode}.pred_spans"])
    stored = case.arrays[f"{mode}.saliency_scores"]
    near(found.saliency[videos.mask], stored[videos.mask], atol=1e-4)
    if f"{mode}.pred_event_spans" in case.arrays:
        near(found.events, case.arrays[f"{mode}.pred_event_spans"])
    each_layer = mode == "train" and case.model.config.each_layer
    for layer, windows in enumerate(found.layers[:-1] if each_layer else ()):
        near(windows.logits, case.arrays[f"train.aux{layer}.pred_logits"], atol=1e-4)
        near(windows.spans, case.arrays[f"train.aux{layer}.pred_spans"])


@torch.no_grad()
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_saliency_for_wrong_words_is_the_released_one(case: DetrCase, mode: str) -> None:
    """In a batch of one pair the program gives it its own words."""
    stored = case.arrays.get(f"{mode}.saliency_scores_neg")
    if stored is None:
        pytest.skip("the program makes none, or the case stores none")
    model, (queries, videos) = case.model, case.encoded()
    if case.told["model"] == "cg_detr":
        wrong = torch.arange(len(queries)).roll(-1)
        real = model._is_negative(case.batch, wrong)
        assert torch.equal(real, case.arrays[f"{mode}.real_neg_mask"].bool())
        if not real.any():
            assert len(stored) == 0
            return
        mask = videos.mask[real]
        guided = model.guided(queries.take(wrong[real]), model.clips_of(videos)[real], mask)
        attention = case.arrays[f"{mode}.t2vattnvalues_neg"]
        near(model._to_words(guided.attention)[mask], attention[mask])
        words = model._with_dummies(queries.parts["mask"][wrong[real]])
        assert torch.equal(words, case.arrays[f"{mode}.src_txt_mask_neg"].bool())
        found = model.salience(guided)
    else:
        wrong = model.wrong_queries(case.batch, model.detect(queries, videos), videos.mask)
        found, mask = model.saliency_for(queries.take(wrong), videos), videos.mask
    near(found[mask], stored[mask], atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_attention_to_words_and_dummies_is_the_released_one(case: DetrCase, mode: str) -> None:
    if f"{mode}.t2vattnvalues" not in case.arrays:
        pytest.skip("a system without dummies, or a case that stores none")
    model, (queries, videos) = case.model, case.encoded()
    guided, mask = model.guided(queries, model.clips_of(videos), videos.mask), videos.mask
    seen = model._with_dummies(queries.parts["mask"])
    assert torch.equal(seen, case.arrays[f"{mode}.txt_mask"].bool())
    if (stored := case.arrays.get(f"{mode}.cate_attn_weights")) is not None:
        both = mask[:, :, None] & seen[:, None]
        near(guided.attention[both], stored[both])
    near(model._to_words(guided.attention)[mask], case.arrays[f"{mode}.t2vattnvalues"][mask])
    if (dummies := case.arrays.get(f"{mode}.dummy_tokens")) is not None:
        near(queries.parts["dummies"], dummies)


@torch.no_grad()
def test_summaries_of_moments_and_sentences_are_the_released_ones(
    case: DetrCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("memory_moment", "nmmemory_moment", "sentence_txt", "sentence_dummy")
    if "train.memory_moment" not in case.arrays:
        pytest.skip("a system without summaries, or a case that stores none")
    taken: dict[str, Any] = {}

    def noted(name: str) -> None:
        before = getattr(case.model, name)

        def call(*given: Tensor) -> Tensor:
            taken[name] = given
            found: Tensor = before(*given)
            return found

        monkeypatch.setattr(case.model, name, call, raising=False)

    noted("_align")
    noted("_distill")
    case.model.loss(case.batch)
    for name, value in zip(names, taken["_align"], strict=True):
        near(value, case.arrays[f"train.{name}"], atol=1e-4)
    _, similar, _, mask = taken["_distill"]
    assert torch.equal(mask, case.arrays["train.moment_mask"].bool())
    if (stored := case.arrays.get("train.moment2txt_similarity")) is not None:
        near(similar[mask], stored[mask], atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_true_windows_are_matched_as_released(case: DetrCase) -> None:
    queries, videos = case.encoded()
    layers = case.model.detect(queries, videos).layers
    truth = true_windows(case.batch, videos.mask.sum(1))
    told = literal(case.told["told"]["matched_query_target"])
    for number, windows in enumerate(layers):
        name = "last" if number == len(layers) - 1 else f"aux{number}"
        if name != "last" and not case.model.config.each_layer:
            continue
        pair, prediction, target = matched(windows, truth, case.model.config.costs)
        found = [[prediction[pair == at].tolist(), target[pair == at].tolist()] for at in range(case.pairs)]
        assert found == [list(map(list, one)) for one in told[name]], name
        error = case.arrays[f"loss.class_error{name.removeprefix('last').replace('aux', '_')}"]
        wrong = windows.logits[pair, prediction].argmax(1) != 0
        near(100 * wrong.float().mean(), error)


@torch.no_grad()
def test_losses_of_windows_are_the_released_ones(case: DetrCase) -> None:
    """Which, unlike those of the clips, need nothing that the program drew."""
    queries, videos = case.encoded()
    layers, truth = case.model.detect(queries, videos).layers, true_windows(case.batch, videos.mask.sum(1))
    weights = case.told["told"]["loss_weights"]
    for name, value in case.model.losses_of_layers(layers, truth).items():
        near(value, case.arrays[f"loss.loss_{name}"] * weights[f"loss_{name}"])


def test_windows_that_the_program_drew_are_those_that_give_its_losses(case: DetrCase) -> None:
    """With more windows annotated than it may draw, and without its choice."""
    stored = {at: case.arrays.get(f"target.span_labels.{at}.spans") for at in range(case.pairs)}
    counts = {at: len(spans) for at, spans in stored.items() if spans is not None}
    if not counts:
        pytest.skip("the case does not say what the program drew")
    most, at = max((count, at) for at, count in counts.items())
    notes = [dict(note) for note in case.told["annotations"]]
    if len(notes[at]["relevant_windows"]) != most:
        pytest.skip("more windows are annotated than were drawn")
    notes[at]["relevant_windows"] = [[0, case.clip_seconds], *notes[at]["relevant_windows"]]
    hidden = {name: value for name, value in case.arrays.items() if name != f"target.span_labels.{at}.spans"}
    told = {**case.told, "annotations": notes, "options": {**case.told["options"], "max_windows": most}}
    found = replace(case, told=told, arrays=hidden)
    near(found.batch.labels["windows"], case.batch.labels["windows"], equal_nan=True)


@torch.no_grad()
def test_labels_of_annotations_are_the_released_ones(case: DetrCase) -> None:
    """Windows that the program shuffled and cut are left out."""
    if not case.tells_drawn_clips:
        pytest.skip("a case of real widths stores no labels")
    notes, read = case.told["annotations"], case.batch.labels
    for at, note in enumerate(notes):
        borders = np.array(note["relevant_windows"], np.float32) / case.clip_seconds
        asked = Query(str(note["qid"]), note["query"], note)
        rows = np.zeros(len(borders), np.int64)
        labels = WindowLabels(rows, rows, borders, [asked], [note["vid"]])
        clips = read["saliency"].shape[1]
        own = labels.of(np.zeros(1, np.int64), clips)
        assert torch.equal(own["saliency"][0], read["saliency"][at].float())
        if len(borders) <= case.told["options"].get("max_windows", 5):
            near(own["windows"][0], read["windows"][at][: len(borders)])
        if (rated := case.arrays.get("target.relevant_clips")) is not None:
            assert torch.equal(own["saliency"][0], rated[at].float())
        if "relevant_clips" in read:
            mask = case.batch.videos.mask[at : at + 1]
            alone = replace(case.batch, labels={"windows": own["windows"]})
            assert torch.equal(relevant_clips(alone, mask)[0], read["relevant_clips"][at])


@torch.no_grad()
def saliency_of_drawn_clips(case: DetrCase) -> Tensor:
    """The released term of clips that no one tells, which is between those of the best and of the worst."""
    batch, (queries, videos) = case.batch, case.encoded()
    scores = case.model.detect(queries, videos).saliency
    best = scores.masked_fill(~videos.mask, -torch.inf).argmax(1)
    worst = scores.masked_fill(~videos.mask, torch.inf).argmin(1)
    pairs = [
        torch.stack([one, one], 2) for one in (torch.stack([best, worst], 1), torch.stack([worst, best], 1))
    ]
    labels = [{**batch.labels, "saliency_pairs": pair} for pair in pairs]
    least, most = (case.model.loss(replace(batch, labels=one))["saliency"] for one in labels)
    stored: Tensor = case.arrays["loss.loss_saliency"] * case.told["told"]["loss_weights"]["loss_saliency"]
    assert least <= stored <= most
    return stored


def test_losses_and_gradients_are_the_released_ones(case: DetrCase) -> None:
    """Gradients only where the clips are told that the program drew."""
    case.model.zero_grad()
    losses = dict(case.model.loss(case.batch))
    if not case.tells_drawn_clips:
        losses["saliency"] = saliency_of_drawn_clips(case)
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
    if not case.tells_drawn_clips:
        return
    total.backward()  # type: ignore[no-untyped-call]
    lengths = literal(case.told["told"]["grad_l2"])
    within = 5e-3 if case.told["model"] in NOISY else 1e-3
    for name, parameter in case.model.named_parameters():
        own = 0.0 if parameter.grad is None else parameter.grad.norm().item()
        theirs = case.names[name]
        length = lengths.get(theirs) or lengths.get(f"transformer.decoder.{theirs}") or 0.0
        assert own == pytest.approx(length, rel=within, abs=1e-5), name


def same_windows(times: Tensor, scores: Tensor, stored: Tensor, least: float = -1.0) -> None:
    """Best windows, times (N, 2) with their scores and released (M, 3), are the same, best first.

    Rows of nearly the same score may change places; ours need no counterpart up to the score `least`. The
    program keeps empty windows and rounds times to 1e-4 s: windows of hardly any length are not compared.
    """
    mine = torch.cat([times.double(), scores.double()[:, None]], 1)
    assert (mine[:, 2].diff() <= 0).all() and (stored[:, 2].diff() <= 0).all()
    within = torch.tensor([2e-3, 2e-3, 1e-4], dtype=torch.float64)
    same = ((mine[:, None] - stored.double()).abs() <= within).all(-1)
    for rows, others, low in ((mine, same, least), (stored, same.T, -1.0)):
        asked = (rows[:, 1] - rows[:, 0] > 5e-3) & (rows[:, 2] > low)
        assert others[asked].any(1).all(), rows[asked][~others[asked].any(1)]


def cut(windows: Tensor, latest: float) -> Tensor:
    """Windows (N, 3) whose times end there; the stored ones stay as they are for other tests."""
    return torch.cat([windows[:, :2].clamp(0, latest), windows[:, 2:]], 1).double()


@torch.no_grad()
def test_best_windows_are_those_of_the_released_evaluation(case: DetrCase) -> None:
    """The program stretches shares of the clips over the annotated duration, and keeps empty windows."""
    queries, videos = case.encoded()
    best = best_spans(case.model.score_spans(queries, videos), Decoding(), case.model.config.windows)
    assert best.borders is not None
    for at, note in enumerate(case.told["annotations"]):
        stored = cut(case.arrays["post.windows_before"][at], note["duration"])
        there = best.score[at] > -torch.inf
        times = best.borders[at][there] / videos.mask[at].sum() * note["duration"]
        same_windows(times, best.score[at][there].exp(), stored)


@torch.no_grad()
def test_windows_are_stored_before_they_are_cut_to_the_video(case: DetrCase) -> None:
    last = case.model.detect(*case.encoded()).layers[-1]
    half, score = last.spans[..., 1:] / 2, last.logits.softmax(-1)[..., :1]
    shares = torch.cat([last.spans[..., :1] - half, last.spans[..., :1] + half], -1)
    seconds = torch.tensor([note["duration"] for note in case.told["annotations"]])[:, None, None]
    found, stored = torch.cat([shares * seconds, score], -1), case.arrays["post.windows_before"]
    same = ((found[:, :, None] - stored[:, None]).abs() <= torch.tensor([2e-3, 2e-3, 1e-4])).all(-1)
    assert same.any(1).all() and same.any(2).all()  # in any order: scores may be nearly the same


@torch.no_grad()
def test_windows_are_rounded_to_clips_as_by_the_released_evaluation(case: DetrCase) -> None:
    """Videos that were cut, and borders half a clip from the next, which may go either way, are left out."""
    queries, videos = case.encoded()
    ends, compared = Decoding(ends="as-released"), 0
    best = best_spans(case.model.score_spans(queries, videos), ends, case.model.config.windows)
    assert best.borders is not None
    for at, note in enumerate(case.told["annotations"]):
        before, stored = (case.arrays[f"post.windows{when}"][at] for when in ("_before", ""))
        clips = cut(before, _LATEST)[:, :2] / case.clip_seconds
        either = ((clips % 1 - 0.5).abs() < 1e-3).any(1)
        near(stored[~either, :2], clips[~either].round() * case.clip_seconds)
        near(stored[:, 2], before[:, 2])
        if note["duration"] != videos.mask[at].sum() * case.clip_seconds or either.any():
            continue
        latest = min(note["duration"], _LATEST)
        there = best.score[at] > -torch.inf
        times = (best.borders[at][there] * case.clip_seconds).clamp(max=latest)
        same_windows(times, best.score[at][there].exp(), cut(stored, latest))
        compared += 1
    if not compared:
        pytest.skip("all videos of this case are cut, or have borders half a clip from the next")


@torch.no_grad()
@pytest.mark.parametrize("as_released", [True, False], ids=["as released", "by default"])
def test_the_released_predictor_is_met_where_it_is_asked_video_by_video(
    case: DetrCase, monkeypatch: pytest.MonkeyPatch, as_released: bool
) -> None:
    """It hands raw features of videos to the model, and cuts neither words nor clips.

    What the programs do to padding and to other pairs of a batch does nothing to a pair alone. (UVCOM's walk
    is that of the program here, as an imported checkpoint has it.)
    """
    config = replace(case.model.config, as_released=as_released, longest_clips=_ANY)
    monkeypatch.setattr(case.model, "config", config)
    read = case.inputs(normalise=False, most=_ANY)
    encoded = case.model.encode_videos(case.clips(read))
    numbers = [n for n in range(case.pairs) if f"predictor{n}.windows" in case.arrays]
    assert numbers
    for number in numbers:
        videos = encoded.take(torch.tensor([number]))
        count = int(videos.mask.sum())
        videos = type(videos)(videos.mask[:, :count], parts={"rows": videos.parts["rows"][:, :count]})
        if (given := case.arrays.get(f"predictor{number}.video_feats")) is not None:
            near(case.model.with_endpoints(videos), given)
        queries = case.model.encode_queries(read.queries([case.raw(f"raw.q.{number}")]))
        best = best_spans(case.model.score_spans(queries, videos), Decoding(), 10)
        stored = case.arrays[f"predictor{number}.windows"]
        there = best.score[0] > -torch.inf
        assert best.borders is not None
        times, scores = best.borders[0][there] * case.clip_seconds, best.score[0][there].exp()
        same_windows(times, scores, stored, least=stored[:, 2].min().item() + 2e-4)  # which counts empty ones
        if as_released or case.told["model"] != _SLICED:
            curve = case.model.saliency(queries, videos)[0]
            near(curve, case.arrays[f"predictor{number}.saliency"], atol=2e-3, rtol=2e-3)
