"""Cast lists: reading them, and what they change in the captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.intake.files import FormatError
from whenabouts_bench.relevance.imprecise.by_rule import RuleRewriter
from whenabouts_bench.relevance.imprecise.cast import Cast, read_cast
from whenabouts_bench.relevance.imprecise.names import SetNames

LIST = (
    "# who plays\nRobin Scherbatsky\twoman\nHouse\tMale\n\nAllison Cameron\tf\nDrew Cameron\tm\nPhoebe\tF\n"
)


@pytest.fixture
def cast(tmp_path: Path) -> Cast:
    path = tmp_path / "names.tsv"
    path.write_text(LIST, encoding="utf-8")
    return read_cast(path)


def test_each_word_of_a_name_has_a_gender_and_shared_ones_none(cast: Cast) -> None:
    assert cast.nouns == {
        "Robin": "woman", "Scherbatsky": "woman", "House": "man", "Allison": "woman", "Drew": "man",
        "Cameron": "person", "Phoebe": "woman",
    }  # fmt: skip


@pytest.mark.parametrize("slip", ["Pheobe", "Phobe", "Phoeebe", "Phoele"])
def test_one_slip_makes_a_misspelling(cast: Cast, slip: str) -> None:
    assert cast.misspelled(slip) == "Phoebe"
    assert cast.misspelled("Phobes") is None  # two slips
    assert cast.misspelled("Hous") is None  # too short to be sure


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "Robin\tbird\n",
            "line 1: is not a gender: 'bird'; accepted: a name, a tab, and man, woman or person",
        ),
        ("# a\nRobin woman\n", "line 2: is not a gender: ''"),
        ("robin\twoman\n", "line 1: name: is no name: 'robin'; accepted: a word of a capital A to Z"),
        ("Émile\tman\n", "line 1: name: is no name: 'Émile'; accepted: a word of a capital A to Z"),
        ("# nobody\n", "names nobody"),
    ],
)
def test_a_row_that_says_no_person_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "names.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        read_cast(path)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("description", "caption"),
    [
        ("Robin hands a glass to House.", "A woman hands a glass to a man."),
        ("House's cane falls.", "A man's cane falls."),
        ("Pheobe sings and Phoebe smiles.", "A woman sings and she smiles."),
        ("A fan takes Robins hand.", "A fan takes a woman's hand."),
        ("Allison Cameron sits.", "A woman sits."),
        ("Cameron sits.", "A person sits."),
        ("The house is on fire.", "The house is on fire."),
    ],
)
def test_a_cast_list_overrules_what_the_rules_guess(cast: Cast, description: str, caption: str) -> None:
    pytest.importorskip("HanTa", reason="names are found with the tags of HanTa")
    pytest.importorskip("gender_guesser", reason="names are found with a list of given names")
    names = SetNames([description], cast)
    assert RuleRewriter(names).rewrite([description], 0.0) == [caption]
    assert names.names([caption]) == [()]
    assert cast.fingerprint in names.fingerprint


def test_given_names_before_a_surname_say_its_gender() -> None:
    pytest.importorskip("HanTa", reason="names are found with the tags of HanTa")
    pytest.importorskip("gender_guesser", reason="names are found with a list of given names")
    texts = [
        "Lisa Cuddy talks to a nurse.",
        "Lisa Cuddy leaves.",
        "He sees Lisa Cuddy.",
        "Cuddy opens a door.",
    ]
    assert RuleRewriter(SetNames(texts)).rewrite(texts[-1:], 0.0) == ["A woman opens a door."]
