"""The whole HERO on random videos: what its answers depend on, what it learns, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import mask_of
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.parts.cross_modal import sequences_of, with_context
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch

SIZES: dict[str, Any] = {
    "streams": {"video": 6, "sound": 3},
    "text_encoder": "numbers",
    "hidden": 16,
    "heads": 2,
    "max_tokens": 8,
    "cross_modal": {"layers": 2, "heads": 2, "feedforward": 20, "vocabulary": 30, "word_places": 20},
    "temporal": {"layers": 1, "heads": 4, "feedforward": 20, "places": 12},
    "initializer_range": 0.3,
}
CLIPS, TOKENS, OWN = [6, 9, 4], [3, 1, 5, 2], [2, 0, 1, 0]
OF_CLIPS = [
    [0, 0, -1, 2, 2, 1, -1, -1, -1],
    [0, 1, 1, 1, 2, 2, 3, 3, -1],
    [0, 0, 0, 0, -1, -1, -1, -1, -1],
]


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    return Model(Config(**{**SIZES, **settings})).eval()


def _videos() -> ClipBatch:
    generator = torch.Generator().manual_seed(1)
    mask = mask_of(CLIPS)
    streams = {
        name: torch.randn(*mask.shape, width, generator=generator) * mask[..., None]
        for name, width in SIZES["streams"].items()
    }
    lengths = torch.tensor([[3, 1, 4, 2], [2, 5, 1, 3], [0, 0, 0, 0]])
    said = torch.arange(5) < lengths[..., None]
    words = torch.randint(4, 30, said.shape, generator=generator)
    return ClipBatch(streams, mask, sentences=SentenceBatch(words, said, torch.tensor(OF_CLIPS)))


def _batch() -> Batch:
    generator, mask = torch.Generator().manual_seed(2), mask_of(TOKENS)
    return Batch(
        QueryBatch(torch.randint(4, 30, mask.shape, generator=generator), mask),
        _videos(),
        torch.tensor(OWN),
        torch.tensor([[0, 1], [1, 3], [2, 2], [0, 0]]),
        torch.nn.functional.one_hot(torch.tensor(OWN), 3).bool(),
    )


def _alone(videos: ClipBatch, row: int, clips: int) -> ClipBatch:
    """One video without padding."""
    assert videos.sentences is not None
    said = videos.sentences.take(torch.tensor([row]))
    return ClipBatch(
        {name: rows[row : row + 1, :clips] for name, rows in videos.streams.items()},
        videos.mask[row : row + 1, :clips],
        sentences=replace(said, of_clips=said.of_clips[:, :clips]),
    )


@torch.no_grad()
def test_a_video_is_the_same_alone_and_among_others() -> None:
    model, videos = _model(context_sentences=1), _videos()
    together = model.encode_videos(videos).parts["frames"]
    for row, clips in enumerate(CLIPS):
        alone = model.encode_videos(_alone(videos, row, clips)).parts["frames"]
        torch.testing.assert_close(together[row, :clips], alone[0], atol=1e-5, rtol=1e-5)
        assert not together[row, clips:].any()


@torch.no_grad()
def test_what_lies_behind_the_end_of_words_and_clips_does_not_count() -> None:
    model, batch = _model(), _batch()
    said = batch.videos.sentences
    assert said is not None
    littered = replace(
        batch.videos,
        streams={
            n: rows.where(batch.videos.mask[..., None], 9.0) for n, rows in batch.videos.streams.items()
        },
        sentences=replace(said, words=said.words.where(said.mask, 29)),
    )
    before, after = (model.encode_videos(videos).keys["frames"] for videos in (batch.videos, littered))
    assert torch.equal(before, after)
    queries = replace(batch.queries, tokens=batch.queries.tokens.where(batch.queries.mask, 29))
    first, second = (model.encode_queries(one).search["frames"] for one in (batch.queries, queries))
    assert torch.equal(first, second)


@torch.no_grad()
def test_words_change_the_clips_of_their_own_sentence_and_through_time_the_others() -> None:
    model, videos = _model(), _videos()
    said = videos.sentences
    assert said is not None and model.encoder is not None
    words = said.words.clone()
    words[0, 2] = (words[0, 2] - 4 + 7) % 26 + 4
    features = torch.cat(list(videos.streams.values()), 2)
    one, other = (
        model.encoder.among_words(features, sequences_of(replace(said, words=ids), 2))
        for ids in (said.words, words)
    )
    changed = (one != other).any(2)
    assert torch.equal(changed, torch.tensor(OF_CLIPS) == torch.tensor([2, -2, -2])[:, None])
    assert not one[torch.tensor(OF_CLIPS) < 0].any()


def test_sentences_are_read_behind_those_before_them() -> None:
    words = torch.tensor([[[5, 6, 0], [7, 0, 0], [8, 9, 10]]])
    joined, mask = with_context(words, words > 0, 1)
    assert [row[keep].tolist() for row, keep in zip(joined[0], mask[0], strict=True)] == [
        [5, 6],
        [5, 6, 7],
        [7, 8, 9, 10],
    ]


def test_sentences_without_clips_are_read_only_where_they_are_asked_for() -> None:
    said = _videos().sentences
    assert said is not None
    said = replace(said, of_clips=said.of_clips.where(said.of_clips != 1, -1))
    with_clips, every = (sequences_of(said, 2, without_clips=more) for more in (False, True))
    assert with_clips.owner.tolist() == [[0, 0], [0, 2], [1, 0], [1, 2], [1, 3], [2, 0]]
    assert every.before.tolist() == [2, 0, 2, 0, 1, 0, 2, 2, 4]


def test_every_parameter_learns_and_a_small_batch_is_memorised() -> None:
    model, batch = _model(input_dropout=0.0, dropout=0.0, lambda_tl=0.1), _batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = _total(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if not losses:
            lacking = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
            # What is added to all keys of an attention does not change it.
            assert [name for name in lacking if not name.endswith("key.bias")] == []
        losses.append(loss.item())
        optimizer.step()
    with torch.no_grad():
        scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    assert losses[-1] < 0.3 * losses[0]
    assert torch.equal(scores.argmax(1), batch.video_of)


def _total(model: Model, batch: Batch) -> Tensor:
    return torch.stack(list(model.loss(batch).values())).sum()


def test_a_share_of_the_steps_learns_no_borders() -> None:
    model, batch = _model(drop_spans=0.5), _batch()
    assert model.loss(batch)["spans"] > 0
    model.train()
    torch.manual_seed(0)
    learned = [float(model.loss(batch)["spans"].detach()) > 0 for _ in range(40)]
    assert 8 < sum(learned) < 32


def test_faults_name_what_is_missing() -> None:
    model, batch = _model(), _batch()
    with pytest.raises(UsageError, match=r"hero reads sentences: .* \[features\] sentences"):
        model.encode_videos(replace(batch.videos, sentences=None))
    with pytest.raises(UsageError, match=r"words are features, but this system .* reads ids"):
        model.encode_queries(QueryBatch(torch.zeros(1, 2, 16), torch.ones(1, 2, dtype=torch.bool)))
    with pytest.raises(UsageError, match=r"a word has the id 30; .* 30 words .*model\.mask_token"):
        model.encode_queries(QueryBatch(torch.tensor([[30]]), torch.tensor([[True]])))
    with pytest.raises(UsageError, match="hero: temporal has no size 'width'; it has layers"):
        _model(temporal={"width": 3})
    with pytest.raises(UsageError, match="cross_modal: hidden = 16 is no multiple of heads = 3"):
        _model(cross_modal={"heads": 3})


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"cross_modal": {**SIZES["cross_modal"], "word_places": 4}}, "model.cross_modal.word_places = 6"),
        ({"cross_modal": {**SIZES["cross_modal"], "clip_places": 2}}, "model.cross_modal.clip_places = 4"),
        ({"temporal": {**SIZES["temporal"], "places": 8}}, "model.temporal.places = 9"),
    ],
)
def test_too_few_places_are_told_by_the_setting_that_makes_them(
    settings: dict[str, Any], setting: str
) -> None:
    with pytest.raises(UsageError, match=rf"places for .* train with {setting}"):
        _model(**settings).encode_videos(_videos())
