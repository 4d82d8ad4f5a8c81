"""Where lists come from: files, trained retrievers with features of their own, stages; what is told."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.training.broken_off import Killed, assert_same_tensors, dying_after

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.relevance.cooccurrence import Cooccurrence
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking import rank_split
from whenabouts_systems.ranking.split import encode_split
from whenabouts_systems.training import retrieval_lists
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import open_device
from whenabouts_systems.training.experiment import FOLDER as EXPERIMENTS
from whenabouts_systems.training.experiment import load_experiment
from whenabouts_systems.training.launch import TrainingResult, launch
from whenabouts_systems.training.retrieval_negatives import RetrievalNegatives

pytestmark = pytest.mark.usefixtures("no_picture")

ROOT = Path(__file__).resolve().parents[4]
CONQUER = (
    "model.system=conquer",
    "model.clusters=2",
    "model.span_hidden=8",
    "model.span_kernel=3",
    "training.metric=SVMR R@1,IoU=0.5",
    "training.epochs=2",
    "data.retrieved.videos=2",
)


def begun(tiny: Any, out: Path, *settings: str, **more: Any) -> TrainingResult:
    experiment = load_experiment(tiny.experiment, settings)
    return launch(experiment, tiny.folder, out, open_device("cpu"), **more)


@pytest.fixture()
def retriever(tiny: Any, tmp_path: Path) -> Path:
    """XML after one epoch on the tiny data set."""
    begun(tiny, tmp_path / "retriever", "training.epochs=1", "data.validation=")
    return tmp_path / "retriever"


def write_list(path: Path, changed: dict[str, list[str]] | None = None) -> Path:
    """Every query of the tiny data set lists its five videos in one order."""
    lists = {**{str(query): [f"v{video}" for video in range(5)] for query in range(20)}, **(changed or {})}
    lines = [
        {
            "query_id": name,
            "moments": [{"video_id": one, "score": 9.0 - at} for at, one in enumerate(videos)],
        }
        for name, videos in lists.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def heard(monkeypatch: pytest.MonkeyPatch) -> list[RetrievalNegatives]:
    """What was made to draw negatives, as it is made."""
    made: list[RetrievalNegatives] = []
    kept: Callable[..., None] = RetrievalNegatives.__init__

    def listen(self: RetrievalNegatives, *given: Any, **more: Any) -> None:
        kept(self, *given, **more)
        made.append(self)

    monkeypatch.setattr(RetrievalNegatives, "__init__", listen)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["general", "disjoint", "exclusive"])
def test_conquer_learns_from_the_negatives_of_a_list(tiny: Any, tmp_path: Path, measure: str) -> None:
    """The videos' cross-entropy of "exclusive" cannot be computed without negatives."""
    lists = write_list(tmp_path / "lists.jsonl")
    terms: dict[str, float] = {}
    outcome = begun(
        tiny,
        tmp_path / "run",
        *CONQUER,
        f"model.measure={measure}",
        f"data.retrieved.lists={lists}",
        show=lambda told: terms.update(told.losses),
    )
    assert outcome.reason == "all 2 epochs"
    assert ("videos" in terms) == (measure == "exclusive")
    begun(tiny, tmp_path / "without", *CONQUER[:-1], "training.epochs=1")
    ours, theirs = (load_file(tmp_path / name / "state.safetensors") for name in ("run", "without"))
    assert any(name not in ours or not torch.equal(ours[name], one) for name, one in theirs.items())


SQUIDNET = (
    "model.system=squidnet",
    "model.measure=moment_video",
    *CONQUER[1:],
    "data.retrieved.beyond_own=3",
    "data.retrieved.beyond_own_usual=1",
)


@pytest.mark.slow
def test_squidnet_learns_from_fewer_negatives_where_a_query_says_the_usual(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is made of the training queries, or read from a file among the annotations."""
    path, made = tiny.folder / "train.jsonl", heard(monkeypatch)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["desc"] = "Somebody sings." if line["desc_id"] % 2 else "A man opens the door."
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    Cooccurrence({"man": [("open", 3)]}).write(tiny.folder / "man.json")
    Cooccurrence({"door": [("close", 3), ("open", 2)]}).write(tiny.folder / "door.json")
    settings = (
        *SQUIDNET,
        f"data.retrieved.lists={write_list(tmp_path / 'lists.jsonl')}",
        "training.epochs=1",
        "data.validation=",
    )
    terms: dict[str, float] = {}
    for table in ("", "queries", "man.json", "door.json"):
        given = (*settings, f"data.retrieved.cooccurrence={table}")
        begun(tiny, tmp_path / f"run {table}", *given, show=lambda step: terms.update(step.losses))
    assert {"spans", "videos"} <= set(terms)
    # The own video, of the rank of its number, stands before three others, or one.
    sizes = [[len(one.candidates(query)) for query in range(20)] for one in made]
    every = [min(4, query // 4 + 3) for query in range(20)]
    some = [min(4, query // 4 + (3 if query % 2 else 1)) for query in range(20)]
    assert sizes == [every, some, some, every]
    told = json.loads((tmp_path / "run man.json" / "run.json").read_text())
    assert '"queries have usual words": 10' in json.dumps(told)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("gone.json", r"\[data.retrieved\] cooccurrence is 'gone.json'.*a file of nouns and verbs, or"),
        ("train.jsonl", r"train\.jsonl"),
    ],
)
def test_a_table_that_is_none_is_told(tiny: Any, tmp_path: Path, setting: str, message: str) -> None:
    lists = write_list(tmp_path / "lists.jsonl")
    settings = (*SQUIDNET, f"data.retrieved.lists={lists}", f"data.retrieved.cooccurrence={setting}")
    with pytest.raises(WhenaboutsError, match=message):
        begun(tiny, tmp_path / "run", *settings)


VALIDATED = ("data.retrieved.videos=0", "training.epochs=1", "training.metric=R@1,IoU=0.5")


def test_a_localizer_is_validated_in_the_videos_that_lists_name(tiny: Any, tmp_path: Path) -> None:
    """In the first of them; of a file, or of a trained retriever."""
    lists = write_list(tmp_path / "val.jsonl", {str(query): ["v6", "v5"] for query in range(20, 28)})
    settings = (*CONQUER, *VALIDATED, "decoding.top_videos=1")
    place = f"data.retrieved.validation={lists}"
    found = begun(tiny, tmp_path / "file", *settings, place).metrics
    assert found["VR R@1"] == 0.5, "half of the queries are of v6"
    answers = (tmp_path / "file" / "validation.run.jsonl").read_text().splitlines()
    assert {one["video_id"] for line in answers for one in json.loads(line)["moments"]} == {"v6"}


@pytest.mark.slow
def test_the_ranked_program_validates_in_drawn_videos_and_never_finds_the_right_one(
    tiny: Any, tmp_path: Path
) -> None:
    lists = write_list(tmp_path / "lists.jsonl", {str(query): ["v6", "v5"] for query in range(20, 28)})
    found = begun(
        tiny,
        tmp_path / "run",
        *SQUIDNET,
        *VALIDATED[1:],
        f"data.retrieved.lists={lists}",
        f"data.retrieved.validation={lists}",
        "data.retrieved.cooccurrence=queries",
        "data.retrieved.draws=example",
        "data.retrieved.validation_draws=1",
    )
    assert found.steps == 3
    assert found.metrics["VR R@100"] == 0
    answers = (tmp_path / "run" / "validation.run.jsonl").read_text().splitlines()
    assert {one["video_id"] for line in answers for one in json.loads(line)["moments"]} == {"v5", "v6"}


@pytest.mark.slow
def test_a_trained_retriever_ranks_the_validation_split_too(
    tiny: Any, tmp_path: Path, retriever: Path
) -> None:
    place = f"data.retrieved.validation={retriever}"
    found = begun(tiny, tmp_path / "run", *CONQUER, *VALIDATED, place)
    trained = Trained.from_pretrained(retriever)
    with ExperimentData.open(
        load_experiment(tiny.experiment).data,
        load_experiment(tiny.experiment).features,
        tiny.folder,
        splits=("validation",),
    ) as opened:
        alone = evaluate(
            opened.split("validation").annotations, rank_split(trained, opened.split("validation"))
        )
    assert found.metrics["VR R@1"] == alone.means()["VR R@1"]
    assert found.score is not None


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ("", r"metric is 'R@1,IoU=0\.5', which needs a choice of videos, and conquer .* give lists"),
        ("gone.jsonl", r"\] validation is 'gone\.jsonl'.*a run file of the validation queries"),
        ("lists.jsonl", r"lists\.jsonl: has no videos for query '20' of validation \(and 7 others\)"),
    ],
)
def test_a_localizer_that_cannot_be_validated_is_told_before_the_first_step(
    tiny: Any, tmp_path: Path, validation: str, message: str
) -> None:
    write_list(tiny.folder / "lists.jsonl")
    with pytest.raises(UsageError, match=message):
        begun(tiny, tmp_path / "run", *CONQUER, *VALIDATED, f"data.retrieved.validation={validation}")


@pytest.mark.slow
@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("folder", ["tvr", "tvr_ranking", "simulated_charades"])
def test_the_shipped_squidnet_trains(tiny: Any, tmp_path: Path, folder: str, released: bool) -> None:
    """At first own video and up to 15 negatives, of 4, are alike to it: a cross-entropy of log 5."""
    settings = [
        *("data.dataset=", "data.train=train.jsonl", "data.validation=", "data.weights=none"),
        *(
            f"data.retrieved.lists={write_list(tmp_path / 'lists.jsonl')}",
            f"as_released={str(released).lower()}",
        ),
        *("features.query=query.h5", "features.clip_seconds=2.0", "model.hidden=16", "model.heads=2"),
        *("model.clusters=2", "model.span_hidden=8", "training.epochs=1", "training.batch_size=8"),
    ]
    path = EXPERIMENTS / folder / "squidnet.toml"
    settings += [f"features.streams.{name}=vision.h5" for name in load_experiment(path).features.streams]
    experiment, losses = load_experiment(path, settings), list[float]()
    assert (experiment.training.optimizer == "adamw-as-released") == released
    outcome = launch(
        experiment,
        tiny.folder,
        tmp_path / "run",
        open_device("cpu"),
        show=lambda told: losses.append(told.losses["videos"]),
    )
    assert outcome.reason == "its one epoch"
    assert losses[0] == pytest.approx(0.005 * np.log(5), rel=0.02)


@pytest.mark.parametrize("folder", ["tvr", "simulated_charades"])
def test_the_shipped_exclusive_conquer_trains(tiny: Any, tmp_path: Path, folder: str) -> None:
    """At first its own video and 3 negatives are alike to it: a cross-entropy of log 4, times its weight."""
    lists = write_list(tmp_path / "lists.jsonl")
    settings = [
        *("data.dataset=", "data.train=train.jsonl", "data.validation=", f"data.retrieved.lists={lists}"),
        *("features.query=query.h5", "features.clip_seconds=2.0", "model.hidden=16", "model.heads=2"),
        *("model.clusters=2", "model.span_hidden=8", "training.epochs=1", "training.batch_size=8"),
    ]
    path = EXPERIMENTS / folder / "conquer.toml"
    settings += ["model.measure=exclusive", "model.lambda_video=0.05"]
    settings += [f"features.streams.{name}=vision.h5" for name in load_experiment(path).features.streams]
    losses: list[float] = []
    outcome = launch(
        load_experiment(path, settings),
        tiny.folder,
        tmp_path / "run",
        open_device("cpu"),
        show=lambda told: losses.append(told.losses["videos"]),
    )
    assert outcome.reason == "its one epoch"
    assert losses[0] == pytest.approx(0.05 * np.log(4), rel=0.02)


@pytest.mark.slow
def test_a_trained_retriever_ranks_the_training_split_itself(
    tiny: Any, tmp_path: Path, retriever: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = heard(monkeypatch)
    begun(tiny, tmp_path / "run", *CONQUER, f"data.retrieved.lists={retriever}", "data.retrieved.depth=3")
    experiment = load_experiment(tiny.experiment)
    with ExperimentData.open(
        experiment.data, experiment.features, tiny.folder, splits=("train",)
    ) as material:
        examples = material.split("train")
        (ranked,) = rank_split(Trained.from_pretrained(retriever), examples, ["VR"]).blocks("VR")
        for query in range(20):
            rows = slice(int(ranked.offsets[query]), int(ranked.offsets[query]) + 3)
            names = [ranked.video_ids[video] for video in ranked.video[rows]]
            expected = [name for name in names if name != f"v{query // 4}"]
            assert [examples.videos[video].id for video in made[0].candidates(query)] == expected


@pytest.mark.slow
def test_encodings_of_many_clips_lie_in_a_folder_meanwhile(
    tiny: Any, tmp_path: Path, retriever: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    made = heard(monkeypatch)
    folders: list[Any] = []

    def told(*some: Any, **more: Any) -> Any:
        folders.append(more.get("folder"))
        return encode_split(*some, **more)

    monkeypatch.setattr(retrieval_lists, "encode_split", told)
    for limit, out in ((1 << 18, "memory"), (10, "disk")):
        monkeypatch.setattr(retrieval_lists, "_CLIPS_IN_MEMORY", limit)
        begun(tiny, tmp_path / out, *CONQUER, f"data.retrieved.lists={retriever}")
    assert folders[0] is None
    assert folders[1].is_relative_to(place)
    assert not list(place.iterdir())
    for query in range(20):
        assert np.array_equal(made[0].candidates(query), made[1].candidates(query))


@pytest.mark.slow
def test_a_retriever_reads_features_of_its_own(tiny: Any, tmp_path: Path) -> None:
    with h5py.File(tiny.folder / "vision.h5") as clips, h5py.File(tiny.folder / "other.h5", "w") as others:
        for name in clips:
            others[name] = clips[name][:, :5]
    other = ("features.streams.vision=other.h5", "training.epochs=1", "data.validation=")
    begun(tiny, tmp_path / "retriever", *other)
    settings = (*CONQUER, f"data.retrieved.lists={tmp_path / 'retriever'}")
    assert begun(tiny, tmp_path / "run", *settings).reason == "all 2 epochs"
    (tiny.folder / "other.h5").unlink()
    with pytest.raises(WhenaboutsError, match=r"other\.h5"):
        begun(tiny, tmp_path / "more", *settings)
    assert not (tmp_path / "more").exists()


def test_a_retriever_of_somebody_else_makes_no_folder_here(
    tiny: Any, tmp_path: Path, retriever: Path
) -> None:
    experiment = retriever / "experiment.toml"
    text = experiment.read_text()
    assert 'cache = ""' in text
    experiment.write_text(text.replace('cache = ""', f'cache = "{tmp_path / "made"}"'))
    begun(tiny, tmp_path / "run", *CONQUER, f"data.retrieved.lists={retriever}", "training.epochs=1")
    assert not (tmp_path / "made").exists()


def test_a_retriever_whose_file_was_made_anew_by_other_means_is_refused(
    tiny: Any, tmp_path: Path, retriever: Path
) -> None:
    with h5py.File(tiny.folder / "vision.h5") as clips, h5py.File(tiny.folder / "wide.h5", "w") as wide:
        for name in clips:
            wide[name] = np.concatenate([clips[name][:], clips[name][:]], axis=1)
    (tiny.folder / "wide.h5").replace(tiny.folder / "vision.h5")
    with pytest.raises(UsageError, match=r"vision\.h5: rows of stream 'vision' are 16 wide; .* expects 8"):
        begun(tiny, tmp_path / "run", *CONQUER, f"data.retrieved.lists={retriever}")


def test_examples_whose_own_video_is_ranked_too_low_are_left_out_and_counted(
    tiny: Any, tmp_path: Path
) -> None:
    lists = write_list(tmp_path / "lists.jsonl")
    told: list[str] = []
    outcome = begun(
        tiny,
        tmp_path / "run",
        *CONQUER,
        f"data.retrieved.lists={lists}",
        "data.retrieved.own_within=3",
        "training.epochs=1",
        log=told.append,
    )
    # 12 of the 20 examples are of the first three videos: two batches of eight.
    assert outcome.steps == 2
    why = "examples are skipped: their own video is not among the first 3 of a list"
    assert any("12 examples" in line for line in told)
    assert f"negatives   2 for each query and epoch, of the first 100 videos in the lists of {lists}" in told
    assert any(why in line and "8" in line for line in told)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["material"]["train"]["counts"][why] == 8


def test_rules_for_odd_lists_are_told(tiny: Any, tmp_path: Path) -> None:
    lists = write_list(tmp_path / "lists.jsonl", {"0": ["v1", "v1", "v2"], "1": ["v0"]})
    told: list[str] = []
    settings = (*CONQUER, f"data.retrieved.lists={lists}", "training.epochs=1")
    begun(tiny, tmp_path / "run", *settings, log=told.append)
    for what in ("come twice in a list", "fewer than 2 videos to draw from"):
        assert sum(what in line and "1" in line for line in told) == 1


def test_no_example_that_is_listed_far_enough_up_is_refused(tiny: Any, tmp_path: Path) -> None:
    others = {str(query): [f"v{(query // 4 + 1) % 5}"] for query in range(20)}
    lists = write_list(tmp_path / "lists.jsonl", others)
    with pytest.raises(UsageError, match=r"no example to train on; raise data\.retrieved\.own_within"):
        begun(
            tiny,
            tmp_path / "run",
            *CONQUER,
            f"data.retrieved.lists={lists}",
            "data.retrieved.own_within=1",
        )
    assert not (tmp_path / "run").exists()


def test_lists_may_be_asked_for_to_leave_examples_out_alone(tiny: Any, tmp_path: Path) -> None:
    lists = write_list(tmp_path / "lists.jsonl")
    outcome = begun(
        tiny,
        tmp_path / "run",
        f"data.retrieved.lists={lists}",
        "data.retrieved.own_within=2",
        "training.epochs=1",
    )
    assert outcome.steps == 1


@pytest.mark.slow
def test_a_training_with_negatives_that_was_broken_off_goes_on_to_the_same_numbers(
    tiny: Any, tmp_path: Path, retriever: Path
) -> None:
    settings = (*CONQUER, f"data.retrieved.lists={retriever}", "data.retrieved.own_within=4")
    begun(tiny, tmp_path / "whole", *settings)

    with pytest.raises(Killed):
        begun(tiny, tmp_path / "broken", *settings, show=dying_after(4))
    begun(tiny, tmp_path / "broken", *settings, resume=True)
    assert_same_tensors(tmp_path / "whole", tmp_path / "broken", "state.safetensors")


@pytest.mark.slow
def test_a_list_lies_beside_the_annotations_or_where_the_program_runs(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = (*CONQUER, "data.retrieved.lists=lists.jsonl", "training.epochs=1")
    with pytest.raises(UsageError, match=r"lists is 'lists\.jsonl': there is no lists\.jsonl and no .*tiny"):
        begun(tiny, tmp_path / "run", *settings)
    write_list(tiny.folder / "lists.jsonl")
    assert begun(tiny, tmp_path / "run", *settings).steps == 3
    (tiny.folder / "lists.jsonl").replace(tmp_path / "lists.jsonl")
    assert begun(tiny, tmp_path / "more", *settings).steps == 3


@pytest.mark.slow
def test_heros_lists_are_read_from_a_folder_of_lmdb(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lmdb = pytest.importorskip("lmdb")
    numbers = {"train": {f"v{video}": [12.0, 100 + video] for video in range(5)}}
    (tmp_path / "tiny_video2dur_idx.json").write_text(json.dumps(numbers))
    with lmdb.open(str(tmp_path / "train_top2000")) as lists, lists.begin(write=True) as writing:
        for query in range(20):
            ranked = [[100 + (query + at) % 5, 5.0 - at, "more"] for at in range(5)]
            writing.put(str(query).encode(), msgspec.msgpack.encode(ranked))
    made = heard(monkeypatch)
    settings = (f"data.retrieved.lists={tmp_path / 'train_top2000'}", "training.epochs=1")
    begun(tiny, tmp_path / "run", *CONQUER, *settings)
    for query in range(20):
        expected = [(query + at) % 5 for at in range(5) if (query + at) % 5 != query // 4]
        assert made[0].candidates(query).tolist() == expected


def test_the_seed_may_stand_in_the_name_of_a_list(tiny: Any, tmp_path: Path) -> None:
    write_list(tmp_path / "lists-7.jsonl")
    place = f"data.retrieved.lists={tmp_path}/lists-{{seed}}.jsonl"
    assert begun(tiny, tmp_path / "run", *CONQUER, place, "training.seed=7", "training.epochs=1").steps == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], r"tiny\.toml \[data\.retrieved\] lists is missing: .*--set data\.retrieved\.lists=RUN"),
        (["data.retrieved.lists=none"], r"lists is 'none': there is no none and no .*accepted: a run file"),
        (
            ["data.retrieved.lists=stage:first"],
            r"'stage:first' is the folder .*first, which holds no trained",
        ),
        (
            ["data.retrieved.lists=a", "data.first_stage=b"],
            r"first_stage and retrieved both choose negatives",
        ),
    ],
)
def test_lists_that_are_not_there_are_refused_before_anything_is_written(
    tiny: Any, tmp_path: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        begun(tiny, tmp_path / "run", *CONQUER, *settings)
    assert not (tmp_path / "run").exists()


def test_a_trained_system_that_chooses_no_videos_is_refused(tiny: Any, tmp_path: Path) -> None:
    begun(tiny, tmp_path / "conquer", *CONQUER[:-1], "training.epochs=1", "data.validation=")
    with pytest.raises(UsageError, match="conquer does not choose videos; name the folder of a retriever"):
        begun(tiny, tmp_path / "run", *CONQUER, f"data.retrieved.lists={tmp_path / 'conquer'}")


def test_a_retriever_without_its_experiment_is_refused(tiny: Any, tmp_path: Path, retriever: Path) -> None:
    (retriever / "experiment.toml").unlink()
    with pytest.raises(UsageError, match=r"has no experiment\.toml.*whenabouts run --split train --task vr"):
        begun(tiny, tmp_path / "run", *CONQUER, f"data.retrieved.lists={retriever}")


@pytest.mark.slow
def test_a_stage_is_the_folder_beside_that_of_the_training(
    tiny: Any, tmp_path: Path, retriever: Path
) -> None:
    named = "data.retrieved.lists=stage:retriever"
    begun(tiny, tmp_path / "by_name", *CONQUER, named)
    begun(tiny, tmp_path / "by_path", *CONQUER, f"data.retrieved.lists={retriever}")
    ours, theirs = (load_file(tmp_path / name / "state.safetensors") for name in ("by_name", "by_path"))
    assert all(torch.equal(one, theirs[name]) for name, one in ours.items())
