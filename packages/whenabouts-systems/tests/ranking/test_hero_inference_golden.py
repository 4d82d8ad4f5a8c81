"""The evaluation of the whole HERO: from raw frames and subtitles to the released lists and metrics.

Sentences are given to frames, cut to ids and read here as in every training and search; the released arrays
come from the authors' own data classes. Rows whose scores are closer than 2e-4 may change places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.hero_cases import CASES, Golden, opened
from tests.number_words import write_number_words
from tests.ranked_rows import assert_same_ranking
from tests.ranking.test_inference_golden import Rows, System, _rows

from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, Task
from whenabouts_bench.formats.sentences import Sentence
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.ranking import Ranker, encode_corpus
from whenabouts_systems.ranking.encoded_corpus import Indices

TASKS: tuple[Task, ...] = ("VCMR", "SVMR", "VR")
CLOSE = 2e-4


@dataclass(frozen=True)
class Corpus:
    """The videos and queries of a case, as our data classes read them."""

    case: Golden
    inputs: Inputs

    @property
    def videos(self) -> list[dict[str, Any]]:
        return list(self.case.told["videos"])

    @property
    def queries(self) -> list[dict[str, Any]]:
        return list(self.case.told["queries"])

    @property
    def query_ids(self) -> list[str]:
        return [str(query["desc_id"]) for query in self.queries]

    def clips_of(self, rows: Indices) -> ClipBatch:
        videos = [self.videos[row] for row in rows.tolist()]
        features = [{"frames": self.case.arrays[f"raw.v_feat.{v['name']}"].numpy()} for v in videos]
        said = [
            [Sentence(start, end, " ".join(map(str, words))) for start, end, words in video["subs"]]
            for video in videos
        ]
        return self.inputs.clips(features, transcripts=said)

    def query_batch(self, rows: Indices) -> QueryBatch:
        return self.inputs.sentences([" ".join(map(str, self.queries[row]["tokens"])) for row in rows])

    def decoding(self, *, suppressed: bool = False) -> Decoding:
        told = self.case.told["infer"]
        return Decoding(
            min_clips=told["min_pred_l"],
            max_clips=told["max_pred_l"],
            ends="as-released",
            top_videos=told["max_vcmr_video"],
            spans_per_query=told["max_after_nms"],
            # The program suppresses within lists that are cut already.
            nms=told["nms_thd"] if suppressed else None,
            spans_before_nms=told["max_after_nms"],
        )

    def lists(self, *, suppressed: bool = False) -> MemoryRun:
        told, videos = self.case.told["infer"], self.videos
        model = self.case.model_with(context_sentences=self.case.told["sub_ctx_len"])
        encoded = encode_corpus(
            model,
            self.clips_of,
            [video["name"] for video in videos],
            clips=[self.inputs.clips_of(video["frames"]) for video in videos],
            clip_seconds=self.inputs.clip_seconds,
            batch_videos=told["video_batch"],
            by_length=False,
        )
        ranker = Ranker(System(model, self.decoding(suppressed=suppressed)), encoded)
        given = {name: q["vid_name"] for name, q in zip(self.query_ids, self.queries, strict=True)}
        (lists,) = ranker.answers(self.query_ids, self.query_batch, TASKS, given=given)
        return MemoryRun("ours", {task: (block,) for task, block in lists.items()})

    def judged(self) -> Annotations:
        collector = AnnotationBuilder("golden", cut=False)
        for name, query in zip(self.query_ids, self.queries, strict=True):
            collector.add_query(name, "words", type=query["type"])
            collector.judge(name, query["vid_name"], *query["ts"])
        return collector.annotations()

    def released(self, entries: Any) -> list[Rows]:
        """Rows above zero, videos by their names."""
        names = {video["idx"]: video["name"] for video in self.videos}
        return [[(names[int(row[0])], *row[1:]) for row in rows if row[3] > 0] for rows in entries]


@pytest.fixture(params=CASES, ids=lambda path: path.stem, scope="module")
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    case = opened(request.param)
    folder = tmp_path_factory.mktemp("numbers")
    write_number_words(folder, case.model.config.cross_modal["vocabulary"])
    width = case.model.config.streams["frames"]
    inputs = Inputs(
        StreamInput(1, False),
        {"frames": StreamInput(width, False)},
        clip_seconds=case.told["vfeat_interval"],
        max_clips=case.told["max_clip_len"],
        long_videos="cut",
        tokenizer=str(folder),
        reads_sentences=True,
    )
    return Corpus(case, inputs)


@torch.no_grad()
def test_raw_videos_become_the_released_frames_and_scores(corpus: Corpus) -> None:
    case = corpus.case
    model = case.model_with(context_sentences=case.told["sub_ctx_len"])
    videos = corpus.clips_of(np.arange(len(corpus.videos)))
    found, mask = model.encode_videos(videos), videos.mask
    assert torch.equal(mask, case.arrays["infer.c_attn_masks"].bool())
    expected = case.arrays["infer.frame_embeddings"]
    torch.testing.assert_close(found.parts["frames"][mask], expected[mask], atol=1e-4, rtol=1e-5)
    asked = model.encode_queries(corpus.query_batch(np.arange(len(corpus.queries))))
    case.near("infer.video_scores", model.score_videos(asked, found), atol=1e-5)


@torch.no_grad()
def test_borders_get_the_released_logits(corpus: Corpus) -> None:
    """Videos go batch by batch, as in the program: padding reaches the last frames before it."""
    case, size = corpus.case, corpus.case.told["infer"]["video_batch"]
    model = case.model_with(context_sentences=case.told["sub_ctx_len"])
    asked = model.encode_queries(corpus.query_batch(np.arange(len(corpus.queries))))
    for rows in torch.split(torch.arange(len(corpus.videos)), size):
        videos = model.encode_videos(corpus.clips_of(rows.numpy()))
        every = torch.cartesian_prod(torch.arange(len(asked)), torch.arange(len(rows)))
        logits = model.border_logits(asked.take(every[:, 0]), videos.take(every[:, 1])).clamp(min=-1e4)
        for border, found in zip(("start", "end"), logits, strict=True):
            stored = case.arrays[f"infer.{border}_logits"][:, rows, : found.shape[1]]
            torch.testing.assert_close(found.view(stored.shape), stored, atol=1e-4, rtol=1e-5)


def test_the_released_lists_come_out(corpus: Corpus) -> None:
    run, weight = corpus.lists(), corpus.case.model.config.alpha
    for task in TASKS:
        (block,) = run.lists[task]
        ours = list(_rows(block, weight if task == "VR" else 1.0))
        _assert_same(ours, corpus.released(corpus.case.arrays[f"infer.{task}"].tolist()))


def test_the_released_lists_come_out_of_suppression(corpus: Corpus) -> None:
    run = corpus.lists(suppressed=True)
    for task in ("VCMR", "SVMR"):
        (block,) = run.lists[task]
        theirs = corpus.released(corpus.case.told["told"]["infer_nms_lists"][task])
        _assert_same(list(_rows(block, 1.0)), theirs)


@pytest.mark.parametrize("suppressed", [False, True], ids=["", "nms"])
def test_the_released_metrics_come_out(corpus: Corpus, suppressed: bool) -> None:
    means = evaluate(corpus.judged(), corpus.lists(suppressed=suppressed), protocol="tvr").means()
    told, compared = corpus.case.told["told"]["infer_metrics"], 0
    threshold = f"_nms_{corpus.case.told['infer']['nms_thd']}"
    for name, value in told.items():
        setting, metric = name.removeprefix("valid_val_").split("/")
        if setting.endswith(threshold) != suppressed or (setting == "VR" and suppressed):
            continue
        task, _, rest = metric.partition("_")
        iou, _, k = rest.rpartition("r")
        before = {"VCMR": "", "SVMR": "SVMR ", "VR": "VR "}[task]
        ours = means[f"{before}R@{k}" + (f",IoU={iou.removesuffix('-')}" if iou else "")]
        assert round(100 * ours, 2) == pytest.approx(value, abs=1e-9), name
        compared += 1
    assert compared == (16 if suppressed else 20)


def _assert_same(ours: list[Rows], theirs: list[Rows]) -> None:
    """The same rows in the same order, but for neighbours whose released scores are close."""
    for mine, expected in zip(ours, theirs, strict=True):
        assert_same_ranking(mine, expected, close=CLOSE, rtol=5e-4)
