"""Systems with all or some of the methods: what they are asked, and which metrics they get."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.conftest import RELEASES
from tests.tasks.released_forms import FORMS, spoken_task

from whenabouts.types import UsageError, Video
from whenabouts_bench.harness import running
from whenabouts_bench.harness.answers import scores_of_clips
from whenabouts_bench.harness.rejection import rejection_of
from whenabouts_bench.harness.running import run_task
from whenabouts_bench.harness.system import BenchQuery, BenchVideo, methods_of
from whenabouts_bench.harness.task import task_named
from whenabouts_bench.harness.videos import videos_in

CHARADES, UNTRUTH, QVH, POOLS = (
    task_named(name) for name in ("charades-sta", "untruth-charades-id", "qvhighlights", "mvmr-tacos")
)


class Base:
    """Keeps the videos, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[BenchQuery]]] = []

    def index(self, videos: Sequence[BenchVideo]) -> None:
        self.videos = list(videos)


class Searching(Base):
    """Finds the spoken moment of every query by its number, and a wrong one behind it."""

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        self.asked.append(("search", list(queries)))
        return [[(query.id[:5], 20.0, 34.0, 2.0), ("TLK00", 0.0, 9.0, 1.0)] for query in queries]


class Grounding(Base):
    """Answers in the given video only."""

    def ground(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        self.asked.append(("ground", list(queries)))
        return [[(query.videos[0], 20.0, 34.0, 1.0)] for query in queries]


class RankingVideos(Base):
    """Ranks videos, with how sure it is."""

    def rank_videos(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        return [[(query.id[:5], 1.0, 0.8), ("TLK00", 0.5, 0.1)] for query in queries]


class ScoringClips(Base):
    """Scores clips of two seconds."""

    def score_clips(self, queries: Sequence[BenchQuery]) -> list[dict[str, Any]]:
        return [{video.id: np.arange(75) == 3 for video in self.videos} for _ in queries]


def measured(results: Any) -> set[str]:
    return {name for name, told in results.metrics.items() if told.mean is not None}


def test_a_system_that_searches_gets_all_metrics(tmp_path: Path) -> None:
    system = Searching()
    results = run_task(CHARADES, system, spoken_task(tmp_path), factory="mine.py:Searching")
    assert results.metrics["R@1,IoU=0.7"].mean == results.metrics["SVMR mIoU"].mean == 1.0
    assert results.metrics["VR R@1"].mean == 1.0 and not results.not_honoured
    assert [way for way, _ in system.asked] == ["search", "search"]
    assert [query.videos for query in system.asked[0][1]] == [()] * 4
    assert system.asked[1][1][0].videos == ("TLK00",)
    assert (results.queries, results.videos, results.missing) == (4, 4, 0)
    assert results.system.name == "Searching" and results.task.task == "charades-sta@1"
    lines = system.videos[1].lines
    assert [line[2] for line in lines][1] == "listen, somebody plays the violin"
    assert results.rejection is None


def test_a_system_that_grounds_gets_the_metrics_of_given_videos(tmp_path: Path) -> None:
    results = run_task(CHARADES, Grounding(), spoken_task(tmp_path))
    assert {name.split()[0] for name in measured(results)} == {"SVMR"}
    assert "R@1,IoU=0.5" in results.not_honoured and "VR R@1" in results.not_honoured


def test_a_system_that_grounds_answers_pools_video_by_video(tmp_path: Path) -> None:
    FORMS["mvmr-tacos"](tmp_path)
    system = Grounding()
    results = run_task(POOLS, system, tmp_path)
    assert "R@1,IoU=0.5" in measured(results)
    assert all(len(query.videos) == 1 for _, queries in system.asked for query in queries)
    assert len(system.asked[0][1]) == 5


def test_a_system_that_ranks_videos_gets_the_metrics_of_videos(tmp_path: Path) -> None:
    results = run_task(CHARADES, RankingVideos(), spoken_task(tmp_path))
    assert measured(results) == {"VR R@1", "VR R@5", "VR R@10", "VR R@100"}
    assert results.metrics["VR R@1"].mean == 1.0
    assert results.rejection is not None
    error = results.rejection.metrics["ECE"]
    assert error is not None and error.mean == pytest.approx(0.2)
    assert results.answers["VR"]["TLK01#0"][0] == ("TLK01", None, None, 1.0)


def test_a_system_that_scores_clips_gets_highlights(tmp_path: Path) -> None:
    RELEASES["qvhighlights"](tmp_path)
    results = run_task(QVH, ScoringClips(), tmp_path)
    assert measured(results) == {f"HL {name},saliency={g}" for name in ("mAP", "Hit@1") for g in (2, 3, 4)}
    assert "R@1,IoU=0.5" in results.not_honoured
    assert len(results.clip_scores["100"]) == 75


def test_a_system_without_a_way_to_answer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs index"):
        methods_of(Base())
    RELEASES["qvhighlights"](tmp_path)
    with pytest.raises(UsageError, match="rank_videos cannot answer qvhighlights"):
        run_task(QVH, RankingVideos(), tmp_path)


class Silent(Searching):
    """Finds nothing for most queries."""

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        rows = super().search(queries, k)
        return [found if query.id == "TLK02#0" else [] for query, found in zip(queries, rows, strict=True)]


def test_queries_without_an_answer_count_as_zero_and_are_counted(tmp_path: Path) -> None:
    results = run_task(CHARADES, Silent(), spoken_task(tmp_path))
    assert results.missing == 3 and results.metrics["R@1,IoU=0.5"].mean == 0.25


class Doubting(Base):
    """Grounds with the probability that its video answers; it knows which do."""

    def ground(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        def probability(query: BenchQuery) -> float:
            return (
                0.9
                if query.id.removeprefix("test").replace("@V", "=") in ("0=0", "1=1", "2=2", "3=3")
                else 0.1
            )

        return [[(query.videos[0], 2.0, 9.5, 0.0, probability(query))] for query in queries]


def test_rejection_is_measured_with_its_interval(tmp_path: Path) -> None:
    FORMS["untruth-charades-id"](tmp_path)
    results = run_task(UNTRUTH, Doubting(), tmp_path)
    assert results.queries == 4 and results.left_out == {"queries are not judged": 4}
    rejection = results.rejection
    assert rejection is not None and (rejection.answerable, rejection.unanswerable) == (4, 4)
    means = {name: told.mean for name, told in rejection.metrics.items() if told is not None}
    assert means == pytest.approx({"AUROC": 1.0, "false match at 95 % recall": 0.0, "ECE": 0.1})


def rows_of(*rows: Any) -> Any:
    class Broken(Base):
        def search(self, queries: Sequence[BenchQuery], k: int) -> Any:
            return [list(rows)] * len(queries)

    return Broken()


@pytest.mark.parametrize(
    "row",
    [
        ("TLK00", 3.0, 2.0, 1.0),
        ("TLK00", -1.0, 2.0, 1.0),
        ("TLK00", 1.0, 2.0),
        ("TLK00", 1.0, 2.0, float("nan")),
        ("TLK00", 1.0, 10**400, 1.0),
        ("TLK00", 1.0, 2.0, 1.0, 1.5),
        (7, 1.0, 2.0, 1.0),
        "TLK00",
        None,
    ],
)
def test_what_is_no_row_is_refused_with_its_query(row: Any, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"query 'TLK00#0': .* is not a row; accepted: \(video id, start, end"
    ):
        run_task(CHARADES, rows_of(row), spoken_task(tmp_path))


@pytest.mark.parametrize(
    "scores", [None, [None], [{"V": "loud"}], [{"V": [[1.0]]}], [{"V": [float("nan")]}], [{"V": 3.0}]]
)
def test_scores_of_another_form_are_refused(scores: Any) -> None:
    with pytest.raises(UsageError, match="accepted: for each of 1 queries"):
        scores_of_clips([BenchQuery("q", "a", ("V",))], scores, "mine")


def test_queries_that_the_protocol_leaves_out_do_not_count_for_calibration(tmp_path: Path) -> None:
    class Sure(Base):
        def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
            return [[(query.id.partition("#")[0], 10.0, 20.0, 1.0, 1.0)] for query in queries]

    FORMS["mvmr-tacos"](tmp_path)
    results = run_task(POOLS, Sure(), tmp_path)
    assert results.left_out and results.rejection is not None
    assert results.rejection.answerable == results.queries
    error = results.rejection.metrics["ECE"]
    assert error is not None and error.mean == pytest.approx(1 - (results.metrics["R@1,IoU=0.5"].mean or 0))


def test_rows_that_are_no_list_are_refused(tmp_path: Path) -> None:
    class Nothing(Base):
        def search(self, queries: Sequence[BenchQuery], k: int) -> Any:
            return [None] * len(queries)

    with pytest.raises(UsageError, match="returns None; accepted: a list of rows"):
        run_task(CHARADES, Nothing(), spoken_task(tmp_path))


@pytest.mark.parametrize(
    ("answers", "said"),
    [([], "returns 0 lists for 5 queries"), ([None] * 5, r"'s30-d21\.avi#0': returns None")],
)
def test_a_system_that_grounds_returns_a_list_for_each_video_of_a_pool(
    answers: list[Any], said: str, tmp_path: Path
) -> None:
    class Faulty(Base):
        def ground(self, queries: Sequence[BenchQuery], k: int) -> list[Any]:
            return answers

    FORMS["mvmr-tacos"](tmp_path)
    with pytest.raises(UsageError, match=said):
        run_task(POOLS, Faulty(), tmp_path)


def test_no_more_rows_are_kept_than_the_task_asks(tmp_path: Path) -> None:
    results = run_task(replace(CHARADES, depth=1), Searching(), spoken_task(tmp_path))
    assert results.answers["VCMR"]["TLK03#0"] == [("TLK03", 20.0, 34.0, 2.0)]


def test_probabilities_are_those_of_the_first_list(tmp_path: Path) -> None:
    class Surer(Base):
        def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
            return [[("TLK00", 1.0, 2.0, 1.0, 0.9 if query.videos else 0.25)] for query in queries]

    results = run_task(CHARADES, Surer(), spoken_task(tmp_path))
    assert set(results.answers) == {"VCMR", "SVMR"} and set(results.probability.values()) == {0.25}


def test_the_share_of_unjudged_answers_is_measured_where_judgements_come_from_pools(tmp_path: Path) -> None:
    class Far(Base):
        def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
            return [[(self.videos[0].id, 5000.0, 5001.0, 1.0)] for _ in queries]

    FORMS["tvr-ranking"](tmp_path)
    results = run_task(task_named("tvr-ranking"), Far(), tmp_path)
    assert results.unjudged is not None and results.unjudged["nDCG@20,IoU=0.5"] == 1.0


def test_a_query_without_an_answer_is_drawn_with_its_given_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def watched(*given: Any) -> Any:
        drawn.append(given[-1])
        return rejection_of(*given)

    monkeypatch.setattr(running, "rejection_of", watched)
    FORMS["untruth-charades-id"](tmp_path)
    run_task(UNTRUTH, Doubting(), tmp_path)
    (clusters,) = drawn
    assert np.unique(clusters, return_counts=True)[1].tolist() == [2] * 4


def test_a_file_is_found_by_an_id_that_is_its_whole_name(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.srt", "b.vtt"):
        (tmp_path / name).touch()
    whole, bare = videos_in(tmp_path, [Video("a.mp4", None), Video("b", None)])
    assert (whole.path, whole.transcript) == (tmp_path / "a.mp4", tmp_path / "a.srt")
    assert bare.transcript == tmp_path / "b.vtt"


def test_the_nearest_file_is_taken_whatever_its_ending_and_no_folder(tmp_path: Path) -> None:
    for name in ("sub/a.mkv", "sub/a.vtt", "sub/c.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "c.mp4").mkdir()
    for name in ("a.mp4", "a.srt"):
        (tmp_path / name).touch()
    several, behind_a_folder = videos_in(tmp_path, [Video("a", None), Video("c", None)])
    assert (several.path, several.transcript) == (tmp_path / "a.mp4", tmp_path / "a.srt")
    assert behind_a_folder.path == tmp_path / "sub/c.mp4"


def test_too_few_lists_are_refused(tmp_path: Path) -> None:
    class Short(Base):
        def search(self, queries: Sequence[BenchQuery], k: int) -> Any:
            return [[]]

    with pytest.raises(UsageError, match="returns 1 lists for 4 queries"):
        run_task(CHARADES, Short(), spoken_task(tmp_path))


def test_rows_outside_the_given_videos_are_dropped(tmp_path: Path) -> None:
    results = run_task(CHARADES, Searching(), spoken_task(tmp_path))
    assert {row[0] for row in results.answers["SVMR"]["TLK03#0"]} == {"TLK03"}


def test_cost_is_measured_and_names_no_host(tmp_path: Path) -> None:
    import platform

    class Sized(Searching):
        def index_bytes(self) -> int:
            return 1200

    results = run_task(CHARADES, Sized(), spoken_task(tmp_path))
    assert results.cost["hours of video"] == pytest.approx(4 / 60)
    assert results.cost["bytes per hour of video"] == pytest.approx(18_000)
    assert results.cost["ms per query"] is not None
    assert platform.node() not in str(results.machine)
    assert results.machine["cores"]


class Cards:
    """As much of `torch.cuda` as is asked, for two cards of which an index occupies one."""

    def __init__(self) -> None:
        self.reserved, self.asked_to_wait = [0, 7], 0

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def device_count(self) -> int:
        return 2

    def reset_peak_memory_stats(self, device: int) -> None:
        self.reserved[device] = 0

    def max_memory_reserved(self, device: int) -> int:
        return self.reserved[device]

    def synchronize(self, device: int) -> None:
        self.asked_to_wait += 1

    def get_device_name(self, device: int) -> str:
        return "a card"


def test_gpu_seconds_are_those_for_which_cards_are_occupied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    cards = Cards()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cards))

    class OnOneCard(Searching):
        def index(self, videos: Any) -> None:
            super().index(videos)
            cards.reserved[1] = 1 << 20
            time.sleep(0.02)

    results = run_task(CHARADES, OnOneCard(), spoken_task(tmp_path))
    assert results.cost["GPU seconds per hour of video"] >= 0.02 / (4 / 60)  # type: ignore[operator]
    assert results.cost["GPU ms per query"] == 0, "searching occupied none"
    assert cards.asked_to_wait == 1
    assert results.machine["graphics"] == "a card"


def test_without_a_gpu_no_gpu_seconds_are_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    results = run_task(CHARADES, Searching(), spoken_task(tmp_path))
    assert results.cost["GPU seconds per hour of video"] is None
    assert results.machine["graphics"] is None


def test_transcripts_of_tvr_are_read_from_its_file(tmp_path: Path) -> None:
    RELEASES["tvr"](tmp_path)
    said = '{"vid_name": "val_s01e01_seg02_clip_01", "sub": [{"start": 1.0, "end": 2.5, "text": "Hello."}]}\n'
    (tmp_path / "tvqa_preprocessed_subtitles.jsonl").write_text(said)
    (tmp_path / "older").mkdir()
    (tmp_path / "older/tvqa_preprocessed_subtitles.jsonl").write_text(said.replace("Hello", "Bye"))
    system = Grounding()
    run_task(task_named("tvr"), system, tmp_path)
    assert {video.id: video.lines for video in system.videos if video.lines} == {
        "val_s01e01_seg02_clip_01": ((1.0, 2.5, "Hello."),)
    }
