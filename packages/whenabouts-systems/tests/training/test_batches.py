"""Truth in clips, the order of an epoch, batches made ahead, and the released programs' batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.golden_folder import cases, golden_folder

from whenabouts.clips import ClipGrid
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import write_store
from whenabouts_systems.models.inputs import endpoint_features
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.training import data as training_data
from whenabouts_systems.training.data import DataSettings, ExperimentData, FeatureSettings
from whenabouts_systems.training.examples import Examples, ahead, epoch_batches, spans_in_clips
from whenabouts_systems.training.experiment import Order
from whenabouts_systems.training.labels import is_in

LENGTHS = np.random.default_rng(0).integers(1, 60, 1001)


@given(
    start=st.floats(0, 300),
    length=st.floats(0.01, 300),
    clip_seconds=st.sampled_from([1.0, 1.5, 3.0, 16 / 7]),
    duration=st.floats(1, 400),
)
def test_inclusive_labels_are_those_of_the_grid(
    start: float, length: float, clip_seconds: float, duration: float
) -> None:
    assume(start < duration)
    end = min(start + length, duration)
    assume(start < end)
    grid = ClipGrid(clip_seconds, duration)
    found = spans_in_clips([start], [end], clip_seconds, len(grid), "inclusive")
    assert tuple(found[0].tolist()) == grid.spans_of(start, end)


@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 60), st.sampled_from([1.5, 3.0, 0.1]))
def test_a_moment_of_whole_clips_is_labelled_with_those_clips(
    first: int, count: int, clips: int, clip_seconds: float
) -> None:
    assume(first + count <= clips)
    found = spans_in_clips(
        first * clip_seconds, (first + count) * clip_seconds, clip_seconds, clips, "inclusive"
    )
    assert found.tolist() == [first, first + count - 1]


def golden_files(pattern: str) -> list[Path]:
    """All files of that name among the golden batches; skips where there are no golden batches."""
    found = cases("batching", pattern)
    if not found:
        pytest.skip(f"{golden_folder()} has no batching/{pattern}")
    return found


def test_released_labels_are_the_released_ones() -> None:
    for path in golden_files("xml_labels*.json"):
        compare_labels(json.loads(path.read_text()))


def compare_labels(table: dict[str, Any]) -> None:
    rows = table["label_table"]
    assert rows
    moments = np.array([row["ts"] for row in rows])
    clips = [row["n_clips"] for row in rows]
    found = spans_in_clips(moments[:, 0], moments[:, 1], table["clip_length"], clips, "as-released")
    assert found.tolist() == [row["train_label"] for row in rows]
    # The label function that the released program has and never calls is the right one, where it is defined.
    right = spans_in_clips(moments[:, 0], moments[:, 1], table["clip_length"], clips, "inclusive")
    assert right.tolist() == [row["eval_class_label_unused"] for row in rows]


@pytest.mark.parametrize("order", ["random", "by-length"])
def test_every_example_comes_once_an_epoch_and_epochs_differ(order: Order) -> None:
    epochs = [epoch_batches(LENGTHS, 64, 1, epoch, order) for epoch in (0, 1)]
    for plan in epochs:
        assert sorted(np.concatenate(plan).tolist()) == list(range(len(LENGTHS)))
        assert max(map(len, plan)) == 64 and len(plan) == 16
    again = epoch_batches(LENGTHS, 64, 1, 0, order)
    assert all((a == b).all() for a, b in zip(epochs[0], again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(*epochs, strict=True))
    other = epoch_batches(LENGTHS, 64, 2, 0, order)
    assert not all(np.array_equal(a, b) for a, b in zip(epochs[0], other, strict=True))


def test_seed_and_epoch_do_not_stand_for_each_other() -> None:
    first, second = (epoch_batches(LENGTHS, 64, *told, "random") for told in ((1, 2), (2, 1)))
    assert not np.array_equal(first[0], second[0])


def test_a_single_example_left_joins_the_batch_before() -> None:
    assert sorted(map(len, epoch_batches(LENGTHS[:9], 4, 0, 0, "random"))) == [4, 5]
    assert [len(one) for one in epoch_batches(LENGTHS[:1], 4, 0, 0, "random")] == [1]


def test_order_by_length_pads_less_and_still_mixes_batches() -> None:
    lengths = np.random.default_rng(0).geometric(0.1, 8192)

    def padded(order: Order) -> int:
        return sum(len(one) * int(lengths[one].max()) for one in epoch_batches(lengths, 128, 0, 0, order))

    assert padded("by-length") < 0.5 * padded("random") and padded("by-length") < 1.4 * lengths.sum()
    first, second = (epoch_batches(lengths, 128, 0, epoch, "by-length") for epoch in (0, 1))
    mates = {int(one): frozenset(plan.tolist()) for plan in first for one in plan}
    shared = [len(mates[int(plan[0])] & set(plan.tolist())) for plan in second]
    assert np.median(shared) < 64


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"training\.batch_size is 1: one example has no negatives"):
        epoch_batches(LENGTHS, 1, 0, 0, "random")


def test_keys_are_looked_up_as_in_a_set() -> None:
    random = np.random.default_rng(3)
    keys, values = np.unique(random.integers(0, 90, 40)), random.integers(0, 100, (6, 9))
    assert is_in(keys, values).tolist() == [[int(v) in set(keys.tolist()) for v in row] for row in values]
    assert not is_in(np.zeros(0, np.int64), values).any()


def batch_number(number: int) -> Batch:
    nothing: Any = torch.zeros(0)
    return Batch(nothing, nothing, nothing, torch.tensor([[number, number]]), nothing)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_batches_made_ahead_come_in_their_order(count: int) -> None:
    found = [int(one.spans[0, 0]) for one in ahead((batch_number(at) for at in range(20)), count)]
    assert found == list(range(20))


def test_what_goes_wrong_ahead_is_raised_in_its_place() -> None:
    def made() -> Iterator[Batch]:
        yield batch_number(0)
        raise UsageError("the second one is bad")

    iterator = ahead(made(), 2)
    assert int(next(iterator).spans[0, 0]) == 0
    with pytest.raises(UsageError, match="the second one is bad"):
        next(iterator)


def test_leaving_early_ends_the_thread_and_makes_no_more_than_asked() -> None:
    made: list[int] = []

    def many() -> Iterator[Batch]:
        for at in range(1000):
            made.append(at)
            yield batch_number(at)

    iterator: Any = ahead(many(), 2)
    next(iterator)
    iterator.close()
    assert not [one for one in threading.enumerate() if one.name == "batches" and one.is_alive()]
    assert len(made) <= 5


# The released programs' batches, by the whole way: files, ExperimentData, a batch.


def write_features(folder: Path, arrays: Any, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        start = f"raw/{kind}/"
        items = [(name.removeprefix(start), arrays[name]) for name in arrays if name.startswith(start)]
        write_store(folder / kind, items, Fingerprint())


def features(streams: dict[str, str], **settings: Any) -> FeatureSettings:
    return FeatureSettings(query="query", streams=streams, **settings)


def released_inputs(batches: Path, told: dict[str, Any]) -> Any:
    """Raw features of the batches: with the corpus, or (the repository's part) beside the batches.

    They are where the case tells. Those of "xml_batches_more" may also be in "xml_corpus_more", else in
    "xml_corpus".
    """
    name, _, more = batches.stem.partition("_batches")
    corpora = batches.parent.with_name("inference")
    where = str(told.get("raw_features") or told.get("raw_features_in") or "").partition(" ")[0]
    places = [batches.parent.parent / where] if where else []
    places += [
        folder / f"{name}_{kind}{end}.npz"
        for end in dict.fromkeys((more, ""))
        for folder, kind in ((corpora, "corpus"), (batches.parent, "raw"))
    ]
    for path in places:
        arrays = np.load(path) if path.is_file() else {}
        if any(key.startswith("raw/query/") for key in arrays):
            return arrays
    pytest.skip(f"{batches.parent.parent} has no raw features for {batches.name}")


def expanded(block: torch.Tensor, batch: Batch) -> NDArray[Any]:
    """A row per example, as the released programs have it."""
    return np.asarray(block[batch.video_of])


STREAMS_OF = {"video": "video", "sub": "sub"}


@pytest.mark.parametrize("path", cases("batching", "xml_batches*.npz"), ids=lambda path: path.stem)
def test_batches_of_xml_are_the_released_ones(path: Path, tmp_path: Path) -> None:
    labels = path.with_name(path.name.replace("batches", "labels")).with_suffix(".json")
    told = json.loads(labels.read_text())
    raw, arrays = released_inputs(path, told), np.load(path)
    write_features(tmp_path, raw, ("query", "video", "sub"))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told["queries"]))
    compared = set()
    for mode in sorted({name.split("/")[1] for name in arrays}):
        streams = {name: name for name in STREAMS_OF if name in mode.split("_")}
        tef = "tef" in mode.split("_")
        settings = features(
            streams,
            tef=tef,
            clip_seconds=told["clip_length"],
            max_clips=told["max_ctx_len"],
            max_tokens=told["max_desc_len"],
            long_videos="cut",
        )
        data = DataSettings(train="train.jsonl", labels="as-released")
        with ExperimentData.open(data, settings, tmp_path) as opened:
            examples = opened.split("train")
            batch = examples.batch(np.arange(len(examples)))
        asked = {row["vid_name"] for row in told["queries"]}
        assert len(batch.videos) == len(asked), "a video that answers several queries comes once"
        found = {"st_ed_indices": batch.spans.numpy()}
        for name in streams:
            found[f"{name}_feat"] = expanded(batch.videos.streams[name], batch)
            found[f"{name}_mask"] = expanded(batch.videos.mask, batch)
        if tef:
            mask = expanded(batch.videos.mask, batch)
            found |= {"tef_feat": endpoint_features(mask.sum(1), mask), "tef_mask": mask}
        if mode == "video":
            found |= {"query_feat": batch.queries.tokens.numpy(), "query_mask": batch.queries.mask.numpy()}
        for name, values in found.items():
            np.testing.assert_allclose(values, arrays[f"xml/{mode}/{name}"], atol=1e-6, err_msg=mode)
            compared.add(f"xml/{mode}/{name}")
    # What is left are the placeholders of streams that are not used: zeros with a mask of ones.
    for name in set(arrays) - compared:
        assert arrays[name].shape[1:] == ((2,) if name.endswith("_mask") else (2, 2)), name
        assert (arrays[name] == name.endswith("_mask")).all(), name


def ranked(rows: list[dict[str, Any]]) -> Annotations:
    collector = AnnotationBuilder("train", cut=False)
    for row in rows:
        collector.add_query(str(row["query_id"]), f"sentence {row['query_id']}")
        start, end = row["timestamp"]
        collector.judge(str(row["query_id"]), row["video_name"], start, end, row["similarity"])
    return collector.annotations()


@pytest.mark.parametrize("path", cases("batching", "tvrr_batches*.npz"), ids=lambda path: path.stem)
def test_batches_of_tvr_ranking_are_the_released_ones(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(path.with_suffix(".json").read_text())
    raw, arrays = released_inputs(path, told), np.load(path)
    write_features(tmp_path, raw, ("query", "video", "sub"))
    annotations = ranked(told["rows_expanded_in_order"])
    monkeypatch.setattr(training_data, "read_annotations", lambda path: annotations)
    settings = features(
        {"video": "video", "sub": "sub"},
        clip_seconds=told["clip_length"],
        max_clips=told["max_ctx_len"],
        max_tokens=told["max_desc_len"],
        long_videos="pool-as-released",
    )
    data = DataSettings(train="train.json", labels="as-released", weights="relevance")
    with ExperimentData.open(data, settings, tmp_path) as opened:
        examples = opened.split("train")
        batch = examples.batch(np.arange(len(examples)))
    assert batch.weight is not None
    clips = np.arange(batch.videos.mask.shape[1])
    labels = (batch.spans[:, :1].numpy() <= clips) & (clips <= batch.spans[:, 1:].numpy())
    found = {
        "simi": batch.weight.numpy(),
        "query_feat": batch.queries.tokens.numpy(),
        "query_mask": batch.queries.mask.numpy(),
        "st_ed_indices": batch.spans.numpy(),
        "match_labels": labels,
        "video_feat": expanded(batch.videos.streams["video"], batch),
        "sub_feat": expanded(batch.videos.streams["sub"], batch),
        "video_mask": expanded(batch.videos.mask, batch),
        "sub_mask": expanded(batch.videos.mask, batch),
    }
    assert {f"tvrr_train/{name}" for name in found} == {n for n in arrays if n.startswith("tvrr_train/")}
    for name, values in found.items():
        told_of = arrays[f"tvrr_train/{name}"]
        if values.ndim > 1 and name != "st_ed_indices":  # the program pads to the longest there may be
            more = told_of.shape[1] - values.shape[1]
            values = np.pad(values, [(0, 0), (0, more), *[(0, 0)] * (values.ndim - 2)])
        np.testing.assert_allclose(values, told_of, atol=1e-6, err_msg=name)
    check_positives(examples, batch)


def check_positives(examples: Examples, batch: Batch) -> None:
    """Every video that a query is judged relevant to is spared, in all examples of the query."""
    known = {
        (examples.queries[q].id, examples.videos[v].id)
        for q, v in zip(examples.query.tolist(), examples.video.tolist(), strict=True)
    }
    columns = {}
    for example, column in enumerate(batch.video_of.tolist()):
        columns[column] = examples.videos[int(examples.video[example])].id
    expected = [
        [(examples.queries[q].id, columns[at]) in known for at in range(len(columns))]
        for q in examples.query.tolist()
    ]
    assert batch.positives.tolist() == expected
    assert not batch.positives.all()
    own = replace(examples._settings, positives="own")
    again = Examples("train", examples.annotations, examples.inputs, examples._tokens, examples._streams, own)
    alone = again.batch(np.arange(len(again))).positives
    assert (alone.sum(1) == 1).all() and alone[torch.arange(len(again)), batch.video_of].all()
