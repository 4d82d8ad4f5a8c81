"""`whenabouts run` as a person meets it: files, output, one-line errors."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from tests.hub_server import fetch_from_server

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_systems.cli import run
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.loop import validate

EXPERIMENT = """\
title = "tiny"
simulated = true
[data]
validation = "test.jsonl"
test = "test.jsonl"
[features]
query = "query.h5"
streams = { vision = "vision.h5" }
clip_seconds = 2.0
[model]
system = "xml"
hidden = 8
heads = 2
[training]
protocol = "vcmr"
"""
WIDTH, VIDEOS, QUERIES = 6, 5, 12


@pytest.fixture()
def features(tmp_path: Path) -> Path:
    return write_features(tmp_path / "features")


def write_features(folder: Path) -> Path:
    """Twelve queries, five videos of two to six clips."""
    folder.mkdir()
    random = np.random.default_rng(0)
    with h5py.File(folder / "query.h5", "w") as tokens, h5py.File(folder / "vision.h5", "w") as clips:
        for video in range(VIDEOS):
            clips[f"v{video}"] = random.normal(size=(2 + video, WIDTH)).astype(np.float32)
        for query in range(QUERIES):
            tokens[str(query)] = random.normal(size=(3, 4)).astype(np.float32)
    lines = [
        {
            "vid_name": f"v{query % VIDEOS}",
            "duration": 2.0 * (2 + query % VIDEOS) - 0.5,
            "desc": f"s {query}",
            "desc_id": query,
            "type": "v",
            "ts": [0, 2],
        }
        for query in range(QUERIES)
    ]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "tiny.toml").write_text(EXPERIMENT)
    return folder


@pytest.fixture()
def checkpoint(features: Path, tmp_path: Path) -> Path:
    return saved(features, tmp_path / "trained")


def saved(features: Path, place: Path, decoding: Decoding | None = None, *, system: str = "xml") -> Path:
    """A checkpoint with fresh weights, as a training leaves it."""
    experiment = load_experiment(features / "tiny.toml")
    with ExperimentData.open(experiment.data, experiment.features, features, splits=("test",)) as material:
        inputs = material.inputs
    config = config_of(system, {"streams": {"vision": WIDTH}, "query_width": 4, "hidden": 8, "heads": 2})
    torch.manual_seed(zlib.crc32(place.name.encode()))
    trained = Trained(system, new_model(system, config), inputs, decoding or Decoding(spans_per_query=50))
    trained.save_pretrained(place)
    (place / "experiment.toml").write_text(experiment.to_toml())
    return place


@pytest.fixture()
def ran(features: Path, checkpoint: Path, capsys: Any) -> Callable[..., dict[str, Any]]:
    """Runs the command on the checkpoint and gives the JSON that it prints."""

    def here(out: Path, *more: str) -> dict[str, Any]:
        assert called(features, checkpoint, "--out", str(out), "--json", *more) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    return here


def called(features: Path, checkpoint: Path, *more: str) -> int:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    command = ["run", "--checkpoint", str(checkpoint), "--features", str(features), "--device", "cpu", *more]
    options = parser.parse_args(command)
    return int(options.run(options))


def lines(path: Path) -> dict[str, list[dict[str, Any]]]:
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["query_id"]: line["moments"] for line in read}


def test_moments_of_the_corpus_are_written_and_can_be_evaluated(
    ran: Any, features: Path, tmp_path: Path, bare: Any
) -> None:
    told = ran(tmp_path / "a.jsonl")
    assert told["tasks"] == ["VCMR"]
    assert (told["queries"], told["videos"], told["simulated"]) == (QUERIES, VIDEOS, True)
    found = lines(tmp_path / "a.jsonl")
    assert set(found) == {str(query) for query in range(QUERIES)}
    for moments in found.values():
        scores = [moment["score"] for moment in moments]
        assert len(moments) == 50
        assert scores == sorted(scores, reverse=True)
        for moment in moments:
            assert 0 <= moment["start"] < moment["end"] <= 2.0 * (2 + int(moment["video_id"][1])) - 0.5
    evaluate = shlex.split(told["evaluate"])
    assert evaluate[:2] == ["whenabouts", "evaluate"]
    assert bare(*evaluate[1:]).json["queries"] == QUERIES


@pytest.mark.parametrize("task", ["svmr", "vr"])
def test_the_next_command_measures_the_task_also_where_the_protocol_is_of_another(
    ran: Any, checkpoint: Path, tmp_path: Path, bare: Any, task: str
) -> None:
    experiment = checkpoint / "experiment.toml"
    experiment.write_text(experiment.read_text().replace('"vcmr"', '"rvmr"'))
    told = ran(tmp_path / "a.jsonl", "--task", task)
    found = bare(*shlex.split(told["evaluate"])[1:]).json["metrics"]
    assert {name.split()[0] for name in found} == {task.upper()}


def test_a_checkpoint_of_somebody_else_makes_no_folder_here(
    ran: Any, checkpoint: Path, tmp_path: Path
) -> None:
    experiment = checkpoint / "experiment.toml"
    text = experiment.read_text()
    assert 'cache = ""' in text
    experiment.write_text(text.replace('cache = ""', f'cache = "{tmp_path / "made"}"'))
    ran(tmp_path / "a.jsonl")
    assert not (tmp_path / "made").exists()


def test_a_submission_holds_all_three_lists(ran: Any, tmp_path: Path) -> None:
    told = ran(tmp_path / "submission.json")
    assert (told["format"], told["tasks"]) == ("tvr", ["VCMR", "SVMR", "VR"])
    source = formats.open_run(tmp_path / "submission.json")
    assert set(source.tasks) == {"VCMR", "SVMR", "VR"}
    for block in source.blocks("SVMR"):
        videos = [block.video_ids[code] for code in block.video.tolist()]
        for at, query in enumerate(block.query_ids):
            rows = slice(block.offsets[at], block.offsets[at + 1])
            assert set(videos[rows]) == {f"v{int(query) % VIDEOS}"}


def test_a_metric_has_one_value_for_a_checkpoint_or_none(
    ran: Any, features: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """That of its model card, whichever file of answers is evaluated."""
    truth, trained = features / "test.jsonl", Trained.from_pretrained(checkpoint)
    experiment = load_experiment(features / "tiny.toml")
    with ExperimentData.open(experiment.data, experiment.features, features, splits=("test",)) as material:
        card = validate(trained, material.split("test"), experiment.training).means
    assert card["R@1,IoU=0.5"] != card["SVMR R@1,IoU=0.5"], "nothing to confuse"
    told: dict[str, set[str]] = {}
    for name, task in (
        ("all.json", ()),
        ("vcmr.jsonl", ()),
        ("svmr.jsonl", ("svmr",)),
        ("vr.jsonl", ("vr",)),
    ):
        ran(tmp_path / name, *(("--task", *task) if task else ()))
        result = evaluate(truth, tmp_path / name, protocol="vcmr")
        means = {metric: value for metric, value in result.means().items() if not np.isnan(value)}
        assert means == {metric: card[metric] for metric in means}
        told[name] = {metric.split()[0] if " " in metric else "VCMR" for metric in means}
    assert told == {
        "all.json": {"VCMR", "SVMR", "VR"},
        "vcmr.jsonl": {"VCMR"},
        "svmr.jsonl": {"SVMR"},
        "vr.jsonl": {"VR"},
    }


def test_a_query_without_a_moment_changes_no_answer_and_searches_the_corpus(
    ran: Any, features: Path, tmp_path: Path
) -> None:
    before = ran(tmp_path / "a.json"), ran(tmp_path / "a.jsonl")
    truth = [json.loads(line) for line in (features / "test.jsonl").read_text().splitlines()]
    for left in (truth[:1], truth):
        for line in left:
            line.pop("ts", None)
        (features / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in truth))
        after = ran(tmp_path / "b.json", "--force"), ran(tmp_path / "b.jsonl", "--force")
        assert [told["decoding"] for told in after] == [told["decoding"] for told in before]
        assert [told["tasks"] for told in after] == [["VCMR", "SVMR", "VR"], ["VCMR"]]
        assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()
        assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_a_pool_of_one_query_changes_no_answer_of_another(
    ran: Any, features: Path, checkpoint: Path, tmp_path: Path
) -> None:
    before = ran(tmp_path / "a.jsonl")
    (features / "own").mkdir()
    formats.write_annotations(formats.read_annotations(features / "test.jsonl"), features / "own", "jsonl")
    (features / "own" / "pools.jsonl").write_text('{"query_id": "0", "video_ids": ["v3", "v4"]}\n')
    settings = checkpoint / "experiment.toml"
    settings.write_text(settings.read_text().replace('"test.jsonl"', '"own"'))
    after = ran(tmp_path / "b.jsonl")
    assert after["decoding"] == before["decoding"]
    whole, pooled = lines(tmp_path / "a.jsonl"), lines(tmp_path / "b.jsonl")
    assert {moment["video_id"] for moment in pooled.pop("0")} == {"v3", "v4"}
    assert whole.pop("0") and pooled == whole


def test_each_task_alone_is_its_list_of_the_submission(ran: Any, tmp_path: Path) -> None:
    ran(tmp_path / "all.json")
    whole = json.loads((tmp_path / "all.json").read_text())
    names = {index: name for name, index in whole["video2idx"].items()}
    for task in ("vcmr", "svmr", "vr"):
        assert ran(tmp_path / f"{task}.jsonl", "--task", task)["tasks"] == [task.upper()]
        for entry in whole[task.upper()]:
            moments = lines(tmp_path / f"{task}.jsonl")[str(entry["desc_id"])]
            rows = [(m["video_id"], m.get("start", 0), m.get("end", 0), m["score"]) for m in moments]
            assert rows == [(names[row[0]], *row[1:]) for row in entry["predictions"]]


def test_options_change_the_decoding_of_the_checkpoint(ran: Any, tmp_path: Path) -> None:
    changes = "--decoding exclusive --min-clips 2 --max-clips 3 --top-videos 2 --spans 7 --nms 0.4"
    told = ran(tmp_path / "a.jsonl", *changes.split())
    expected = Decoding(2, 3, "exclusive", top_videos=2, spans_per_query=7, nms=0.4)
    assert Decoding.from_json(told["decoding"]) == expected
    for moments in lines(tmp_path / "a.jsonl").values():
        assert {moment["end"] - moment["start"] for moment in moments} <= {4.0, 6.0}
        assert len({moment["video_id"] for moment in moments}) <= 2
        assert len(moments) <= 7


def test_none_lifts_what_the_checkpoint_limits(
    features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = saved(features, tmp_path / "limited", Decoding(max_clips=2, nms=0.5))
    called(
        features,
        limited,
        "--out",
        str(tmp_path / "a.jsonl"),
        "--json",
        "--max-clips",
        "none",
        "--nms",
        "none",
    )
    told = json.loads(capsys.readouterr().out)["decoding"]
    assert (told["max_clips"], told["nms"]) == (None, None)
    called(features, limited, "--out", str(tmp_path / "b.jsonl"), "--json")
    told = json.loads(capsys.readouterr().out)["decoding"]
    assert (told["max_clips"], told["nms"]) == (2, 0.5)


def test_a_person_is_told_what_was_written_and_what_to_do_next(
    features: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--table")
    told = capsys.readouterr().out
    assert "a.jsonl (jsonl): VCMR of 12 queries among 5 videos, by xml (simulated features)" in told
    assert "whenabouts evaluate vcmr --truth" in told


def test_encoded_videos_may_lie_on_a_disk(ran: Any, tmp_path: Path) -> None:
    ran(tmp_path / "a.jsonl")
    ran(tmp_path / "b.jsonl", "--on-disk", str(tmp_path / "encoded"))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "encoded" / "corpus.json").is_file()


def test_another_checkpoint_may_choose_the_videos(
    ran: Any, features: Path, checkpoint: Path, tmp_path: Path
) -> None:
    ran(tmp_path / "a.jsonl", "--task", "vr")
    ran(tmp_path / "b.jsonl", "--task", "vr", "--retriever", str(checkpoint))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    other = saved(features, tmp_path / "other")
    ran(tmp_path / "c.jsonl", "--task", "vr", "--retriever", str(other))
    assert (tmp_path / "c.jsonl").read_bytes() != (tmp_path / "b.jsonl").read_bytes()


def test_an_imported_checkpoint_needs_an_experiment_that_names_the_files(
    features: Path, checkpoint: Path, tmp_path: Path
) -> None:
    (checkpoint / "experiment.toml").unlink()
    with pytest.raises(UsageError, match=r"has no experiment\.toml.*--experiment"):
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"))
    named = ("--experiment", str(features / "tiny.toml"))
    assert called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--json", *named) == 0


def test_annotations_may_lie_elsewhere(ran: Any, features: Path, tmp_path: Path) -> None:
    moved = tmp_path / "annotations"
    moved.mkdir()
    (features / "test.jsonl").rename(moved / "test.jsonl")
    told = ran(tmp_path / "a.jsonl", "--data", str(moved))
    assert str(moved / "test.jsonl") in told["evaluate"]


def test_the_next_command_names_the_file_of_a_data_set(
    ran: Any, features: Path, checkpoint: Path, tmp_path: Path, bare: Any
) -> None:
    (features / "test.jsonl").rename(features / "tvr_val_release.jsonl")
    (features / "val").mkdir()
    experiment = checkpoint / "experiment.toml"
    text = re.sub('(test|validation) = "test.jsonl"', r'\1 = "val"', experiment.read_text())
    experiment.write_text(text.replace('dataset = ""', 'dataset = "tvr"'))
    told = ran(tmp_path / "a.jsonl")
    assert f"--truth {features / 'tvr_val_release.jsonl'}" in told["evaluate"]
    assert bare(*shlex.split(told["evaluate"])[1:]).json["queries"] == QUERIES


def test_a_tilde_in_features_checkpoint_and_data_means_the_home_folder(
    features: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    trained = checkpoint / "experiment.toml"
    trained.write_text(trained.read_text().replace('folder = ""', 'folder = "~/features"'))
    given = (Path("~/features"), Path("~/trained"))
    assert called(*given, "--out", str(tmp_path / "a.jsonl"), "--json") == 0
    assert f"--truth {features / 'test.jsonl'}" in json.loads(capsys.readouterr().out)["evaluate"]
    for name in ("test.jsonl", "vision.h5"):
        with pytest.raises(WhenaboutsError, match=f"{name}: is read here and would be overwritten"):
            called(*given, "--out", str(features / name), "--force")


def test_features_of_another_encoder_are_refused_naming_both(
    features: Path, checkpoint: Path, tmp_path: Path
) -> None:
    trained = Trained.from_pretrained(checkpoint)
    vision = replace(trained.inputs.streams["vision"], encoder="clip", fingerprint="clip:1")
    replace(trained, inputs=replace(trained.inputs, streams={"vision": vision})).save_pretrained(checkpoint)
    with h5py.File(features / "vision.h5", "r+") as opened:
        for name in list(opened):
            rows = opened[name][:]
            del opened[name]
            opened[name] = np.hstack([rows, rows])
    with pytest.raises(WhenaboutsError, match=rf"(?s)vision\.h5.*{2 * WIDTH}.*{WIDTH}"):
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"))
    assert not (tmp_path / "a.jsonl").exists()


def test_without_a_test_split_the_validation_is_answered_and_said(
    features: Path, checkpoint: Path, tmp_path: Path, capsys: Any
) -> None:
    written = checkpoint / "experiment.toml"
    written.write_text(written.read_text().replace('\ntest = "test.jsonl"', '\ntest = ""'))
    assert called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["queries"] == QUERIES
    assert "names no test split: this is its validation split (--split)" in " ".join(printed.err.split())


def test_a_split_that_no_experiment_has_is_named(features: Path, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--split 'val': accepted: train, validation, test"):
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--split", "val")


def test_what_is_there_stays_where_a_run_fails(features: Path, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("before")
    trained = Trained.from_pretrained(checkpoint)
    with pytest.raises(UsageError, match="NaN"):
        for weight in trained.model.parameters():
            weight.data.fill_(float("nan"))
        trained.save_pretrained(checkpoint)
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--force")
    assert (tmp_path / "a.jsonl").read_text() == "before"
    assert [path.name for path in tmp_path.glob(".a.jsonl*")] == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--split", "train"), "names no judgements for train, only for validation, test"),
        (("--max-clips", "2.5"), "--max-clips '2.5': accepted: a whole number, or none"),
        (("--nms", "many"), "--nms 'many': accepted: a number, or none"),
        (("--min-clips", "0"), "min_clips is 0"),
        (("--device", "cuda:99"), "device 'cuda:99' is not available"),
        (("--format", "wav"), "--format 'wav': accepted: jsonl"),
        (("--retriever", "nowhere"), "nowhere"),
        (("--retriever-features", "elsewhere"), "--retriever-features is for a --retriever that is trained"),
        (
            ("--retriever", "RUN", "--task", "vr", "--retriever-scores", "log"),
            "--retriever-scores log is for a --retriever that is a file",
        ),
        (("--video-weight", "nan"), "--video-weight nan: accepted: a number from 0 to 1,000,000"),
        (("--video-weight", "inf"), "--video-weight inf: accepted: a number"),
        (("--video-weight", "-1"), "--video-weight -1: accepted: a number"),
        (("--task", "svmr", "--video-weight", "3"), "--video-weight is for the choice of videos; leave it"),
        (("--task", "svmr", "--top-videos", "5"), "--top-videos is for the choice of videos; leave it out"),
        (("--segments", "1.9"), "segments of 1.9 s are shorter than the clips of xml (2 s)"),
        (("--segments", "1e9"), "xml takes at most 100"),
        (("--min-clips", "7", "--max-clips", "none"), "--min-clips 7: no video has more than 6 clips"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_told_in_one_line(
    features: Path, checkpoint: Path, tmp_path: Path, more: tuple[str, ...], told: str
) -> None:
    given = [str(checkpoint) if word == "RUN" else word for word in more]
    with pytest.raises(WhenaboutsError) as caught:
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), *given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.jsonl").exists()


# Pools --------------------------------------------------------------------------------------------


POOL_LISTS = ("pos_moments", "retrieval_pool")


def write_pools(path: Path, **changes: Any) -> Path:
    """An MVMR file: each query's own video, one other positive, and a pool of four videos."""
    document: dict[str, Any] = {}
    for query in range(QUERIES):
        video = f"v{query % VIDEOS}"
        lists: dict[str, Any] = {key: [] for key in ("timestamps", "sentences", *POOL_LISTS)}
        entry = document.setdefault(video, {"duration": 2.0 * (2 + query % VIDEOS) - 0.5, **lists})
        others = [f"v{(query + step) % VIDEOS}" for step in (1, 2, 3)]
        entry["timestamps"].append([0, entry["duration"]])
        entry["sentences"].append(f"s {query}")
        entry["pos_moments"].append([[others[0], "", [0, 2.0 * (2 + int(others[0][1])) - 0.5]]])
        entry["retrieval_pool"].append([video, *others])
    for key, value in changes.items():
        document["v0"][key][0] = value
    path.write_text(json.dumps(document))
    return path


@pytest.fixture()
def pools(tmp_path: Path) -> Path:
    return write_pools(tmp_path / "pools.json")


def test_each_query_is_answered_from_its_pool_under_the_ids_of_the_pool_file(
    ran: Any, pools: Path, tmp_path: Path, bare: Any
) -> None:
    told = ran(tmp_path / "a.jsonl", "--pools", str(pools))
    assert (told["queries"], told["tasks"], told["decoding"]["nms"]) == (QUERIES, ["VCMR"], 0.5)
    found = lines(tmp_path / "a.jsonl")
    assert set(found) == {f"v{query % VIDEOS}#{query // VIDEOS}" for query in range(QUERIES)}
    for name, moments in found.items():
        own = int(name[1])
        assert {moment["video_id"] for moment in moments} == {
            f"v{(own + step) % VIDEOS}" for step in range(4)
        }
    evaluated = bare(*shlex.split(told["evaluate"])[1:]).json
    assert (evaluated["protocol"], evaluated["queries"], evaluated["missing_queries"]) == (
        "mvmr@1",
        QUERIES,
        0,
    )
    assert evaluated["unknown_videos"] == 0


def test_a_run_of_pools_comes_back_from_its_file_bit_by_bit(ran: Any, pools: Path, tmp_path: Path) -> None:
    ran(tmp_path / "a.jsonl", "--pools", str(pools))
    formats.write_run(formats.open_run(tmp_path / "a.jsonl"), tmp_path / "b.jsonl", "jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_nothing_of_a_pool_is_suppressed_where_none_is_asked_for(
    ran: Any, pools: Path, tmp_path: Path
) -> None:
    ran(tmp_path / "a.jsonl", "--pools", str(pools))
    told = ran(tmp_path / "b.jsonl", "--pools", str(pools), "--nms", "none")
    assert told["decoding"]["nms"] is None
    some, more = lines(tmp_path / "a.jsonl"), lines(tmp_path / "b.jsonl")
    assert sum(map(len, some.values())) < sum(map(len, more.values()))
    assert all(moments[0] == more[name][0] for name, moments in some.items())


def test_with_its_video_given_a_query_is_answered_in_the_video_of_its_golden_moment(
    ran: Any, pools: Path, tmp_path: Path, bare: Any
) -> None:
    ran(tmp_path / "pool.jsonl", "--pools", str(pools))
    ran(tmp_path / "given.jsonl", "--pools", str(pools), "--task", "svmr")
    for name, moments in lines(tmp_path / "given.jsonl").items():
        assert {moment["video_id"] for moment in moments} == {name[:2]}
    asked = ("evaluate", "mvmr", "--truth", pools, "--run", tmp_path / "pool.jsonl")
    (told,) = bare(*asked, "--given", tmp_path / "given.jsonl").json["systems"]
    alone = bare(*asked).json["metrics"]
    for metric, value in alone.items():
        assert told["metrics"][metric]["MVMR"] == value
        assert told["metrics"][metric]["drop"] == told["metrics"][metric]["VMR"] - value


def test_a_run_file_keeps_the_first_videos_of_the_pool(
    ran: Any, checkpoint: Path, pools: Path, tmp_path: Path
) -> None:
    ran(tmp_path / "videos.jsonl", "--pools", str(pools), "--task", "vr")
    few = ("--pools", str(pools), "--top-videos", "1")
    ran(tmp_path / "a.jsonl", *few, "--retriever", str(tmp_path / "videos.jsonl"))
    first = {name: rows[0]["video_id"] for name, rows in lines(tmp_path / "videos.jsonl").items()}
    found = lines(tmp_path / "a.jsonl")
    assert {name: {row["video_id"] for row in rows} for name, rows in found.items()} == {
        name: {video} for name, video in first.items()
    }
    ran(tmp_path / "b.jsonl", *few, "--retriever", str(checkpoint))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_localizer_is_another_word_for_the_checkpoint(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    command = ["run", "--retriever", str(checkpoint), "--localizer", str(checkpoint), "--device", "cpu"]
    command += [
        "--features",
        str(features),
        "--out",
        str(tmp_path / "a.jsonl"),
        "--pools",
        str(pools),
        "--json",
    ]
    options = parser.parse_args(command)
    assert options.run(options) == 0
    assert called(features, checkpoint, "--out", str(tmp_path / "b.jsonl"), "--pools", str(pools)) == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_pool_of_unknown_videos_is_refused_and_nothing_written(
    features: Path, checkpoint: Path, tmp_path: Path
) -> None:
    pools = write_pools(tmp_path / "pools.json", retrieval_pool=["v0", "v9"])
    with pytest.raises(UsageError, match=r"pools\.json: the pool of query 'v0#0' names video 'v9'"):
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--pools", str(pools))
    assert not (tmp_path / "a.jsonl").exists()


def test_pools_of_another_split_are_refused(features: Path, checkpoint: Path, tmp_path: Path) -> None:
    pools = write_pools(tmp_path / "pools.json", sentences="a stranger asks")
    with pytest.raises(
        UsageError, match=r"query 'v0#0' \('a stranger asks' in video 'v0'\) is not among the 12"
    ):
        called(features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--pools", str(pools))


# Confidence ---------------------------------------------------------------------------------------


def calibrate_here(features: Path, checkpoint: Path, pools: Path, *more: str) -> None:
    from whenabouts.cli.main import build_parser

    parser = build_parser(["calibrate"])
    command = ["calibrate", "--checkpoint", str(checkpoint), "--features", str(features), "--device", "cpu"]
    options = parser.parse_args([*command, "--pools", str(pools), "--iou", "0.01", *more])
    assert options.run(options) == 0


@pytest.mark.parametrize("raw", ["margin", "top"])
@pytest.mark.parametrize("pooled", [True, False])
def test_a_calibrated_system_says_how_sure_each_first_answer_is(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path, raw: str, pooled: bool
) -> None:
    calibrate_here(features, checkpoint, pools, "--raw", raw)
    out, more = tmp_path / "a.jsonl", ("--pools", str(pools)) if pooled else ()
    assert called(features, checkpoint, "--out", str(out), "--confidence", *more) == 0
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(told) == QUERIES
    assert all(0 <= line["confidence"] <= 1 for line in told)
    if raw == "top":  # the higher a first score, the surer
        order = sorted(told, key=lambda line: line["moments"][0]["score"])
        sure = [line["confidence"] for line in order]
        assert sure == sorted(sure)
        assert len(set(sure)) > 1
    assert called(features, checkpoint, "--out", str(tmp_path / "b.jsonl"), *more) == 0
    assert lines(tmp_path / "b.jsonl") == lines(out)
    formats.write_run(formats.open_run(out), tmp_path / "c.jsonl", "jsonl")
    assert (tmp_path / "c.jsonl").read_bytes() == out.read_bytes()


@pytest.mark.slow
def test_confidence_is_told_only_where_it_was_measured(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path
) -> None:
    asked = (features, checkpoint, "--out", str(tmp_path / "a.jsonl"), "--confidence")
    with pytest.raises(UsageError, match="its answers are not calibrated; run `whenabouts calibrate"):
        called(*asked)
    calibrate_here(features, checkpoint, pools)
    with pytest.raises(UsageError, match="not with another max_clips"):
        called(*asked, "--max-clips", "2")
    with pytest.raises(UsageError, match="not with a retriever"):
        called(*asked, "--retriever", str(checkpoint))
    with pytest.raises(UsageError, match="not for SVMR"):
        called(*asked, "--task", "svmr")
    with pytest.raises(UsageError, match="format tvr has no place for it"):
        called(*asked, "--format", "tvr")
    (kept := checkpoint / "calibration.json").write_text(
        kept.read_text().replace('"fingerprint": "', '"fingerprint": "x')
    )
    with pytest.raises(UsageError, match="is the calibration of another checkpoint"):
        called(*asked)
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("option", ["", "--retriever"])
def test_what_is_read_is_never_written_over(
    features: Path, checkpoint: Path, tmp_path: Path, option: str
) -> None:
    lists = tmp_path / "lists.jsonl"
    called(features, checkpoint, "--out", str(lists), "--task", "vr")
    target = lists if option else features / "test.jsonl"
    before = target.read_bytes()
    chosen = [option, str(lists)] if option else []
    with pytest.raises(WhenaboutsError, match="is read here and would be overwritten"):
        called(features, checkpoint, "--out", str(target), *chosen)
    assert target.read_bytes() == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "experiment.toml"])
@pytest.mark.parametrize("role", ["localizer", "retriever"])
def test_no_system_is_written_over(
    features: Path, checkpoint: Path, tmp_path: Path, name: str, role: str
) -> None:
    other = saved(features, tmp_path / "other")
    target = (checkpoint if role == "localizer" else other) / name
    before = target.read_bytes()
    with pytest.raises(WhenaboutsError, match=f"{name}: is read here and would be overwritten"):
        called(features, checkpoint, "--out", str(target), "--retriever", str(other))
    assert target.read_bytes() == before
    again = ("--out", str(target), "--retriever", str(other), "--force")
    with pytest.raises(WhenaboutsError, match=f"{name}: is read here and would be overwritten"):
        called(features, checkpoint, *again)
    assert target.read_bytes() == before


def test_answers_may_lie_beside_what_gave_them_and_are_replaced_only_with_force(
    features: Path, checkpoint: Path
) -> None:
    beside = checkpoint / "answers.json"
    assert called(features, checkpoint, "--out", str(beside)) == 0
    whole = beside.read_bytes()
    beside.write_bytes(b"of another system")
    with pytest.raises(UsageError, match=r"answers\.json: is there already; .* --force to replace it"):
        called(features, checkpoint, "--out", str(beside))
    assert beside.read_bytes() == b"of another system"
    assert called(features, checkpoint, "--out", str(beside), "--force") == 0
    assert beside.read_bytes() == whole


@pytest.mark.parametrize("name", ["vision.h5", "query.h5"])
def test_no_features_are_written_over(features: Path, checkpoint: Path, tmp_path: Path, name: str) -> None:
    before = (features / name).read_bytes()
    with pytest.raises(WhenaboutsError, match=f"{name}: is read here and would be overwritten"):
        called(features, checkpoint, "--out", str(features / name))
    elsewhere = shutil.copytree(features, tmp_path / "elsewhere")
    other = saved(features, tmp_path / "other")
    pair = ("--retriever", str(other), "--retriever-features", str(elsewhere))
    with pytest.raises(WhenaboutsError, match=f"{name}: is read here and would be overwritten"):
        called(features, checkpoint, "--out", str(elsewhere / name), *pair)
    assert (features / name).read_bytes() == (elsewhere / name).read_bytes() == before


@pytest.mark.parametrize("key", ["vision", "sentences"])
def test_no_file_of_a_split_is_written_over(features: Path, checkpoint: Path, key: str) -> None:
    experiment, read = checkpoint / "experiment.toml", features / f"{key}.test"
    if key == "vision":
        (features / "vision.h5").rename(read)
    text = experiment.read_text().replace('vision = "vision.h5"', 'vision = "vision.{split}"')
    if key == "sentences":
        read.write_text('{"video_id": "v0", "sentences": []}\n')
        text = experiment.read_text().replace('sentences = ""', 'sentences = "sentences.{split}"')
    experiment.write_text(text)
    before = read.read_bytes()
    with pytest.raises(WhenaboutsError, match=f"{key}.test: is read here and would be overwritten"):
        called(features, checkpoint, "--out", str(read), "--force")
    assert read.read_bytes() == before


def test_segments_of_whole_clips_are_told(ran: Any, tmp_path: Path) -> None:
    assert ran(tmp_path / "a.jsonl", "--segments", "4.9")["segments"] == 4.0
    assert ran(tmp_path / "b.jsonl")["segments"] is None


def test_queries_that_are_cut_are_counted(ran: Any, features: Path, checkpoint: Path, tmp_path: Path) -> None:
    assert ran(tmp_path / "before.jsonl")["odd_data"] == {}
    with h5py.File(features / "query.h5", "r+") as tokens:
        del tokens["3"]
        tokens["3"] = np.ones((400, 4), np.float32)
    told = ran(tmp_path / "run.jsonl")["odd_data"]
    assert [times for what, times in told.items() if "quer" in what and "cut" in what] == [1]


def test_videos_of_which_nothing_is_read_are_not_found_and_told(
    ran: Any, features: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(tmp_path / "before.jsonl")["videos_not_found"] == 0
    with h5py.File(features / "vision.h5", "r+") as clips:
        clips["v1"][...] = 0
        clips["v3"][...] = 0
    assert ran(tmp_path / "run.jsonl")["videos_not_found"] == 2
    found = lines(tmp_path / "run.jsonl")
    assert len(found) == QUERIES
    assert {one["video_id"] for moments in found.values() for one in moments} == {"v0", "v2", "v4"}
    called(features, checkpoint, "--out", str(tmp_path / "svmr.jsonl"), "--task", "svmr", "--table")
    assert "videos without features, which are never found: 2" in capsys.readouterr().out
    given = lines(tmp_path / "svmr.jsonl").values()
    assert {moments[0]["video_id"] for moments in given} == {f"v{at}" for at in range(VIDEOS)}


@pytest.mark.slow
def test_a_checkpoint_of_a_hub_is_downloaded_before_it_is_calibrated(
    features: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_from_server(checkpoint, "me/xml", tmp_path / "cache", monkeypatch)
    asked = ("--out", str(tmp_path / "a.jsonl"), "--confidence", "--experiment", str(features / "tiny.toml"))
    with pytest.raises(UsageError, match="not calibrated; run `hf download me/xml --local-dir RUN`, then"):
        called(features, Path("me/xml"), *asked)


@pytest.mark.slow
def test_a_calibration_comes_along_from_a_hub(
    features: Path, checkpoint: Path, pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate_here(features, checkpoint, pools)
    fetch_from_server(checkpoint, "me/xml", tmp_path / "cache", monkeypatch)
    asked = ("--out", str(tmp_path / "a.jsonl"), "--confidence", "--experiment", str(features / "tiny.toml"))
    assert called(features, Path("me/xml"), *asked) == 0
    told = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert all(0 <= line["confidence"] <= 1 for line in told)
