"""A corpus searched with HERO: the words of its videos are read sentence by sentence, as in a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.number_words import write_words
from tests.small_systems import DEEDS, SUBJECTS, WIDTH, Letters, inputs

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.index.records import StreamInfo
from whenabouts.types import UsageError
from whenabouts_bench.formats.sentences import read_sentences
from whenabouts_systems.explain.readout import pieces_for, token_weights
from whenabouts_systems.features import open_features
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.trained_search.search import trained_on
from whenabouts_systems.trained_search.stored_footage import transcript_of

QUERY = "the penguin moves to the north"


@pytest.fixture
def hero(tmp_path: Path) -> Trained:
    torch.manual_seed(0)
    known = dict.fromkeys(word for deed in (*DEEDS, "the The") for word in deed.split())
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *known, *SUBJECTS]
    tokenizer = str(write_words(tmp_path / "words", words))
    config = Config(
        streams={"subtitle": WIDTH},
        text_encoder=tokenizer,
        hidden=32,
        heads=4,
        cross_modal={"layers": 1, "heads": 4, "feedforward": 40, "vocabulary": len(words)},
        temporal={"layers": 1, "heads": 4, "feedforward": 40},
        initializer_range=0.2,
    )
    given = inputs(tokenizer=tokenizer, reads_sentences=True)
    return Trained("hero", Model(config).eval(), given, Decoding(max_clips=6))


def _best(corpus: Corpus, hero: Trained, folder: Path, *, spoken: bool = True) -> dict[str, float]:
    """The score of each video's best moment, from exported rows and sentences."""
    rows, sentences = folder / "rows", folder / "said.jsonl"
    if not rows.exists():
        corpus.export_features("subtitle", 2.0, rows)
        assert corpus.export_sentences(sentences) == len(corpus.records())
    said = read_sentences(sentences)
    best = {}
    with open_features(rows) as source, torch.no_grad():
        asked = hero.model.encode_queries(hero.inputs.sentences([QUERY]))
        for name in source.ids():
            transcript = said[name] if spoken else ()
            clips = hero.inputs.clips([{"subtitle": source.get(name)}], transcripts=[transcript])
            video = hero.model.encode_videos(clips)
            cosine = float(hero.model.score_videos(asked, video))
            found = best_spans(hero.model.score_spans(asked, video), hero.decoding, 1)
            best[name] = float(found.score[0, 0]) + hero.model.video_weight * cosine
    return best


@pytest.mark.slow
def test_the_answer_is_that_of_exported_rows_and_sentences(
    corpus: Corpus, hero: Trained, tmp_path: Path
) -> None:
    expected = _best(corpus, hero, tmp_path)
    found = corpus.search(QUERY, 30, model=hero).moments
    first: dict[str, float] = {}
    for moment in found:
        first.setdefault(moment.moment.video_id, moment.score)
    assert found[0].moment.video_id == max(expected, key=lambda name: expected[name])
    for name, score in first.items():
        assert score == pytest.approx(expected[name], abs=3e-2)
    # The rows are the same without the words, the scores are not.
    unheard = _best(corpus, hero, tmp_path, spoken=False)
    assert max(abs(unheard[name] - expected[name]) for name in expected) > 0.1


def test_words_that_are_read_as_sentences_count_as_searched(corpus: Corpus, hero: Trained) -> None:
    corpus.store.add_stream(StreamInfo("vision", Letters.name, Letters.fingerprint, WIDTH))
    seeing = replace(hero, inputs=replace(hero.inputs, streams={"vision": hero.inputs.streams["subtitle"]}))
    assert trained_on(corpus, seeing).streams == ("vision", "subtitle")


@pytest.mark.slow
def test_segments_are_read_with_what_is_said_in_them(corpus: Corpus, hero: Trained) -> None:
    found = corpus.search(QUERY, 5, model=hero, segments=8)
    assert found.moments
    assert all(np.isfinite(one.score) for one in found.moments)


def test_words_are_called_as_the_tokenizer_of_the_system_calls_them(hero: Trained) -> None:
    pieces = pieces_for(hero, QUERY, "")
    with torch.no_grad():
        weights = token_weights(
            hero, hero.model.encode_queries(hero.inputs.sentences([QUERY])), QUERY, pieces
        )
    assert weights is not None and weights.named
    assert weights.words == tuple(QUERY.split())
    assert sum(weights.weights["subtitle"]) == pytest.approx(1.0)


def test_a_corpus_without_words_is_refused(hero: Trained, tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    with pytest.raises(UsageError, match="has no speech; index files with subtitles"):
        corpus.export_sentences(tmp_path / "said.jsonl")
    with pytest.raises(UsageError, match="has no speech, which the system reads"):
        transcript_of(corpus.store, hero.inputs)


def test_sentences_are_not_written_over_a_file(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "said.jsonl").write_text("mine\n")
    with pytest.raises(UsageError, match=r"said\.jsonl: exists already"):
        corpus.export_sentences(tmp_path / "said.jsonl")
    assert (tmp_path / "said.jsonl").read_text() == "mine\n"


def test_the_command_writes_what_is_said(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "said.jsonl"
    assert main(["features", "sentences", "--corpus", str(corpus.location), "--out", str(out)]) == 0
    assert f"{out}: what is said in {len(corpus.records())} videos" in capsys.readouterr().out
    assert sorted(read_sentences(out)) == sorted(record.video_id for record in corpus.records())
