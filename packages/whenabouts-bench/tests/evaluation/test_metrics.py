"""Names of metrics and of protocols."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.metrics import Metric, metrics_of, parse_metric
from whenabouts_bench.evaluation.protocols import PROTOCOLS, find_protocol


@pytest.mark.parametrize(
    "name",
    [
        "R@10,IoU=0.5",
        "SVMR R@1,IoU=0.7",
        "VR R@100",
        "nDCG@20,IoU=0.7",
        "mAP",
        "mAP,IoU=0.75",
        "mAP,length=short",
        "R@1,IoU=0.5,length=long",
        "mIoU",
        "SVMR mIoU",
        "HL mAP,saliency=4",
        "HL Hit@1,saliency=2",
    ],
)
def test_a_name_that_is_parsed_is_written_the_same(name: str) -> None:
    assert parse_metric(name).name == name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("r@1, iou=0.5", "R@1,IoU=0.5"),
        ("Recall@10,IoU=.5", "R@10,IoU=0.5"),
        ("VMR R@5,IoU=0.7", "SVMR R@5,IoU=0.7"),
        ("vcmr NDCG@10 , IoU = 1", "nDCG@10,IoU=1.0"),
        ("map, LENGTH=Short", "mAP,length=short"),
    ],
)
def test_case_blanks_and_other_names_of_the_same_thing_do_not_matter(written: str, meant: str) -> None:
    assert parse_metric(written).name == meant


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "is not a metric"),
        ("precision@5", "; compute others from --per-query"),
        ("R@0,IoU=0.5", "K begins at 1"),
        ("R@5", "needs an IoU"),
        ("R,IoU=0.5", "needs a rank"),
        ("nDCG@5", "needs an IoU"),
        ("VR R@5,IoU=0.5", "takes no IoU"),
        ("VR mAP", "VR has VR R@100"),
        ("R@5,IoU=1.5", "'1.5' must be a number above 0, at most 1"),
        ("R@5,IoU=nan", "must be a number"),
        ("R@5,IoU=0", "must be a number"),
        ("R@5,IoU=0.5,IoU=0.7", "given twice"),
        ("R@5,IoU=0.5,foo=1", "no setting 'foo'"),
        ("mAP,length=huge", "one of short, middle, long"),
        ("nDCG@5,IoU=0.5,length=short", "nDCG of VCMR takes no length"),
        ("HL mAP", "saliency"),
        ("HL mAP,saliency=2.7", "'2.7' must be a whole number above 0, at most 4"),
        ("mAP,saliency=3", "saliency"),
        ("HL R@1,IoU=0.5,saliency=3", "HL has HL mAP,saliency=4, HL Hit@1"),
        ("Hit@1", "Hit is a metric of HL"),
        ("mIoU,IoU=0.5", "takes no IoU"),
        ("mIoU@5", "K is 1"),
        ("HL Hit@5,saliency=3", "K is 1"),
    ],
)
def test_what_has_no_meaning_is_refused_with_what_is_accepted(written: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_metric(written)
    assert problem in str(refused.value)
    assert "accepted" in str(refused.value)


@given(st.text(max_size=30))
def test_any_text_is_a_metric_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert isinstance(parse_metric(text), Metric)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_metrics_of_a_protocol_are_metrics_and_its_twin_exists(name: str) -> None:
    protocol = PROTOCOLS[name]
    assert [metric.name for metric in metrics_of(protocol)] == list(protocol.metrics)
    assert find_protocol(protocol.label) is protocol
    if name.endswith("-as-released"):
        assert find_protocol(name.removesuffix("-as-released"), as_released=True) is protocol


def test_unknown_protocols_and_versions_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"'qvhighlights' is not a protocol; .*; did you mean 'qvh'"):
        find_protocol("qvhighlights")
    with pytest.raises(UsageError, match="'tvrr' is not a protocol; known: tvr, vcmr"):
        find_protocol("tvrr")
    with pytest.raises(UsageError, match="version 9 is not available; this whenabouts has tvr@1"):
        find_protocol("tvr@9")
    with pytest.raises(UsageError, match="no released program differs"):
        find_protocol("tvr", as_released=True)


def test_a_metric_that_is_asked_twice_is_told_once() -> None:
    assert len(metrics_of(PROTOCOLS["tvr"], ["R@1,IoU=0.5", "r@1,iou=.5"])) == 1
