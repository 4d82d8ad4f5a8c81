"""The real annotation files, against numbers that an independent script took from their JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.datasets.activitynet_two_annotators import WORDS_FILE, write_two_annotators
from whenabouts_bench.datasets.card import Card
from whenabouts_bench.datasets.doctor import examine
from whenabouts_bench.formats.sentences import read_sentences

CardOf = Callable[[str, str], Card]
Row = tuple[str, str, tuple[tuple[str, float, float], ...]]
"""Query id, text, (video, start, end)."""


@dataclass(frozen=True)
class Expected:
    """A split as its file has it."""

    name: str
    split: str
    videos: int
    queries: int
    judgements: int
    first: Row
    tenth: Row
    last: Row
    means: dict[str, float]
    rules: dict[str, int] = field(default_factory=dict)
    full_pools: int | None = None
    repeated: int = 0


CHARADES_FIRST = "person turn a light on."
CHARADES_LAST: Row = ("7JHW2#3", "person sets a laptop computer on a counter.", (("7JHW2", 3.1, 8.3),))
CUT, TWO_NAMES = "moments end after their video", "videos have two file names"

EXPECTED = [
    Expected(
        "charades-sta",
        "train",
        5_336,
        12_404,
        12_404,
        ("AO8RW#0", "a person is putting a book on a shelf.", (("AO8RW", 0.0, 6.9),)),
        ("KBPDM#1", "a person is awakening.", (("KBPDM", 0.0, 11.1),)),
        ("PRVP0#0", "person walks through the doorway.", (("PRVP0", 10.8, 17.1),)),
        {
            "video_seconds": 30.874420914542725,
            "moment_seconds": 8.17361254434055,
            "moment_share": 0.2685293204042174,
            "words_per_query": 6.208803611738149,
        },
    ),
    Expected(
        "charades-sta",
        "test",
        1_334,
        3_720,
        3_720,
        ("3MSZA#0", CHARADES_FIRST, (("3MSZA", 24.3, 30.4),)),
        ("GBD1Y#1", "person closing the door.", (("GBD1Y", 26.2, 31.3),)),
        CHARADES_LAST,
        {
            "video_seconds": 29.481109445277365,
            "moment_seconds": 7.832397849462364,
            "moment_share": 0.27130438141461216,
            "words_per_query": 6.236021505376344,
        },
    ),
    Expected(
        "activitynet-captions",
        "train",
        10_009,
        37_421,
        37_421,
        (
            "v_QOlSCBRmfWY#0",
            "A young woman is seen standing in a room and leads into her dancing.",
            (("v_QOlSCBRmfWY", 0.83, 19.86),),
        ),
        (
            "v_nwznKOuZM7w#0",
            "Two people are seen moving around a kitchen quickly performing various tasks and sitting down.",
            (("v_nwznKOuZM7w", 0.0, 15.51),),
        ),
        (
            "v_nlkmPF8TBdQ#4",
            "Next, the cooker add the pasta to the squid and mix, then he and serves in a dish while "
            "talking.",
            (("v_nlkmPF8TBdQ", 110.85, 171.08),),
        ),
        {
            "video_seconds": 117.29745928664225,
            "moment_seconds": 35.457265948632696,
            "moment_share": 0.3057288859791625,
            "words_per_query": 13.484460596990994,
        },
        {CUT: 29, "moments have no length": 2, "moments end before they start": 2},
    ),
    Expected(
        "activitynet-captions",
        "val_1",
        4_917,
        17_505,
        17_505,
        ("v_uqiMw7tQ1Cc#0", "A weight lifting tutorial is given.", (("v_uqiMw7tQ1Cc", 0.28, 55.15),)),
        (
            "v_K6Tm5xHkJ5c#1",
            "She demonstrates how to play the instrument while still speaking to the camera and moving all "
            "around.",
            (("v_K6Tm5xHkJ5c", 38.4, 105.47),),
        ),
        (
            "v_5nOc03oiFvk#2",
            "They show more areas of the nearby location as well as more people climbing up the rock and "
            "riding around the area.",
            (("v_5nOc03oiFvk", 118.46, 213.44),),
        ),
        {
            "video_seconds": 118.22523286556903,
            "moment_seconds": 37.72991888032009,
            "moment_share": 0.3229391941496031,
            "words_per_query": 13.583090545558411,
        },
        {CUT: 5},
    ),
    Expected(
        "activitynet-captions",
        "val_2",
        4_885,
        17_031,
        17_031,
        (
            "v_uqiMw7tQ1Cc#0",
            "Two men both dressed in athletic gear are standing and talking in an indoor weight lifting gym "
            "filled with other equipment.",
            (("v_uqiMw7tQ1Cc", 0.0, 4.14),),
        ),
        ("v_K6Tm5xHkJ5c#0", "A woman is standing on a lit stage.", (("v_K6Tm5xHkJ5c", 0.0, 21.78),)),
        (
            "v_xabaKyhx7cg#2",
            "the man places the shoes in a bag and puts the bag in a washing machine.",
            (("v_xabaKyhx7cg", 78.39, 121.53),),
        ),
        {
            "video_seconds": 118.20407983623366,
            "moment_seconds": 40.24812811931217,
            "moment_share": 0.3457235369088614,
            "words_per_query": 12.023075568081733,
        },
        {CUT: 1},
    ),
    Expected(
        "tacos",
        "train",
        75,
        9_790,
        9_790,
        ("s17-d69.avi#0", "He took out a pan", (("s17-d69.avi", 7.6190476190476195, 12.17687074829932),)),
        (
            "s17-d69.avi#9",
            "He put oil in the pan",
            (("s17-d69.avi", 124.93197278911565, 137.58503401360545),),
        ),
        (
            "s25-d52.avi#114",
            "He washes the kiwi and again as well as the knife.",
            (("s25-d52.avi", 180.0, 187.14285714285714),),
        ),
        {
            "video_seconds": 223.61904761904768,
            "moment_seconds": 23.33558121920887,
            "moment_share": 0.10176431566911856,
            "words_per_query": 8.411338100102146,
        },
        {CUT: 43},
        repeated=1_206,
    ),
    Expected(
        "tacos",
        "val",
        27,
        4_436,
        4_436,
        (
            "s34-d28.avi#0",
            "The person gets out a knife.",
            (("s34-d28.avi", 6.836734693877552, 16.564625850340136),),
        ),
        (
            "s34-d28.avi#9",
            "The person adds cream to the oranges.",
            (("s34-d28.avi", 280.0680272108844, 295.2040816326531),),
        ),
        (
            "s36-d70.avi#149",
            "He poured juice in glass",
            (("s36-d70.avi", 159.65986394557825, 184.52380952380955),),
        ),
        {
            "video_seconds": 386.9160997732427,
            "moment_seconds": 34.32361537942503,
            "moment_share": 0.08491067271191874,
            "words_per_query": 8.673579801623085,
        },
        repeated=517,
    ),
    Expected(
        "tacos",
        "test",
        25,
        4_001,
        4_001,
        ("s30-d52.avi#0", "She took out kiwi", (("s30-d52.avi", 4.795918367346939, 12.040816326530614),)),
        ("s30-d52.avi#9", "She cut 2nd kiwi", (("s30-d52.avi", 151.7687074829932, 166.9387755102041),)),
        (
            "s30-d29.avi#191",
            "Slice the herbs into fine pieces with the knife and place the cut herbs on the plate, throw "
            "away any unwanted stems and put away the herbs.",
            (("s30-d29.avi", 196.87074829931973, 206.3265306122449),),
        ),
        {
            "video_seconds": 367.1523809523809,
            "moment_seconds": 31.870042693408166,
            "moment_share": 0.08759489188266284,
            "words_per_query": 8.525868532866783,
        },
        {CUT: 5},
        repeated=572,
    ),
    Expected(
        "didemo",
        "val",
        1_065,
        4_180,
        4_511,
        (
            "49152",
            "the man in the hat briefly bends over the machine",
            (("35034348999@N01_6060447507_dc1a90b8ef", 5.0, 10.0),),
        ),
        (
            "8210",
            "a plane pulls up to the jet way and stops",
            (("55231259@N00_5620377958_132cabfe38", 0.0, 5.0),),
        ),
        ("49151", "the toy first lights up", (("8386966@N03_2591784963_2fa81dd543", 0.0, 5.0),)),
        {
            "video_seconds": 29.173708920187792,
            "moment_seconds": 6.627133673243184,
            "words_per_query": 7.475598086124402,
            "relevant_per_query": 4_511 / 4_180,
        },
        {TWO_NAMES: 29},
        repeated=1,
    ),
    Expected(
        "didemo",
        "test",
        1_004,
        4_021,
        4_338,
        (
            "1",
            "someone kicks the bug towards some rocks.",
            (
                ("26292851@N04_4253489686_265c3c8051", 20.0, 25.0),
                ("26292851@N04_4253489686_265c3c8051", 0.0, 5.0),
            ),
        ),
        (
            "49176",
            "a woman wearing a green and yellow shirt shows her face for the first time",
            (("33439178@N00_12280528136_b1d8fa292c", 5.0, 10.0),),
        ),
        (
            "24575",
            "the camera pans down to show a black night with lights dotting the bottom of the frame.",
            (("69824704@N00_2417884617_95607b9848", 15.0, 30.0),),
        ),
        {
            "video_seconds": 29.40239043824701,
            "moment_seconds": 6.639004149377594,
            "words_per_query": 7.505098234270082,
            "relevant_per_query": 4_338 / 4_021,
        },
        {TWO_NAMES: 33},
    ),
    Expected(
        "qvhighlights",
        "val",
        1_519,
        1_550,
        2_803,
        (
            "2579",
            "A girl and her mother cooked while talking with each other on facetime.",
            (("NUsG9BgSes0_210.0_360.0", 82.0, 150.0),),
        ),
        (
            "8783",
            "A kid in blue hoodie is sitting with a paper in front of him and then he starts to writing on "
            "the paper",
            (("bP5KfdFJzC4_510.0_660.0", 0.0, 144.0),),
        ),
        (
            "8420",
            "Footage of two eggs being fried on a small pan",
            (("_e8_yuedv6w_660.0_810.0", 0.0, 28.0),),
        ),
        {
            "video_seconds": 149.6155365371955,
            "moment_seconds": 23.224402425972173,
            "moment_share": 0.15526205058591697,
            "words_per_query": 10.492903225806451,
            "relevant_per_query": 2_803 / 1_550,
        },
    ),
    Expected(
        "qvhighlights",
        "test",
        1_529,
        1_542,
        0,
        ("3158", "A video covering hill and water from a boat", ()),
        ("4665", "Couple enjoy there trip in Tokyo sharing some awesome pictures", ()),
        ("7898", "A couple  is having fun at the beautiful island", ()),
        {"video_seconds": 149.56180510137344, "words_per_query": 10.509079118028534},
    ),
    Expected(
        "mvmr-charades-sta",
        "test",
        1_334,
        3_720,
        11_411,
        (
            "3MSZA#0",
            CHARADES_FIRST,
            (
                ("3MSZA", 24.3, 30.4),
                ("G2JR9", 20.7, 25.6),
                ("30K2N", 1.7, 6.7),
                ("3CLVI", 3.3, 7.8),
                ("OZ02A", 2.9, 11.8),
            ),
        ),
        (
            "GBD1Y#1",
            "person closing the door.",
            (
                ("GBD1Y", 26.2, 31.3),
                ("5R7VN", 7.1, 14.2),
                ("JFBTV", 16.8, 22.6),
                ("D0Y4L", 0.0, 5.9),
                ("G6ZOB", 7.0, 14.9),
            ),
        ),
        CHARADES_LAST,
        {
            "video_seconds": 29.481109445277365,
            "moment_seconds": 7.856029282833602,
            "words_per_query": 6.233853606027987,
            "relevant_per_query": 3.0694294940796554,
        },
        full_pools=3_716,
    ),
]


@pytest.fixture(scope="module")
def real_folder(shared_data: Path) -> Path:
    """The folder of real annotation files."""
    folder = shared_data / "annotations"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: it holds annotations that may not be redistributed")
    return folder


@pytest.fixture(scope="module")
def card_of(real_folder: Path) -> CardOf:
    """Cards, each made once."""

    @cache
    def make(name: str, split: str) -> Card:
        return open_dataset(name, real_folder).card(split)

    return make


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: f"{expected.name}-{expected.split}")
def test_a_real_split_is_what_its_file_holds(card_of: CardOf, expected: Expected) -> None:
    card = card_of(expected.name, expected.split)
    numbers = card.numbers
    assert (numbers.videos, numbers.queries, numbers.judgements) == (
        expected.videos,
        expected.queries,
        expected.judgements,
    )
    assert numbers.full_pools == expected.full_pools
    assert card.rules == expected.rules
    assert card.repeated_queries == expected.repeated
    for measure, mean in expected.means.items():
        assert getattr(numbers, measure) == pytest.approx(mean, rel=1e-6), measure
    for item, row in ((card.first, expected.first), (card.tenth, expected.tenth), (card.last, expected.last)):
        assert item is not None
        assert (item.query_id, item.text) == row[:2]
        assert [moment[:3] for moment in item.moments] == [pytest.approx(moment) for moment in row[2]]
        assert all(moment[3] == 1.0 for moment in item.moments)


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: f"{expected.name}-{expected.split}")
def test_a_real_split_is_the_known_release_and_agrees_with_the_papers(
    card_of: CardOf, expected: Expected
) -> None:
    card = card_of(expected.name, expected.split)
    assert card.is_known_release is True
    assert card.differing_counts() == ()
    # To the digits in the papers; three means are known to have other definitions.
    known_apart = {("didemo", "moment_seconds"), ("mvmr-charades-sta", "moment_seconds")}
    for measure in ("video_seconds", "moment_seconds", "words_per_query", "relevant_per_query"):
        said: Any = getattr(card.paper, measure)
        if said is not None and (expected.name, measure) not in known_apart:
            assert getattr(card.numbers, measure) == pytest.approx(said, abs=0.00501), measure


@pytest.mark.slow
def test_both_sets_of_activitynet_are_over_the_same_videos(real_folder: Path) -> None:
    dataset = open_dataset("activitynet-captions", real_folder)
    first, second = dataset.annotations("val_1"), dataset.annotations("val_2")
    assert {video.id for video in second.videos} < {video.id for video in first.videos}


@pytest.mark.slow
def test_two_annotators_are_made_of_both_sets(real_folder: Path, tmp_path: Path) -> None:
    both = open_dataset("activitynet-captions", real_folder)
    write_two_annotators(both.annotations("val_2"), both.annotations("val_1"), tmp_path)
    dataset = open_dataset("activitynet-two-annotators", tmp_path)
    counts = {split: dataset.card(split).numbers for split in dataset.splits}
    assert [(one.videos, one.queries) for one in counts.values()] == [
        (2_981, 10_367),
        (460, 1_612),
        (1_444, 5_052),
    ]
    said = read_sentences(tmp_path / WORDS_FILE)
    assert len(said) == 4_885 and sum(map(len, said.values())) == 17_398


@pytest.mark.slow
def test_the_doctor_finds_the_real_files_right_and_says_what_is_missing(real_folder: Path) -> None:
    report = examine(real_folder)
    assert report.exit_code == 1
    found = {dataset.name: dataset for dataset in report.datasets}
    assert set(found) == {expected.name for expected in EXPECTED}
    fine = {
        (name, finding.what)
        for name, dataset in found.items()
        for finding in dataset.findings
        if finding.kind == "annotations" and finding.state == "ok"
    }
    assert fine == {(expected.name, expected.split) for expected in EXPECTED}
    lacking = [finding for finding in found["didemo"].findings if finding.state == "missing"]
    assert [finding.path for finding in lacking] == [
        "train_data.json or didemo_train.db/query_data.jsonl",
        "average_fc7.h5",
    ]
    assert set(report.not_here) == {
        "activitynet-two-annotators",
        "mvmr-activitynet",
        "mvmr-tacos",
        "titled-transcripts",
        "tvr",
        "tvr-ranking",
    }
