"""Systems whose words come from a DistilBERT inside them, or as features: the same tests for each."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.small_batches import QUERY_WIDTH, mask_of, small_batch

from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import Batch, QueryBatch

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 7, 2], [3, 1, 5, 2]
TINY = {
    "vocab_size": 30,
    "dim": 8,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 12,
    "max_position_embeddings": 16,
}


@pytest.fixture(params=["bet", "cet"])
def system(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(f"whenabouts_systems.models.{request.param}")


def _model(system: Any, **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "layers": 2, "feedforward": 20, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": QUERY_WIDTH, "initializer_range": 0.3, **settings}
    return system.Model(system.Config(**{**sizes, **told})).eval()


def _with_text_encoder(system: Any) -> Any:
    pytest.importorskip("transformers")
    return _model(system, text_encoder="a tiny one", text=TINY)


def _batch() -> Batch:
    return small_batch(STREAMS, CLIPS, TOKENS, [2, 0, 1, 0])


def _ids() -> QueryBatch:
    words = mask_of(TOKENS)
    drawn = torch.randint(1, 30, words.shape, generator=torch.Generator().manual_seed(3))
    return QueryBatch(torch.where(words, drawn, 29), words)


def test_ids_score_as_the_features_that_the_text_encoder_makes_of_them(system: Any) -> None:
    model, ids, batch = _with_text_encoder(system), _ids(), _batch()
    features = torch.zeros(*ids.mask.shape, 8)
    for row, length in enumerate(TOKENS):
        features[row, :length] = model.words.bert(ids.tokens[row : row + 1, :length]).last_hidden_state[0]
    other = _model(system, query_width=8)
    weights = {name: one for name, one in model.state_dict().items() if not name.startswith("words.")}
    other.load_state_dict(weights)
    videos = batch.videos
    found, expected = (
        one.score_spans(one.encode_queries(told), one.encode_videos(videos).take(batch.video_of))
        for one, told in ((model, ids), (other, QueryBatch(features, ids.mask)))
    )
    torch.testing.assert_close(found.start, expected.start, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.end, expected.end, rtol=1e-4, atol=1e-5)


def test_a_training_begins_with_the_weights_of_the_named_text_encoder(system: Any, tmp_path: Path) -> None:
    model = _with_text_encoder(system)
    kept = {name: one.clone() for name, one in model.words.bert.state_dict().items()}
    model.words.bert.save_pretrained(tmp_path)
    other = _model(system, text_encoder=str(tmp_path), text=TINY, initializer_range=0.1)
    name = "transformer.layer.0.attention.q_lin.weight"
    assert not torch.equal(other.words.bert.state_dict()[name], kept[name])
    other.begin()
    assert all(torch.equal(one, kept[name]) for name, one in other.words.bert.state_dict().items())
    _model(system).begin()  # nothing to read


def test_ids_without_a_text_encoder_and_features_with_one_are_refused(system: Any) -> None:
    with pytest.raises(UsageError, match="words are ids, but this system has no text encoder"):
        _model(system).encode_queries(_ids())
    with pytest.raises(UsageError, match="words are features, but this system has a text encoder"):
        _with_text_encoder(system).encode_queries(_batch().queries)
