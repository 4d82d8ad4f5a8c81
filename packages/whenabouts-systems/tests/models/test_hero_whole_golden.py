"""The whole HERO as released, against what the authors' program computes: every case file of the folder.

Tolerances are those of the folder's README (1e-4 on logits, 1e-5 of a loss, 1e-3 of a gradient's length).
"""

from __future__ import annotations

import pytest
import torch
from tests.golden_folder import golden_folder
from tests.models.hero_cases import CASES, Golden, opened
from tests.models.released_draws import draw_these
from torch import Tensor

from whenabouts_systems.models import hero
from whenabouts_systems.models.hero import Model, released_names
from whenabouts_systems.models.parts.packing import Packing
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer

TASKS = ("tvr", "vsm")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return opened(request.param)


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no hero_full folder")


def test_every_released_parameter_has_a_name_here_but_those_of_pre_training(case: Golden) -> None:
    names = released_names(case.model.config)
    assert set(names) == set(case.model.state_dict())
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    left = {name for name in released - set(names.values()) if not name.endswith(".pad")}
    tasks = ("lm_head.", "feat_regress.", "mask_embedding.", "fom_output.", "pooler.")
    assert set(names.values()) < released
    assert all(any(task in name for task in tasks) for name in left)


def _layers(model: Model, joint: Tensor, mask: Tensor) -> list[Tensor]:
    """What each layer of the cross-modal transformer makes of sequences (R, M, D)."""
    packing = Packing.of(mask)
    rows, made = packing.pack(joint), []
    assert model.encoder is not None
    for layer in model.encoder.cross_modal.encoder.layers:
        rows = layer(rows, packing)
        made.append(packing.unpack(rows))
    return made


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_sentences_with_their_frames_become_the_released_vectors(case: Golden, task: str) -> None:
    model, arrays, videos = case.model, case.arrays, case.videos(task)
    assert model.encoder is not None and videos.sentences is not None
    cross = model.encoder.cross_modal
    sequences = model.sequences(videos)
    # The rows of the authors' batch that have frames: the others are not computed here.
    first = torch.tensor([0, *case.told["told"]["batches"][task]["num_subs"]]).cumsum(0)
    rows = first[sequences.owner[:, 0]] + sequences.owner[:, 1]
    spoken, own = sequences.word_mask, sequences.words.shape[1]
    expected = arrays[f"{task}.out.subtitle_embeddings"][rows][:, :own][spoken]
    torch.testing.assert_close(cross.embedded_words(sequences.words)[spoken], expected, atol=1e-5, rtol=1e-5)
    inside = sequences.clips >= 0
    places = sequences.clip_places[inside]
    clips = cross.embedded_clips(videos.streams["frames"][inside], places)
    given = arrays[f"{task}.out.frame_embeddings"][rows[sequences.clips[inside]], places]
    torch.testing.assert_close(clips, given, atol=1e-5, rtol=1e-5)
    joint, mask = cross.joint(videos.streams["frames"], sequences), sequences.mask
    steps = mask.shape[1]
    expected = arrays[f"{task}.out.joint_embeddings"][rows][:, :steps][mask]
    torch.testing.assert_close(joint[mask], expected, atol=1e-5, rtol=1e-5)
    for number, made in enumerate(_layers(model, joint, mask)):
        expected = arrays[f"{task}.out.f_layer{number}"][rows][:, :steps][mask]
        torch.testing.assert_close(made[mask], expected, atol=1e-4, rtol=1e-5)
    case.near(f"{task}.out.matched_frames", model.encoder.among_words(videos.streams["frames"], sequences))


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_videos_become_the_released_frames(case: Golden, task: str) -> None:
    model, videos = case.model, case.videos(task)
    assert model.encoder is not None
    temporal, features, mask = model.encoder.temporal, videos.streams["frames"], videos.mask
    case.near(f"{task}.out.frame_transform", temporal.projection(features, mask))
    said = model.encoder.among_words(features, model.sequences(videos))
    packing = temporal.encoder.packing(mask)
    rows = temporal.positions(packing.pack(temporal.joined(features, said, mask)), packing)
    case.near(f"{task}.out.c_embeddings", packing.unpack(rows))
    for number, layer in enumerate(temporal.encoder.layers):
        rows = layer(rows, packing)
        case.near(f"{task}.out.c_layer{number}", packing.unpack(rows))
    case.near(f"{task}.out.c_layer{number}", model.encode_videos(videos).parts["frames"])


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_each_step_of_queries_is_the_released_one(case: Golden, task: str) -> None:
    """At the words; what stands behind the end of a query differs and counts nowhere."""
    model, place = case.model, f"{task}.in"
    assert model.encoder is not None
    cross, ids = model.encoder.cross_modal, case.arrays[f"{place}.query_input_ids"]
    mask = case.arrays[f"{place}.query_attn_masks"].bool()
    packing = Packing.of(mask)
    rows = packing.pack(cross.embedded_words(ids))
    steps = {"query_embeddings": rows}
    for number, layer in enumerate(cross.encoder.layers):
        steps[f"query_f_layer{number}"] = rows = layer(rows, packing)
    words, read = model._words(case.queries(place))
    assert torch.equal(read, mask)
    torch.testing.assert_close(packing.pack(words), rows, atol=1e-5, rtol=1e-5)
    steps["query_input_proj"] = rows = model.query_projection.on_rows(rows, packing)
    steps["query_pos_embed"] = rows = model.query_positions(rows, packing)
    steps["query_self_attention"] = rows = model.query_encoder.on_rows(rows, packing)
    steps["query_pool_logits"] = model.pooling.linear(rows)
    for name, found in steps.items():
        expected = packing.pack(case.arrays[f"{task}.out.{name}"])
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    pooled = model.pooling(packing.unpack(rows), mask).vectors[:, 0]
    case.near(f"{task}.out.modularized_query", pooled)


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_queries_become_the_released_vectors(case: Golden, task: str) -> None:
    model, queries = case.model, case.queries(f"{task}.in")
    encoded = model.encode_queries(queries)
    case.near(f"{task}.out.video_query_linear", encoded.parts["span"])
    vector = case.arrays[f"{task}.out.modularized_query"]
    expected = vector / vector.norm(dim=1, keepdim=True)
    torch.testing.assert_close(encoded.search["frames"], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_pairs_get_the_released_cosines_and_logits(case: Golden, task: str) -> None:
    model, batch = case.model, case.batch(task)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    case.near(f"{task}.out.video_scores", model.score_videos(queries, videos), atol=1e-5)
    starts = case.arrays[f"{task}.out.start_logits"]
    asked, shown = torch.arange(len(queries)), batch.video_of
    if starts.dim() == 3:
        # Their numbers differ: then all pairs are computed.
        asked, shown = (
            places.flatten() for places in torch.meshgrid(asked, torch.arange(len(videos)), indexing="ij")
        )
    logits = model.border_logits(queries.take(asked), videos.take(shown)).clamp(min=-1e4)
    for border, found in zip(("start", "end"), logits, strict=True):
        case.near(f"{task}.out.{border}_logits", found.view(starts.shape))
        real = videos.mask[shown]
        before = case.arrays[f"{task}.out.{border}_conv"][:, 0]
        torch.testing.assert_close(found[real], before[real], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("hard", [False, True], ids=["all alike", "hard ones more"])
def test_losses_and_gradients_are_the_released_ones(case: Golden, task: str, hard: bool) -> None:
    told = case.told
    model = case.model_with(
        pool=told["hard_pool_size"] if hard else None, hard_weight=told["hard_neg_weight"]
    )
    setting = "train_hard_weighted" if hard else "train_all_neg"
    losses = model.loss(case.batch(task))
    for ours, theirs in (("spans", "st_ed"), ("negative_videos", "neg_ctx"), ("negative_queries", "neg_q")):
        case.near(f"{task}.loss.{setting}.{theirs}", losses[ours], atol=0.0)
    total = torch.stack(list(losses.values())).sum()
    case.near(f"{task}.loss.{setting}.total", total, atol=0.0)
    total.backward()  # type: ignore[no-untyped-call]
    names, lengths = released_names(model.config), told["told"]["grad_l2"][f"{task}.{setting}"]
    for ours, parameter in model.named_parameters():
        found = 0.0 if parameter.grad is None else parameter.grad.norm().item()
        assert found == pytest.approx(lengths[names[ours]], rel=1e-3, abs=1e-5), names[ours]
        if not hard and (whole := f"{task}.grad.{names[ours]}") in case.arrays:
            assert parameter.grad is not None
            case.near(whole, parameter.grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_losses_of_single_queries_are_the_released_ones(case: Golden, task: str) -> None:
    """In evaluation the program keeps one value a query, and the sum of the spans'."""
    model, batch, told = case.model, case.batch(task), case.told
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    lacking = model.ranking_losses(batch, scores)
    case.near(f"{task}.loss.eval_sum.neg_ctx", told["lw_neg_ctx"] * lacking["negative_videos"], atol=1e-5)
    case.near(f"{task}.loss.eval_sum.neg_q", told["lw_neg_q"] * lacking["negative_queries"], atol=1e-5)
    case.near(f"{task}.loss.eval_sum.st_ed", len(batch) * model.loss(batch)["spans"], atol=0.0)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("hard", ["", "_hard"])
@torch.no_grad()
def test_losses_with_drawn_negatives_are_the_released_ones(
    case: Golden, task: str, hard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch, told = case.model_with(negatives="drawn"), case.batch(task), case.told
    stored = f"{task}.loss.train_sampled{hard}"
    case.near(f"{stored}.st_ed", model.loss(batch)["spans"], atol=0.0)
    if len(batch.videos) == 1:
        pytest.skip("one video: there is no negative to draw")
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    # The program draws a query for each video, all of whose queries are compared with it, and counts places
    # in a list that the positives begin.
    each = len(batch) // len(batch.videos)
    ranks = (
        case.arrays[f"{stored}.ranks_neg_ctx"] - 1,
        (case.arrays[f"{stored}.ranks_neg_q"] - each).repeat_interleave(each),
    )
    draw_these(monkeypatch, hero, *ranks)
    lacking = model.ranking_losses(batch, scores)
    case.near(f"{stored}.neg_ctx", told["lw_neg_ctx"] * lacking["negative_videos"].mean(), atol=0.0)
    case.near(f"{stored}.neg_q", told["lw_neg_q"] * lacking["negative_queries"].mean(), atol=0.0)


def test_fine_tuning_steps_are_the_released_ones(case: Golden) -> None:
    told, arrays = case.told["optim"], case.arrays
    settings = TrainingSettings(
        optimizer="adamw-as-released",
        learning_rate=told["learning_rate"],
        weight_decay=told["weight_decay"],
        betas=tuple(told["betas"]),
    )
    model, batch = case.model_with(), case.batch("tvr")
    optimizer = new_optimizer(settings, model)
    terms = ("spans", "negative_videos", "negative_queries")
    for step, rate in enumerate(arrays["optim.lr_used"].tolist()):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        losses = model.loss(batch)
        found = torch.stack([losses[name] for name in terms])
        expected = arrays["optim.loss_terms"][step].float()
        torch.testing.assert_close(found.detach(), expected, atol=1e-4, rtol=1e-3)
        found.sum().backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), told["grad_norm"])
        assert norm.item() == pytest.approx(float(arrays["optim.grad_norm"][step]), rel=2e-3)
        optimizer.step()
    names, lengths = released_names(model.config), case.told["told"]["optim_after_l2"]
    for ours, parameter in model.named_parameters():
        assert parameter.norm().item() == pytest.approx(lengths[names[ours]], rel=1e-3, abs=1e-4)
        if (whole := f"optim.after.{names[ours]}") in arrays:
            case.near(whole, parameter, atol=2e-4, rtol=1e-3)
