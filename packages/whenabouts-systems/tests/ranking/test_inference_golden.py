"""Ranked lists of the released programs: from their recorded probabilities, and through whole models.

From probabilities the order is determined and must be equal. Whole models are compared as the folder's README
says: neighbours whose scores are closer than 2e-3 may change places.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.golden_folder import cases, golden_folder
from tests.models.test_reloclnet_golden import config_of_case as reloclnet_config_of_case
from tests.models.test_xml_golden import config_of_case as xml_config_of_case
from tests.ranked_rows import assert_same_ranking
from torch import Tensor

from whenabouts_bench import formats
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunBlock, Task
from whenabouts_systems.models import new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import (
    ClipBatch,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.ranking import Ranker, encode_corpus
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus

TASKS: tuple[Task, ...] = ("VCMR", "SVMR", "VR")
STREAMS = ("video", "sub")
SWAPS = 2e-3


@dataclass(frozen=True)
class Case:
    """One corpus of the folder."""

    told: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @property
    def clip_seconds(self) -> float:
        return float(self.told["clip_length"])

    @property
    def video_ids(self) -> list[str]:
        return [video.get("vid_name") or video["video_name"] for video in self.told["videos"]]

    @property
    def clips(self) -> NDArray[np.int64]:
        return np.array([video["n_clips"] for video in self.told["videos"]])

    @property
    def queries(self) -> list[dict[str, Any]]:
        return list(self.told.get("queries") or self.told["annotations"])

    @property
    def query_ids(self) -> list[str]:
        return [str(query["desc_id"] if "desc_id" in query else query["query_id"]) for query in self.queries]

    def decoding(self, **changed: Any) -> Decoding:
        """As the program of the case decodes."""
        least, most = self.told["min_pred_l"], self.told["max_pred_l"]
        if "topn_video" in self.told:  # TVR-Ranking: exclusive ends
            count = max(self.told["ndcg_topk"])
            settings = {"ends": "exclusive", "max_clips": most - 1, "top_videos": self.told["topn_video"]}
        else:
            count = self.told["max_before_nms"]
            settings = {"ends": "as-released", "max_clips": most, "top_videos": self.told["max_vcmr_video"]}
        return Decoding(**{"min_clips": least, "spans_per_query": count, **settings, **changed})

    def parameters(self) -> dict[str, Tensor]:
        found = {
            name: torch.from_numpy(one) for name, one in self.arrays.items() if name.startswith("param/")
        }
        if not found:
            pytest.skip("this copy of the case has no weights")
        return found


@cache
def _case(path: Path) -> Case:
    with np.load(path) as stored:
        return Case(json.loads(path.with_suffix(".json").read_text()), {n: stored[n] for n in stored.files})


PATHS = [
    path
    for path in cases("inference", "*.npz")
    if not path.stem.startswith(("span_mask", "topk3d"))  # tests/models/test_decoding.py
]
VARIANTS = [(path, variant) for path in PATHS for variant in sorted(_case(path).told["results"])]
XML = [one for one in VARIANTS if "max_vcmr_video" in _case(one[0]).told]
TVRR = [one for one in VARIANTS if "topn_video" in _case(one[0]).told]


def _name(value: Any) -> str:
    return value.stem if isinstance(value, Path) else str(value)


class Recorded:
    """A system that says what the released program said."""

    def __init__(self, case: Case, variant: str) -> None:
        self.video_weight = float(case.told["q2c_alpha"])
        self.cosine = torch.from_numpy(case.arrays[f"{variant}/q2c_cosine"])
        with np.errstate(divide="ignore"):
            self.start, self.end = (
                torch.from_numpy(np.log(case.arrays[f"{variant}/{name}_prob"])) for name in ("st", "ed")
            )

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        return QueryEncoding({}, {"row": queries.tokens[:, 0, 0].long()})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        return VideoEncoding(videos.mask, parts={"row": videos.streams["row"][:, 0, 0].long()})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        return self.cosine[queries.parts["row"]][:, videos.parts["row"]]

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        at = (queries.parts["row"], videos.parts["row"])
        return SpanScores(self.start[at], self.end[at], videos.mask)


@dataclass(frozen=True)
class System:
    model: Any
    decoding: Decoding
    system: str = "golden"


def recorded(case: Case, variant: str, decoding: Decoding) -> Ranker:
    longest = case.arrays[f"{variant}/st_prob"].shape[-1]

    def clips_of(rows: NDArray[np.int64]) -> ClipBatch:
        numbers = torch.from_numpy(rows).float()[:, None, None].expand(-1, longest, 1)
        mask = torch.arange(longest) < torch.from_numpy(case.clips[rows])[:, None]
        return ClipBatch({"row": numbers}, mask)

    model = Recorded(case, variant)
    encoded = encode_corpus(
        model, clips_of, case.video_ids, clips=case.clips, clip_seconds=case.clip_seconds, batch_videos=3
    )
    return Ranker(System(model, decoding), encoded)


def numbered(rows: NDArray[np.int64]) -> QueryBatch:
    return QueryBatch(torch.from_numpy(rows).float()[:, None, None], torch.ones(len(rows), 1) > 0)


Rows = list[tuple[str, float, float, float]]


def answers(
    ranker: Ranker, case: Case, queries: Callable[..., QueryBatch], *tasks: Task
) -> dict[Task, list[Rows]]:
    """Task -> rows (video, start, end, score: not its logarithm) of each query."""
    given = {
        name: query.get("vid_name", "") for name, query in zip(case.query_ids, case.queries, strict=True)
    }
    (lists,) = ranker.answers(case.query_ids, queries, tasks, given=given)
    weight = ranker.trained.model.video_weight
    return {task: list(_rows(block, weight if task == "VR" else 1.0)) for task, block in lists.items()}


def _rows(block: RunBlock, weight: float) -> Iterator[Rows]:
    score = np.exp(block.score * weight)
    names = [block.video_ids[code] for code in block.video.tolist()]
    rows = list(
        zip(names, *(np.nan_to_num(c).tolist() for c in (block.start, block.end)), score, strict=True)
    )
    for low, high in zip(block.offsets[:-1], block.offsets[1:], strict=True):
        yield rows[low:high]


def released(case: Case, entries: list[dict[str, Any]], indices: dict[str, int]) -> list[Rows]:
    assert [str(entry["desc_id"]) for entry in entries] == case.query_ids
    names = {index: name for name, index in indices.items()}
    return [[(names[row[0]], *row[1:]) for row in entry["predictions"] if row[3] > 0] for entry in entries]


def assert_same_order(ours: list[Rows], theirs: list[Rows], rtol: float = 1e-4) -> None:
    for mine, expected in zip(ours, theirs, strict=True):
        assert_same_ranking(mine, expected, close=5e-6, rtol=rtol)


def assert_same_up_to_swaps(ours: list[Rows], theirs: list[Rows], rtol: float) -> None:
    """Equal, but where the released scores of rows that changed places are closer than SWAPS."""
    for mine, expected in zip(ours, theirs, strict=True):
        score = {row[:3]: row[3] for row in expected}
        last = expected[-1][3]
        for place, row in enumerate(mine[: len(expected)]):
            # What is not in the released list lies where that list was cut off.
            theirs_of_row = score.get(row[:3], last)
            assert abs(theirs_of_row - expected[place][3]) <= SWAPS * max(1.0, expected[place][3]), (
                place,
                row,
            )
            np.testing.assert_allclose(row[3], theirs_of_row, rtol=rtol)


def test_there_are_cases() -> None:
    if not (golden_folder() / "inference").is_dir():
        pytest.skip(f"{golden_folder()} has no inference folder")
    assert VARIANTS, f"no inference of XML or of TVR-Ranking in {golden_folder()}"
    assert len(XML) + len(TVRR) == len(VARIANTS), "a case is of neither program"


@pytest.mark.parametrize(("path", "variant"), XML, ids=_name)
def test_probabilities_of_xml_become_its_ranked_lists(path: Path, variant: str) -> None:
    case = _case(path)
    result = case.told["results"][variant]
    indices = result["submission_no_nms"]["video2idx"]
    ranker = recorded(case, variant, case.decoding())
    whole = answers(ranker, case, numbered, *TASKS)
    for task in ("VCMR", "SVMR"):
        assert_same_order(whole[task], released(case, result["full_ranked_before_nms"][task], indices))
    count = case.told["max_after_nms"]
    short = answers(recorded(case, variant, case.decoding(spans_per_query=count)), case, numbered, *TASKS)
    for task in TASKS:
        assert_same_order(short[task], released(case, result["submission_no_nms"][task], indices))
        assert len(short[task][0]) <= count


@pytest.mark.parametrize(("path", "variant"), XML, ids=_name)
def test_suppression_leaves_what_the_program_of_xml_leaves(path: Path, variant: str) -> None:
    case = _case(path)
    result = case.told["results"][variant]
    if "submission_nms" not in result:
        pytest.skip("the case was not suppressed")
    how = case.decoding(
        nms=case.told["nms_thd"],
        spans_before_nms=case.told["max_before_nms"],
        spans_per_query=case.told["max_after_nms"],
    )
    found = answers(recorded(case, variant, how), case, numbered, "VCMR", "SVMR")
    for task in ("VCMR", "SVMR"):
        theirs = released(case, result["submission_nms"][task], result["submission_no_nms"]["video2idx"])
        assert_same_order(found[task], theirs)
        assert [len(rows) for rows in found[task]] == [len(rows) for rows in theirs]


def judged_for_xml(case: Case) -> Annotations:
    collector = AnnotationBuilder("golden", cut=False)
    for name, query in zip(case.query_ids, case.queries, strict=True):
        collector.add_query(name, query["desc"], type=query["type"])
        collector.judge(name, query["vid_name"], *query["ts"])
    return collector.annotations()


@pytest.mark.parametrize("suppressed", [False, True], ids=["", "nms"])
@pytest.mark.parametrize(("path", "variant"), XML, ids=_name)
def test_the_numbers_of_xml_s_evaluation_come_out(path: Path, variant: str, suppressed: bool) -> None:
    case = _case(path)
    expected = case.told["results"][variant].get("metrics_nms" if suppressed else "metrics_no_nms")
    if expected is None:
        pytest.skip("the case tells no such numbers")
    how = case.decoding(
        nms=case.told["nms_thd"] if suppressed else None,
        spans_before_nms=case.told["max_before_nms"],
        spans_per_query=case.told["max_after_nms"],
    )
    given = {name: query["vid_name"] for name, query in zip(case.query_ids, case.queries, strict=True)}
    (lists,) = recorded(case, variant, how).answers(case.query_ids, numbered, TASKS, given=given)
    run = MemoryRun("ours", {task: (block,) for task, block in lists.items()})
    found = evaluate(judged_for_xml(case), run, protocol="tvr")
    # The numbers recorded for SVMR after suppression do not follow from the list recorded beside them: of its
    # six queries four have a moment of IoU 0.5 among the first ten, and the number says two.
    for task in ("VCMR",) if suppressed else TASKS:
        assert expected[task], task
        kinds = {"": found.means()} | {f"{kind}-": means for kind, means in found.means_by("type").items()}
        for name, value in (expected[task] | expected.get(f"{task}_by_type", {})).items():
            kind, metric = our_metric(task, name)
            if name != "desc_type_ratio" and not np.isnan(value):  # of a type that no query has
                assert round(100 * kinds[kind][metric], 2) == value, (task, name)


def our_metric(task: str, name: str) -> tuple[str, str]:
    """Of the released "vt-0.5-r10": the type of the query, as it stands there, and our metric."""
    kind, iou, k = re.fullmatch(r"([a-z]+-)?(?:([\d.]+)-)?r(\d+)|desc_type_ratio", name).groups()  # type: ignore[union-attr]
    of_task = "" if task == "VCMR" else f"{task} "
    return kind or "", f"{of_task}R@{k}" + (f",IoU={iou}" if iou else "")


@pytest.mark.parametrize(("path", "variant"), TVRR, ids=_name)
def test_probabilities_of_tvr_ranking_become_its_ranked_moments(path: Path, variant: str) -> None:
    case = _case(path)
    result = case.told["results"][variant]
    found = answers(recorded(case, variant, case.decoding()), case, numbered, "VCMR", "VR")
    for name, moments, videos in zip(case.query_ids, found["VCMR"], found["VR"], strict=True):
        expected = [tuple(row) for row in result["ranked_moments"][name] if row[3] > 0]
        assert_same_order([moments], [expected])
        assert [row[0] for row in videos] == result["top_videos"][name]
        np.testing.assert_allclose([row[3] for row in videos], result["top_video_scores"][name], rtol=1e-4)


@pytest.mark.parametrize(("path", "variant"), TVRR, ids=_name)
def test_the_ndcg_of_tvr_ranking_comes_out(path: Path, variant: str, tmp_path: Path) -> None:
    case = _case(path)
    collector = AnnotationBuilder("golden", cut=False)
    for query in case.queries:
        collector.add_query(str(query["query_id"]), query["query"])
        for moment in query["relevant_moment"]:
            seconds = moment["timestamp"]
            grade = float(moment["relevance"])
            collector.judge(str(query["query_id"]), moment["video_name"], seconds[0], seconds[1], grade)
    blocks = tuple(recorded(case, variant, case.decoding()).rank(case.query_ids, numbered))
    formats.write_run(MemoryRun("ours", {"VCMR": blocks}), tmp_path / "run.jsonl", "jsonl")
    run = formats.open_run(tmp_path / "run.jsonl")
    expected = {
        f"nDCG@{k[1:]},IoU={threshold[1:]}": value
        for k, values in case.told["results"][variant]["ndcg"].items()
        for threshold, value in values.items()
    }
    found = evaluate(collector.annotations(), run, list(expected), protocol="rvmr-as-released").means()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name


def config_of(case: Case, module: str) -> Any:
    """The settings of the released system."""
    told, alpha = case.told["config"], float(case.told["q2c_alpha"])
    if module == "xml":
        return replace(xml_config_of_case(told, case.arrays), alpha=alpha)
    widths = {f"in/{name}_feat": case.arrays[f"in/corpus_{name}_feat"] for name in STREAMS}
    return replace(reloclnet_config_of_case(told, widths), alpha=alpha)


@cache
def model_of(path: Path, module: str) -> Any:
    """The released system with its weights."""
    case, system = _case(path), importlib.import_module(f"whenabouts_systems.models.{module}")
    config, weights = config_of(case, module), case.parameters()
    model = new_model(module, config).eval()
    names = system.released_names(config)
    model.load_state_dict({ours: weights[f"param/{theirs}"] for ours, theirs in names.items()})
    return model


def whole_xml(path: Path, variant: str) -> tuple[Ranker, Callable[..., QueryBatch]]:
    """XML from raw features, encoded in the batches of the variant."""
    case, model = _case(path), model_of(path, "xml")
    told, tef = case.told["config"], "tef" in case.told["config"]["ctx_mode"].split("_")
    streams = {name: StreamInput(width - 2 * tef) for name, width in model.config.streams.items()}
    inputs = Inputs(
        query=StreamInput(told["query_input_size"]),
        streams=streams,
        tef=tef,
        clip_seconds=case.clip_seconds,
        max_clips=told["max_ctx_l"],
        max_tokens=told["max_desc_l"],
        long_videos="cut",
    )
    arrays, names = case.arrays, case.video_ids
    encoded = encode_corpus(
        model,
        lambda rows: inputs.clips([{s: arrays[f"raw/{s}/{names[row]}"] for s in streams} for row in rows]),
        names,
        clips=case.clips,
        clip_seconds=case.clip_seconds,
        batch_videos=case.told["results"][variant]["eval_context_bsz"],
        by_length=False,
    )
    ids = case.query_ids
    return Ranker(System(model, case.decoding()), encoded), lambda rows: inputs.queries(
        [arrays[f"raw/query/{ids[row]}"] for row in rows]
    )


@pytest.mark.parametrize(("path", "variant"), XML, ids=_name)
def test_the_whole_of_xml_ranks_as_the_program_does(path: Path, variant: str) -> None:
    case = _case(path)
    ranker, queries = whole_xml(path, variant)
    found = answers(ranker, case, queries, *TASKS)
    result = case.told["results"][variant]
    indices = result["submission_no_nms"]["video2idx"]
    for task in ("VCMR", "SVMR"):
        assert_same_up_to_swaps(
            found[task], released(case, result["full_ranked_before_nms"][task], indices), 5e-3
        )
    assert_same_up_to_swaps(found["VR"], released(case, result["submission_no_nms"]["VR"], indices), 2e-3)


def whole_reloclnet(path: Path, variant: str) -> tuple[Ranker, Callable[..., QueryBatch]]:
    """TVR-Ranking's ReLoCLNet from the recorded features, padded as the variant pads."""
    case, model = _case(path), model_of(path, "reloclnet")
    arrays = case.arrays
    mask = torch.from_numpy(arrays["in/corpus_video_mask"]) > 0
    padded = re.fullmatch(r"pad_(\d+)", variant)
    longest = int(padded[1]) if padded else mask.shape[1]

    def clips_of(rows: NDArray[np.int64]) -> ClipBatch:
        more = longest - mask.shape[1]
        streams = {
            name: torch.nn.functional.pad(
                torch.from_numpy(arrays[f"in/corpus_{name}_feat"][rows]), (0, 0, 0, more)
            )
            for name in STREAMS
        }
        return ClipBatch(streams, torch.nn.functional.pad(mask[rows], (0, more)))

    encoded = encode_corpus(
        model,
        clips_of,
        case.video_ids,
        clips=case.clips,
        clip_seconds=case.clip_seconds,
        batch_videos=case.told["corpus_batch_size"],
        by_length=False,
    )
    tokens, real = (torch.from_numpy(arrays[f"in/query_{name}"]) for name in ("feat", "mask"))
    return Ranker(System(model, case.decoding()), encoded), lambda rows: QueryBatch(
        tokens[rows], real[rows] > 0
    )


@pytest.mark.parametrize(("path", "variant"), TVRR, ids=_name)
def test_the_whole_of_reloclnet_ranks_as_the_program_of_tvr_ranking_does(path: Path, variant: str) -> None:
    case = _case(path)
    case.parameters()
    ranker, queries = whole_reloclnet(path, variant)
    found = answers(ranker, case, queries, "VCMR", "VR")
    result = case.told["results"][variant]
    moments = [
        [tuple(row) for row in result["ranked_moments"][name] if row[3] > 0] for name in case.query_ids
    ]
    assert_same_up_to_swaps(found["VCMR"], moments, 5e-3)
    assert [[row[0] for row in rows] for rows in found["VR"]] == [
        result["top_videos"][name] for name in case.query_ids
    ]


def near(value: Any, stored: Any, atol: float = 5e-5) -> None:
    torch.testing.assert_close(value, torch.as_tensor(stored), atol=atol, rtol=1e-4, check_dtype=False)


@torch.no_grad()
@pytest.mark.parametrize(("path", "variant"), VARIANTS, ids=_name)
def test_whole_models_encode_and_score_as_the_programs_do(path: Path, variant: str) -> None:
    case = _case(path)
    case.parameters()
    ranker, queries = (whole_xml if (path, variant) in XML else whole_reloclnet)(path, variant)
    model, arrays = ranker.trained.model, case.arrays
    asked = model.encode_queries(queries(np.arange(len(case.query_ids))))
    corpus = ranker._corpus
    assert isinstance(corpus, MemoryCorpus)
    videos = corpus.blocks[0].take(torch.from_numpy(corpus.row[corpus.rows_of(case.video_ids)]))
    cosine = model.score_videos(asked, videos)
    near(cosine, arrays[f"{variant}/q2c_cosine"])
    every = torch.cartesian_prod(*map(torch.arange, cosine.shape))
    scores = model.score_spans(asked.take(every[:, 0]), videos.take(every[:, 1]))
    longest = arrays[f"{variant}/st_prob"].shape[-1]  # of the places that are stored: the rest is padding
    mask = videos.mask[:, :longest]
    for name, found in (("st", scores.start), ("ed", scores.end)):
        logs = found.view(*cosine.shape, -1)[..., :longest]
        near(logs.exp(), arrays[f"{variant}/{name}_prob"], atol=2e-3)
        if (told := arrays.get(f"{variant}/{name}_logits")) is not None:
            near(logs[:, mask], torch.from_numpy(told).log_softmax(-1)[:, mask], atol=2e-3)
    for name in videos.keys:
        kept = arrays.get(f"{variant}/ctx/{name}_feat1", arrays.get(f"{variant}/all_{name}_feat"))
        if kept is not None:
            unit = torch.nn.functional.normalize(torch.from_numpy(kept), dim=-1)
            near(videos.keys[name][:, :longest][mask], unit[mask])
        if (clips := arrays.get(f"{variant}/ctx/{name}_feat2")) is not None:
            near(videos.parts[f"clips/{name}"][mask], clips[mask.numpy()])
        if (real := arrays.get(f"{variant}/ctx/{name}_mask")) is not None:
            assert torch.equal(mask, torch.from_numpy(real) > 0)


@pytest.mark.parametrize("path", dict.fromkeys(path for path, _ in VARIANTS), ids=_name)
def test_features_are_made_ready_as_by_the_programs(path: Path) -> None:
    """XML's of queries; TVR-Ranking's of queries and of videos, which it pads to the longest there may be."""
    case = _case(path)
    arrays, names = case.arrays, case.video_ids
    if not any(name.startswith("raw/") for name in arrays):
        pytest.skip("this copy of the case has no raw features")
    of_videos = [name for name in STREAMS if f"in/corpus_{name}_feat" in arrays]
    widths = {name: arrays[f"raw/{name}/{names[0]}"].shape[1] for name in of_videos or STREAMS[:1]}
    inputs = Inputs(
        StreamInput(case.told["config"]["query_input_size"]),
        {name: StreamInput(width) for name, width in widths.items()},
        tef=any(arrays[f"in/corpus_{name}_feat"].shape[2] != widths[name] for name in of_videos),
        clip_seconds=case.clip_seconds,
        max_clips=case.told.get("max_ctx_len", case.told["config"]["max_ctx_l"]),
        max_tokens=case.told["config"]["max_desc_l"],
        long_videos="pool-as-released",
    )
    queries = inputs.queries([arrays[f"raw/query/{name}"] for name in case.query_ids])
    near_where(queries.mask, queries.tokens, arrays, "query")
    if of_videos:
        videos = inputs.clips([{s: arrays[f"raw/{s}/{name}"] for s in of_videos} for name in names])
        for name in of_videos:
            near_where(videos.mask, videos.streams[name], arrays, f"corpus_{name}")


def near_where(mask: Tensor, rows: Tensor, arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    """The stored rows of that name are these, where there are any."""
    more = (0, arrays[f"in/{name}_mask"].shape[1] - mask.shape[1])
    assert torch.equal(torch.nn.functional.pad(mask, more), torch.from_numpy(arrays[f"in/{name}_mask"]) > 0)
    near(rows[mask], arrays[f"in/{name}_feat"][:, : mask.shape[1]][mask.numpy()], atol=1e-6)
