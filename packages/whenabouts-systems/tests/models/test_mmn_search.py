"""An indexed corpus searched with MMN: its cells' vectors are the keys, its answers those of plain loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.small_systems import WIDTH, Letters, inputs, write_talk

from whenabouts import Corpus
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.trained_search.even_grid import GridVideo, videos_on_grid
from whenabouts_systems.trained_search.search import trained_on

QUERY = "the penguin moves to the north"


@pytest.fixture(scope="module")
def corpus(unmeasured: None, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Nine transcripts of 40 to 50 seconds."""
    place = tmp_path_factory.mktemp("indexed")
    (place / "talks").mkdir()
    for number in range(9):
        write_talk(place / "talks", number)
    corpus = Corpus(place / "my.corpus", encoders=[Letters()], create=True)
    corpus.add(place / "talks", text=Letters(), processes=1)
    return corpus


@pytest.fixture()
def trained() -> Trained:
    """An MMN whose map has 8 cells of two clips."""
    torch.manual_seed(0)
    settings = {"streams": {"subtitle": WIDTH}, "query_width": WIDTH, "hidden": 16, "clips_per_cell": 2}
    model = new_model("mmn", config_of("mmn", {**settings, "pooling_counts": (3, 2), "map_layers": 2}))
    told = inputs(long_videos="even", max_clips=16, clips_per_cell=2)
    return Trained("mmn", model.eval(), told, Decoding(nms=0.5))


def grid_of(corpus: Corpus) -> list[GridVideo]:
    """The videos as clips of 2 seconds."""
    return list(videos_on_grid(corpus.store, ["subtitle"], 2.0, list(corpus.records())))


def one_by_one(corpus: Corpus, trained: Trained) -> list[tuple[float, str, float, float]]:
    """All moments of all videos, each video by itself, best first, by plain loops."""
    model, found = trained.model, []
    with torch.no_grad():
        asked = model.encode_queries(trained.inputs.queries(Letters().encode_tokens([QUERY])))
        for video in grid_of(corpus):
            encoding = model.encode_videos(trained.inputs.clips([video.streams]))
            spans = model.score_spans(asked, encoding).spans[0]
            for first, last in spans.isfinite().nonzero().tolist():
                seconds = video.duration / 8
                score = float(spans[first, last])
                found.append((score, video.record.video_id, first * seconds, (last + 1) * seconds))
    return sorted(found, reverse=True)


def test_the_answers_are_those_of_plain_loops(corpus: Corpus, trained: Trained) -> None:
    everything = one_by_one(corpus, trained)
    result = corpus.search(QUERY, 5, model=trained)
    assert len(result.moments) == 5
    best = everything[0]
    found = [(one.moment.video_id, one.moment.start, one.moment.end) for one in result.moments]
    assert found[0][0] == best[1]
    assert found[0][1:] == pytest.approx(best[2:])
    scores: dict[Any, float] = {(name, round(a, 6), round(b, 6)): score for score, name, a, b in everything}
    told = [one.score for one in result.moments]
    expected = [scores[name, round(a, 6), round(b, 6)] for name, a, b in found]
    np.testing.assert_allclose(told, expected, atol=1e-2)
    assert told == sorted(told, reverse=True)


def test_keys_are_the_cells_of_the_map(corpus: Corpus, trained: Trained) -> None:
    corpus.encode(trained)
    keys = trained_on(corpus, trained).localizer.prepare().keys
    assert dict(keys.info.streams) == {"moments": 8}
    cells = 8 + 7 + 6 + 5 + 2 + 1
    assert keys.count() == 9
    assert sum(len(one.packed) > 0 for one in keys.encodings(sorted(keys.marks()))) == 9
    encoding = trained.model.encode_videos(trained.inputs.clips([grid_of(corpus)[0].streams]))
    assert encoding.keys["moments"].shape == (1, cells, 8)


def test_a_key_of_many_lengths_stands_for_the_whole_video(corpus: Corpus, trained: Trained) -> None:
    corpus.encode(trained)
    keys = trained_on(corpus, trained).localizer.prepare().keys
    hits = keys.nearest("moments", np.ones(8, np.float32), 5)
    durations = {record.video_id: record.duration for record in corpus.store.videos()}
    assert hits.start.tolist() == [0.0] * 5
    assert hits.end.tolist() == [durations[name] for name in hits.video_ids]


def test_a_system_from_its_folder_answers_the_same(corpus: Corpus, trained: Trained, tmp_path: Path) -> None:
    place = trained.save_pretrained(tmp_path / "run")
    one, other = (corpus.search(QUERY, 3, model=which) for which in (trained, place))
    assert [found.moment for found in one.moments] == [found.moment for found in other.moments]


def test_a_system_with_a_text_encoder_of_its_own_reads_the_query_itself(
    corpus: Corpus, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *QUERY.split(), "beetle", "sleeps"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    sizes = {"vocab_size": len(words), "dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 12}
    settings = {"streams": {"subtitle": WIDTH}, "hidden": 16, "map_layers": 2, "text_encoder": str(tmp_path)}
    torch.manual_seed(0)
    model = new_model("mmn", config_of("mmn", {**settings, "text": sizes})).eval()
    told = inputs(long_videos="even", max_clips=8, tokenizer=str(tmp_path))
    trained = Trained("mmn", model, told, Decoding(nms=0.5))
    penguin, beetle = (corpus.search(text, 3, model=trained) for text in (QUERY, "the beetle sleeps"))
    assert len(penguin.moments) == len(beetle.moments) == 3
    assert [one.score for one in penguin.moments] != [one.score for one in beetle.moments]
