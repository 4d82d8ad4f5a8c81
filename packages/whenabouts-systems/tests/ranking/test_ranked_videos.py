"""Lists of videos that any program made: what counts of them, and what is told."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.small_pairs import small_localizer
from tests.small_systems import WIDTH

from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.ranking import rank, ranker
from whenabouts_systems.ranking.candidates import Candidates, RankedVideos, is_run
from whenabouts_systems.ranking.encoded_corpus import encode_corpus


def written(path: Path, lists: dict[str, list[tuple[str, float]]]) -> Path:
    lines = (
        {"query_id": name, "moments": [{"video_id": video, "score": score} for video, score in rows]}
        for name, rows in lists.items()
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_lists_are_read_best_first(tmp_path: Path, caplog: Any) -> None:
    path = written(tmp_path / "a.jsonl", {"q": [("b", 3.0), ("a", 1.0)], "r": [("a", 2.0)], "s": []})
    with caplog.at_level(logging.WARNING, "whenabouts"):
        run = RankedVideos.of(formats.open_run(path))
    assert {name: (videos, scores.tolist()) for name, (videos, scores) in run.lists.items()} == {
        "q": (("b", "a"), [3.0, 1.0]),
        "r": (("a",), [2.0]),
        "s": ((), []),
    }
    assert not caplog.messages


def test_a_video_twice_counts_once_with_its_best_score_and_is_told(tmp_path: Path, caplog: Any) -> None:
    rows = [("b", 3.0), ("a", 2.5), ("b", 2.0), ("a", 1.0), ("c", 0.5)]
    path = written(tmp_path / "a.jsonl", {"q": rows, "r": [("a", 1.0)]})
    with caplog.at_level(logging.WARNING, "whenabouts"):
        run = RankedVideos.of(formats.open_run(path))
    assert run.lists["q"][0] == ("b", "a", "c")
    assert run.lists["q"][1].tolist() == [3.0, 2.5, 0.5]
    assert [message.split(": ", 1)[1] for message in caplog.messages] == [
        "2 times a video is repeated in a list; its best score counts"
    ]


def test_a_list_of_moments_stands_for_its_videos_and_tells_nothing(tmp_path: Path, caplog: Any) -> None:
    moments = [("a", 0.0, 4.0), ("b", 1.0, 3.0), ("a", 1.0, 2.0)]
    rows = [
        {"video_id": name, "start": start, "end": end, "score": 3.0 - at}
        for at, (name, start, end) in enumerate(moments)
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps({"query_id": "q", "moments": rows}) + "\n")
    with caplog.at_level(logging.WARNING, "whenabouts"):
        run = RankedVideos.of(formats.open_run(tmp_path / "a.jsonl"))
    assert run.lists["q"][0] == ("a", "b")
    assert run.lists["q"][1].tolist() == [3.0, 2.0]
    assert not caplog.messages


def test_scores_of_a_submission_count_where_they_contradict_its_order(tmp_path: Path, caplog: Any) -> None:
    told = {
        "video2idx": {"a": 0, "b": 1},
        "VR": [{"desc_id": 7, "desc": "", "predictions": [[0, 0, 0, 1.0], [1, 0, 0, 2.0]]}],
    }
    (tmp_path / "a.json").write_text(json.dumps(told))
    with caplog.at_level(logging.WARNING, "whenabouts"):
        run = RankedVideos.of(formats.open_run(tmp_path / "a.json"))
    assert run.lists["7"][0] == ("b", "a")
    assert "1 lists have scores that contradict their order; the scores count" in caplog.messages[0]


def test_logarithms_are_taken_where_there_are_any(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"q": [("b", 20.0), ("a", 0.5)]})
    run = RankedVideos.of(formats.open_run(path), logarithm=True)
    np.testing.assert_allclose(run.lists["q"][1], np.log([20.0, 0.5]))
    path = written(tmp_path / "b.jsonl", {"q": [("b", 20.0), ("a", 0.0)]})
    with pytest.raises(UsageError, match=r"b\.jsonl: query 'q': video 'a' has the score 0, .* no logarithm"):
        RankedVideos.of(formats.open_run(path), logarithm=True)


def test_a_file_and_a_folder_of_lmdb_are_lists_and_a_checkpoint_is_none(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    assert not is_run(tmp_path / "lists")
    (tmp_path / "lists" / "data.mdb").touch()
    assert is_run(tmp_path / "lists")
    assert is_run(tmp_path / "lists" / "data.mdb")
    assert not is_run("owner/name")


@pytest.mark.parametrize("listed", [True, False], ids=["after a list", "nothing chooses"])
def test_candidates_lie_on_the_device_of_the_localizer(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is read on the processor; a localizer on a GPU takes queries by where its candidates lie."""
    localizer = small_localizer()
    clips = ClipBatch({"subtitle": torch.randn(2, 6, WIDTH)}, torch.ones(2, 6, dtype=torch.bool))
    corpus = encode_corpus(localizer.model, lambda rows: clips, ["a", "b"], clips=[6, 6], clip_seconds=2.0)
    asked = localizer.model.encode_queries(
        QueryBatch(torch.randn(1, 4, WIDTH), torch.ones(1, 4, dtype=torch.bool))
    )
    monkeypatch.setattr(ranker, "encode_queries", lambda *_: asked.to("meta"))
    found: list[Candidates] = []

    def stops(model: Any, queries: Any, corpus: Any, candidates: Candidates, *_: Any, **__: Any) -> None:
        found.append(candidates)
        raise StopIteration

    monkeypatch.setattr(rank, "best_moments", stops)
    monkeypatch.setattr(ranker, "best_units", lambda scores, *_: Candidates(scores.long(), scores))
    localizer.model.to("meta")
    run = RankedVideos("a", {"q": (("b",), np.array([1.0]))}) if listed else None
    answering = ranker.Ranker(localizer, corpus, retriever=run)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(answering.answers(["q"], lambda _: asked, ["VCMR"], pools={"q": ["a", "b"]}))
    assert [one.device.type for one in (found[0].rows, found[0].scores)] == ["meta", "meta"]
