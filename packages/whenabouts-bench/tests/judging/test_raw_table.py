"""Released tables of raw grades: the trimmed rule for four grades in any order, the release's counts."""

from __future__ import annotations

import csv
import itertools
import json
import random
from pathlib import Path

import pytest

from whenabouts.cli.main import main
from whenabouts.intake.files import FormatError
from whenabouts_bench.judging.consensus import consensus, consensus_of_set
from whenabouts_bench.judging.raw_table import RawTable


def table(path: Path, pairs: dict[str, tuple[int, ...]]) -> Path:
    rows = [
        f"{pair},{worker},{grade}" for pair, grades in pairs.items() for worker, grade in enumerate(grades)
    ]
    path.write_text("pair_id,worker,relevance\n" + "".join(f"{row}\n" for row in rows))
    return path


@pytest.mark.parametrize("grades", [*itertools.combinations_with_replacement(range(5), 4)])
def test_four_grades_mean_the_trimmed_rule_in_any_order(grades: tuple[int, ...]) -> None:
    orders = [consensus_of_set(order) for order in itertools.permutations(grades)]
    outcomes = {(final.grade, final.missing) for final in orders}
    assert len(outcomes) == 1
    # In an order in which the first two do not agree it is the rule that annotators are asked by.
    asked = next((o for o in itertools.permutations(grades) if abs(o[0] - o[1]) > 1), None)
    if asked is not None:
        assert outcomes == {(consensus(asked).grade, consensus(asked).missing)}


def test_a_table_comes_to_counts_and_final_grades(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = {"0": (4, 3), "1": (0, 0, 0, 2), "2": (1, 1, 3, 3), "3": (0, 2), "4": (2,), "5": (1, 2, 3)}
    raw, out = table(tmp_path / "raw.csv", pairs), tmp_path / "final.csv"
    assert main(["judgements", "--raw", str(raw), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["pairs"], told["grades"], told["annotators"]) == (6, 16, 4)
    assert (told["agreed"], told["agreed with more than two annotators"]) == (2, 1)
    assert (told["discarded"], told["needs more annotators"]) == (1, 3)
    assert out.read_text() == "pair_id,relevance\n0,4\n1,0\n"
    assert main(["judgements", "--raw", str(raw), "--table"]) == 0
    assert "2 settled (1 by four annotators), 1 discarded, 3 need more grades" in capsys.readouterr().out


def test_ids_with_commas_and_quotes_are_kept(tmp_path: Path) -> None:
    raw, out = table(tmp_path / "raw.csv", {'"q 1, ""v"""': (4, 3)}), tmp_path / "final.csv"
    RawTable.read(raw).write(out)
    assert list(csv.reader(out.read_text().splitlines())) == [["pair_id", "relevance"], ['q 1, "v"', "4"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give a task set (FOLDER) or --raw FILE.csv"),
        (("set", "--raw", "raw.csv"), "one of them"),
        (("--raw", "raw.csv", "--exam", "e.jsonl"), "--exam goes with a task set"),
        (("--raw", "raw.csv", "--truth-of", "tiny"), "--truth-of goes with a task set"),
        (("--raw", "raw.csv", "--queries", "3"), "--queries goes with a task set"),
        (("--raw", "raw.csv", "--depth", "3"), "--depth goes with a task set"),
        (("--raw", "raw.csv", "--run", "r.jsonl"), "--run goes with a task set"),
    ],
)
def test_a_table_is_no_task_set(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judgements", *options]) == 2
    assert message in capsys.readouterr().err


def test_more_than_four_grades_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="pair 7: 5 grades of one pair; accepted: at most 4"):
        RawTable.read(table(tmp_path / "raw.csv", {"7": (0, 1, 2, 3, 4)}))


@pytest.mark.slow
def test_a_table_as_large_as_the_release_has_its_counts(tmp_path: Path) -> None:
    """Fabricated with the released counts: 94,442 settled and 2,041 discarded of 227,808 grades."""
    draw = random.Random(3)
    settled_by_four = 17_421 - 2_041
    pairs: dict[str, tuple[int, ...]] = {}
    pairs |= {str(n): draw.choice([(0, 0), (2, 1), (3, 4)]) for n in range(94_442 - settled_by_four)}
    of_four = [(0, 2, 1, 0), (4, 2, 3, 4), (1, 3, 2, 2)]
    pairs |= {f"f{n}": draw.choice(of_four) for n in range(settled_by_four)}
    pairs |= {f"d{n}": (0, 2, 0, 4) for n in range(2_041)}
    told = RawTable.read(table(tmp_path / "raw.csv", pairs)).report()
    assert (told["grades"], told["agreed"], told["discarded"]) == (227_808, 94_442, 2_041)
