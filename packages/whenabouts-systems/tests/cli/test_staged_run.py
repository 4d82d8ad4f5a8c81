"""Two systems in one command: staged runs, any retriever with any localizer, lists of other programs."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import msgspec
import numpy as np
import pytest
import torch
from tests.small_split import CLIPS, QUERIES, VIDEOS, write_split

from whenabouts.cli import calibrate
from whenabouts.cli.main import build_parser
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.cli import evaluate
from whenabouts_systems.cli import explain, run
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.staged import write_stages
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment

_SUB_WIDTH = 5
_SMALL = {
    "hidden": 16,
    "heads": 2,
    "feedforward": 32,
    "span_hidden": 8,
    "clusters": 4,
    "initializer_range": 0.3,
}
_MMN = {"map_layers": 1, "pooling_counts": (CLIPS - 1,)}
_SILENT = "v3"
"""The video whose subtitles cover nothing."""

Called = Callable[..., Path]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features with two streams, and the folders of some systems."""
    folder = tmp_path_factory.mktemp("staged")
    features = write_split(folder / "features")
    random = np.random.default_rng(3)
    with h5py.File(features / "sub.h5", "w") as sub:
        for video in range(VIDEOS):
            rows = random.normal(size=(CLIPS, _SUB_WIDTH)).astype(np.float32)
            sub[f"v{video}"] = np.zeros_like(rows) if f"v{video}" == _SILENT else rows
    told = (features / "test.jsonl").read_text().replace("the same words", "she laughs", 1)
    (features / "test.jsonl").write_text(told)
    one = (features / "tiny.toml").read_text()
    both = one.replace('{ vision = "vision.h5" }', '{ vision = "vision.h5", sub = "sub.h5" }')
    (features / "both.toml").write_text(both)
    save(features, folder / "ms_sl", "ms_sl", "tiny")
    save(features, folder / "mmn", "mmn", "tiny", **_MMN)
    save(features, folder / "conquer", "conquer", "both")
    save(features, folder / "squidnet", "squidnet", "both", measure="moment_video")
    save(features, folder / "prem" / "prem_retriever", "prem_retriever", "both")
    save(features, folder / "prem" / "prem_localizer", "prem_localizer", "both")
    write_stages(folder / "prem", retriever="prem_retriever", localizer="prem_localizer")
    return folder


def save(features: Path, place: Path, system: str, experiment: str, **more: Any) -> Path:
    """A checkpoint of random weights, as a training leaves it."""
    told = load_experiment(features / f"{experiment}.toml")
    with ExperimentData.open(told.data, told.features, features, splits=("test",)) as material:
        inputs = material.inputs
    known = {field.name for field in fields(config_of(system, {}))}
    settings = {key: value for key, value in _SMALL.items() if key in known} | more
    widths = {name: stream.width for name, stream in inputs.streams.items()}
    torch.manual_seed(4)
    config = config_of(system, {"streams": widths, "query_width": inputs.query.width, **settings})
    trained = Trained(system, new_model(system, config).eval(), inputs, Decoding(max_clips=4, top_videos=3))
    trained.save_pretrained(place)
    (place / "experiment.toml").write_text(told.to_toml())
    return place


def called(verb: Any, *more: str | Path) -> int:
    name = verb.__name__.rsplit(".", 1)[-1]
    options = build_parser([name]).parse_args([name, "--device", "cpu", *map(str, more)])
    return int(options.run(options))


@pytest.fixture
def ran(place: Path, tmp_path: Path) -> Called:
    """Runs the command; the file that it writes."""

    def here(*more: str | Path, name: str = "out.jsonl") -> Path:
        out = tmp_path / name
        assert called(run, "--features", place / "features", "--out", out, "--force", *more) == 0
        return out

    return here


def lines(path: Path) -> dict[str, list[dict[str, Any]]]:
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["query_id"]: line["moments"] for line in read}


def videos(path: Path) -> dict[str, list[str]]:
    """The videos of each query's moments, in the order of their best ones."""
    return {
        name: list(dict.fromkeys(one["video_id"] for one in found)) for name, found in lines(path).items()
    }


def spot(moment: dict[str, Any]) -> tuple[Any, ...]:
    return moment["video_id"], moment["start"], moment["end"]


def write_lists(place: Path, lists: dict[str, list[list[Any]]]) -> Path:
    """HERO's lists as CONQUER's release has them: a folder, and the numbers of all videos beside it."""
    lmdb = pytest.importorskip("lmdb")
    place.mkdir(parents=True)
    with (
        lmdb.open(str(place), map_size=1 << 24) as environment,
        environment.begin(write=True) as writing,
    ):
        for query_id, entries in lists.items():
            writing.put(query_id.encode(), msgspec.msgpack.encode(entries))
    numbers = {f"v{video}": [15.5, 100 + video] for video in range(VIDEOS)}
    (place.parent / "tvr_video2dur_idx.json").write_text(json.dumps({"val": numbers}))
    return place


def hero_lists() -> dict[str, list[list[Any]]]:
    """Four videos for each query, of six; scores exp(20 * cosine), best first."""
    random = np.random.default_rng(8)
    lists = {}
    for query in range(QUERIES):
        cosines = np.sort(random.uniform(-0.1, 0.4, 4))[::-1]
        chosen = random.permutation(VIDEOS)[:4]
        lists[f"q{query}"] = [
            [int(100 + video), float(np.exp(20 * cosine)), 0, 3]
            for video, cosine in zip(chosen, cosines, strict=True)
        ]
    return lists


@pytest.mark.slow
def test_a_staged_run_answers_as_its_two_systems_do(ran: Called, place: Path, capsys: Any) -> None:
    staged = ran("--checkpoint", place / "prem", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["checkpoint"] == str(place / "prem")
    assert told["retriever"] == str(place / "prem" / "prem_retriever")
    first, second = place / "prem" / "prem_retriever", place / "prem" / "prem_localizer"
    named = ran("--retriever", first, "--localizer", second, name="named.jsonl")
    assert staged.read_bytes() == named.read_bytes()
    assert all(len(found) == 3 for found in videos(staged).values())
    ranked = ran("--checkpoint", first, "--task", "vr", name="vr.jsonl")
    best = {query: [one["video_id"] for one in found[:3]] for query, found in lines(ranked).items()}
    assert {query: set(found) for query, found in videos(staged).items()} == {
        query: set(found) for query, found in best.items()
    }


def test_a_video_that_has_a_score_of_its_own_is_ranked_by_it(
    ran: Called, place: Path, tmp_path: Path
) -> None:
    """SQuiDNet looks where it is told to, and what the list says of its videos counts nowhere."""
    names = [f"v{number}" for number in range(3)]
    found = []
    for scores in ((3.0, 2.0, 1.0), (1.0, 2.0, 3.0)):
        moments = [{"video_id": name, "score": score} for name, score in zip(names, scores, strict=True)]
        lists = [json.dumps({"query_id": f"q{query}", "moments": moments}) for query in range(QUERIES)]
        (tmp_path / "lists.jsonl").write_text("\n".join(lists) + "\n")
        found.append(
            ran("--retriever", tmp_path / "lists.jsonl", "--localizer", place / "squidnet").read_text()
        )
    assert found[0] == found[1]
    assert set().union(*videos(tmp_path / "out.jsonl").values()) == set(names)


@pytest.mark.slow
def test_who_answered_is_told(ran: Called, place: Path, tmp_path: Path, capsys: Any) -> None:
    hero = write_lists(tmp_path / "data" / "val_top100", hero_lists())
    listed = ("--retriever", hero, "--localizer", place / "conquer")
    for options, who in (
        (("--checkpoint", place / "prem"), "prem_retriever + prem_localizer"),
        (("--checkpoint", place / "prem", "--task", "svmr"), "prem_localizer"),
        (("--checkpoint", place / "prem", "--task", "vr"), "prem_retriever"),
        (("--checkpoint", place / "mmn", "--task", "svmr"), "mmn"),
        (listed, f"{hero} + conquer"),
        ((*listed, "--task", "vr"), str(hero)),
        (("--checkpoint", place / "prem", "--segments", "4"), "prem_retriever + prem_localizer"),
    ):
        ran(*options, "--json")
        assert json.loads(capsys.readouterr().out)["system"] == who


def test_the_command_to_go_on_with_measures_what_was_written(ran: Called, place: Path, capsys: Any) -> None:
    """Not every format says that its moments are of given videos."""
    for task, metrics in (("svmr", {"SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7"}), ("vr", {"VR R@1"})):
        ran("--checkpoint", place / "prem", "--task", task, "--json")
        _, verb, *options = shlex.split(json.loads(capsys.readouterr().out)["evaluate"])
        parser = argparse.ArgumentParser()
        evaluate.add_parser(parser.add_subparsers())
        told = parser.parse_args([verb, *options, "--json"])
        assert told.run(told) == 0
        found = json.loads(capsys.readouterr().out)["metrics"]
        assert metrics <= set(found)
        assert {name.split()[0] for name in found} == {task.upper()}


@pytest.mark.slow
def test_a_staged_run_ranks_as_many_videos_as_its_retriever_does(
    ran: Called, place: Path, tmp_path: Path
) -> None:
    """Its localizer looks into few; that is no bound on the list of videos."""
    folder = tmp_path / "few"
    shutil.copytree(place / "prem", folder)
    told = json.loads((folder / "prem_localizer" / "config.json").read_text())
    told["decoding"]["top_videos"] = 2
    (folder / "prem_localizer" / "config.json").write_text(json.dumps(told))
    videos_alone = ran("--checkpoint", folder, "--task", "vr", name="vr.jsonl")
    retriever = ran("--checkpoint", folder / "prem_retriever", "--task", "vr", name="first.jsonl")
    assert videos_alone.read_bytes() == retriever.read_bytes()
    assert {len(found) for found in videos(videos_alone).values()} == {3}
    assert {len(found) for found in videos(ran("--checkpoint", folder)).values()} == {2}
    all_lists = json.loads(ran("--checkpoint", folder, name="all.json").read_text())
    assert {len(one["predictions"]) for one in all_lists["VR"]} == {3}
    assert {len({row[0] for row in one["predictions"]}) for one in all_lists["VCMR"]} == {2}
    one = ran("--checkpoint", folder, "--task", "vr", "--top-videos", "1", name="one.jsonl")
    assert {len(found) for found in videos(one).values()} == {1}


def test_a_list_of_videos_comes_back_whole(ran: Called, place: Path, tmp_path: Path) -> None:
    lists = hero_lists()
    hero = write_lists(tmp_path / "data" / "val_top100", lists)
    found = videos(ran("--retriever", hero, "--localizer", place / "conquer", "--task", "vr"))
    assert found == {name: [f"v{entry[0] - 100}" for entry in some] for name, some in lists.items()}


def test_roles_the_wrong_way_round_are_told(ran: Called, place: Path, tmp_path: Path) -> None:
    """Of a `system.json` that somebody wrote, and of options."""
    folder = tmp_path / "swapped"
    shutil.copytree(place / "prem", folder)
    write_stages(folder, retriever="prem_localizer", localizer="prem_retriever")
    with pytest.raises(FormatError, match=r"system\.json: names retriever and localizer the wrong way round"):
        ran("--checkpoint", folder)
    with pytest.raises(FormatError, match="the wrong way round"):
        called(explain, "--checkpoint", folder, "--features", place / "features", "--query-id", "q1")
    for retriever in ("prem_retriever", str(tmp_path / "data" / "val_top100")):
        if "/" in retriever:
            write_lists(Path(retriever), hero_lists())
        first = folder / retriever
        with pytest.raises(
            UsageError, match=r"prem_retriever\) cannot find moments in the videos that .* chooses"
        ):
            ran("--localizer", folder / "prem_retriever", "--retriever", first)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.slow
def test_a_retriever_that_is_named_wins(ran: Called, place: Path) -> None:
    own = ran("--checkpoint", place / "prem")
    other = ran("--checkpoint", place / "prem", "--retriever", place / "ms_sl", name="other.jsonl")
    localizer = place / "prem" / "prem_localizer"
    same = ran("--localizer", localizer, "--retriever", place / "ms_sl", name="same.jsonl")
    assert other.read_bytes() == same.read_bytes() != own.read_bytes()


def test_a_staged_run_as_retriever_is_its_retriever(ran: Called, place: Path) -> None:
    staged = ran("--localizer", place / "conquer", "--retriever", place / "prem")
    plain = place / "prem" / "prem_retriever"
    assert (
        staged.read_bytes()
        == ran("--localizer", place / "conquer", "--retriever", plain, name="b.jsonl").read_bytes()
    )


def test_mmn_looks_into_the_five_videos_that_ms_sl_finds_best(ran: Called, place: Path) -> None:
    ranked = ran("--checkpoint", place / "ms_sl", "--task", "vr", "--top-videos", "5", name="vr.jsonl")
    best = {query: {one["video_id"] for one in found} for query, found in lines(ranked).items()}
    both = ["--retriever", place / "ms_sl", "--localizer", place / "mmn"]
    found = ran(*both, "--top-videos", "5", "--spans", "1000")
    assert {query: set(names) for query, names in videos(found).items()} == best
    alone = ran("--checkpoint", place / "mmn", "--top-videos", "6", "--spans", "1000", name="mmn.jsonl")
    for query, moments in lines(alone).items():
        inside = {spot(one): one["score"] for one in moments if one["video_id"] in best[query]}
        # MMN gives videos no weight: its scores are its own.
        assert {spot(one): one["score"] for one in lines(found)[query]} == pytest.approx(inside, abs=1e-6)


def test_prems_localizer_takes_heros_lists(ran: Called, place: Path, tmp_path: Path) -> None:
    lists = hero_lists()
    hero = write_lists(tmp_path / "data" / "val_top100", lists)
    localizer = place / "prem" / "prem_localizer"
    weighed = ("--retriever-scores", "log", "--video-weight", "5")
    found = ran("--retriever", hero, "--localizer", localizer, "--top-videos", "2", *weighed)
    for query, names in videos(found).items():
        assert set(names) == {f"v{entry[0] - 100}" for entry in lists[query][:2]}
    spans = ran("--retriever", hero, "--localizer", localizer, "--video-weight", "0", name="spans.jsonl")
    moment = lines(found)["q0"][0]
    plain = {spot(one): one["score"] for one in lines(spans)["q0"]}
    said = {f"v{entry[0] - 100}": np.log(entry[1]) for entry in lists["q0"]}
    score = plain[spot(moment)] + 5 * said[moment["video_id"]]
    assert moment["score"] == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("name", ["lists.jsonl", "lists.trec", "moments.jsonl"])
def test_lists_of_any_format_feed_a_localizer_as_their_retriever_does(
    ran: Called, place: Path, tmp_path: Path, name: str
) -> None:
    first, localizer = place / "prem" / "prem_retriever", ("--localizer", place / "conquer")
    if name == "moments.jsonl":  # a video is as good as its best moment
        ran("--checkpoint", place / "mmn", "--retriever", first, "--video-weight", "1e6", name=name)
    else:
        form = name.rpartition(".")[2]
        ran("--checkpoint", first, "--task", "vr", "--format", form, name=name)
    listed = lines(ran("--retriever", tmp_path / name, *localizer, "--video-weight", "0", name="a.jsonl"))
    trained = lines(ran("--retriever", first, *localizer, "--video-weight", "0", name="b.jsonl"))
    assert {query: [*map(spot, some)] for query, some in listed.items()} == {
        query: [*map(spot, some)] for query, some in trained.items()
    }


def test_what_a_system_lacks_is_told_by_the_option_that_gives_it(place: Path, tmp_path: Path) -> None:
    features = ("--features", place / "features", "--out", tmp_path / "a.jsonl", "--task", "vcmr")
    for stage, remedy in (
        ("retriever", r"--localizer RUN\) finds moments"),
        ("localizer", r"--retriever RUN\) chooses videos"),
    ):
        with pytest.raises(UsageError, match=f"prem_{stage} cannot answer VCMR; .*{remedy}"):
            called(run, "--checkpoint", place / "prem" / f"prem_{stage}", *features)
    assert not (tmp_path / "a.jsonl").exists()


def test_a_localizer_alone_says_that_it_was_given_the_videos(
    place: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "a.jsonl"
    called(run, "--checkpoint", place / "mmn", "--features", place / "features", "--out", out, "--table")
    called(
        run,
        "--checkpoint",
        place / "prem" / "prem_localizer",
        "--features",
        place / "features",
        "--out",
        out,
        "--force",
        "--table",
    )
    assert (
        capsys.readouterr().out.count("this system finds moments in a given video; with --retriever RUN") == 1
    )
    assert json.loads(out.read_text().splitlines()[0])["task"] == "SVMR"


def test_explain_wants_a_trained_retriever(place: Path, tmp_path: Path) -> None:
    (tmp_path / "lists.jsonl").write_text("{}")
    with pytest.raises(UsageError, match=r"lists\.jsonl: .*trained"):
        called(
            explain,
            *("--checkpoint", place / "conquer", "--retriever", tmp_path / "lists.jsonl"),
            *("--features", place / "features", "--query-id", "q1"),
        )


def test_a_list_may_be_shorter_than_what_is_asked_for_and_empty(
    ran: Called, place: Path, tmp_path: Path
) -> None:
    lists = hero_lists() | {"q1": [[102, 5.0]], "q2": []}
    hero = write_lists(tmp_path / "data" / "val_top100", lists)
    found = videos(ran("--retriever", hero, "--localizer", place / "conquer", "--top-videos", "3"))
    assert [len(found[f"q{query}"]) for query in range(4)] == [3, 1, 0, 3]
    assert found["q1"] == ["v2"]


def test_repeated_videos_and_scores_out_of_order_are_told_and_the_scores_count(
    ran: Called, place: Path, tmp_path: Path, caplog: Any
) -> None:
    lists = hero_lists() | {"q1": [[102, 1.0], [104, 7.0], [102, 3.0], [105, 2.0]]}
    hero = write_lists(tmp_path / "data" / "val_top100", lists)
    with caplog.at_level(logging.WARNING, "whenabouts"):
        pair = ("--retriever", hero, "--localizer", place / "conquer", "--top-videos", "2")
        found = videos(ran(*pair))
    assert set(found["q1"]) == {"v4", "v2"}
    said = " ".join(caplog.messages)
    assert "the scores of 1 queries contradict the order of their lists" in said
    assert "1 times a video is repeated in a list; its best score counts" in said


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([[999, 1.0]], r"query 'q1': entry 1 names video number 999, .* does not have \(it has 6\)"),
        ([[100, 1.0], [101]], "query 'q1': entry 2 is not a video with a score"),
        ([[100, float("nan")]], "query 'q1': entry 1 has the score nan, not a finite number"),
        ([[100, "1"]], "query 'q1': entry 1 has the score 1, not a finite number"),
        ({"v": 1}, "query 'q1': holds a dict"),
    ],
)
def test_a_list_that_is_none_is_named_and_nothing_is_written(
    ran: Called, place: Path, tmp_path: Path, entries: Any, said: str
) -> None:
    hero = write_lists(tmp_path / "data" / "val_top100", hero_lists() | {"q1": entries})
    with pytest.raises(WhenaboutsError, match=said):
        ran("--retriever", hero, "--localizer", place / "conquer")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_query_without_a_list_and_a_video_of_another_corpus_are_named(
    ran: Called, place: Path, tmp_path: Path
) -> None:
    lists = hero_lists()
    del lists["q3"]
    hero = write_lists(tmp_path / "data" / "val_top100", lists)
    with pytest.raises(UsageError, match="has no videos for query 'q3'"):
        ran("--retriever", hero, "--localizer", place / "conquer")
    numbers = {"val": {f"w{video}": [15.5, 100 + video] for video in range(VIDEOS)}}
    (tmp_path / "data" / "tvr_video2dur_idx.json").write_text(json.dumps(numbers))
    with pytest.raises(UsageError, match=r"query 'q0': video 'w\d' is not among the 6 videos of the corpus"):
        ran("--retriever", hero, "--localizer", place / "conquer")
    assert not (tmp_path / "out.jsonl").exists()


def test_scores_without_a_logarithm_and_options_without_a_file_are_refused(
    ran: Called, place: Path, tmp_path: Path
) -> None:
    hero = write_lists(tmp_path / "data" / "val_top100", hero_lists() | {"q1": [[101, -0.5]]})
    with pytest.raises(
        UsageError, match=r"query 'q1': video 'v1' has the score -0\.5, which has no logarithm"
    ):
        ran("--retriever", hero, "--localizer", place / "conquer", "--retriever-scores", "log")
    with pytest.raises(UsageError, match="is for a --retriever that is a file"):
        ran("--checkpoint", place / "prem", "--retriever-scores", "log")


def test_a_localizer_that_reads_another_stream_than_there_is_is_refused(place: Path, tmp_path: Path) -> None:
    features = tmp_path / "features"
    features.mkdir()
    for name in ("query.h5", "vision.h5", "test.jsonl"):
        (features / name).write_bytes((place / "features" / name).read_bytes())
    with pytest.raises(WhenaboutsError, match=r"sub\.h5"):
        called(run, "--checkpoint", place / "prem", "--features", features, "--out", tmp_path / "a.jsonl")
    experiment = place / "features" / "tiny.toml"
    with pytest.raises(WhenaboutsError, match="sub") as caught:
        called(
            run,
            *("--checkpoint", place / "conquer", "--retriever", place / "ms_sl", "--features", features),
            *("--experiment", experiment, "--out", tmp_path / "a.jsonl"),
        )
    assert "vision" in str(caught.value)
    assert not (tmp_path / "a.jsonl").exists()


def test_a_retriever_must_choose_videos_and_read_the_same_queries(
    ran: Called, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"conquer \(conquer\) cannot choose videos; name a retriever"):
        ran("--localizer", place / "conquer", "--retriever", place / "conquer")


def test_subtitles_that_cover_nothing_are_a_stream_of_silence(ran: Called, place: Path) -> None:
    found = lines(ran("--checkpoint", place / "prem", "--top-videos", "6", "--spans", "1000"))
    silent = [one["score"] for moments in found.values() for one in moments if one["video_id"] == _SILENT]
    assert len(silent) > QUERIES
    assert np.isfinite(silent).all()


@pytest.fixture
def calibrated(place: Path) -> Path:
    """The staged run, calibrated."""
    options = ("--raw", "top", "--pool-size", "2", "--split", "test", "--iou", "0.01")
    both = ("--checkpoint", place / "prem", "--features", place / "features")
    assert called(calibrate, *both, *options, "--json") == 0
    return place / "prem"


@pytest.mark.slow
def test_a_staged_run_is_calibrated_as_a_pair(calibrated: Path, ran: Called, place: Path) -> None:
    told = json.loads((calibrated / "calibration.json").read_text())
    assert told["system"] == "prem_retriever + prem_localizer"
    sure = ran("--checkpoint", calibrated, "--confidence")
    assert all("confidence" in json.loads(line) for line in sure.read_text().splitlines())
    with pytest.raises(UsageError, match=r"another checkpoint|not with a retriever"):
        ran("--checkpoint", calibrated, "--confidence", "--retriever", place / "ms_sl")
    with pytest.raises(UsageError, match="not with another weight of the video's score"):
        ran("--checkpoint", calibrated, "--confidence", "--video-weight", "3")


@pytest.mark.slow
def test_explain_tells_words_of_the_retriever_and_borders_of_the_localizer(
    place: Path, capsys: Any, tmp_path: Path
) -> None:
    features = ("--features", place / "features", "--query-id", "q1", "--json")
    assert called(explain, "--checkpoint", place / "prem", "--out", tmp_path / "prem.png", *features) == 0
    (pair,) = json.loads(capsys.readouterr().out)["systems"]
    assert (tmp_path / "prem.png").stat().st_size > 10_000
    assert called(explain, "--checkpoint", place / "prem" / "prem_retriever", *features) == 0
    (first,) = json.loads(capsys.readouterr().out)["systems"]
    assert called(explain, "--checkpoint", place / "prem" / "prem_localizer", *features) == 0
    (second,) = json.loads(capsys.readouterr().out)["systems"]
    assert (pair["name"], pair["system"]) == ("prem", "prem_retriever + prem_localizer")
    assert set(pair["heard"]["weights"]) == {"vision", "sub"}
    assert pair["heard"] == first["heard"] != second["heard"]
    assert pair["borders"] == second["borders"]
    assert first["borders"] is None
    shares = pair["borders"]["stream_shares"]
    np.testing.assert_allclose(np.add(shares["vision"], shares["sub"]), 1, atol=2e-4)
    assert min(shares["vision"]) > 0 and len(set(shares["vision"])) == CLIPS
    assert pair["moments"][0]["video_id"] == first["moments"][0]["video_id"]
