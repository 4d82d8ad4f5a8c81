"""Names replaced by rule, sentence by sentence."""

from __future__ import annotations

import pytest

from whenabouts_bench.relevance.imprecise.by_rule import RuleRewriter
from whenabouts_bench.relevance.imprecise.names import SetNames

pytest.importorskip("HanTa", reason="names are found with the tags of HanTa")
pytest.importorskip("gender_guesser", reason="names are found with a list of given names")

PAPER = [
    ("Eric and Dr. Gregory were having a conversation.", "Two people were having a conversation."),
    ("Rachel Green and Ross were having a conversation.", "Two people were having a conversation."),
    (
        "Javier and the young man wearing checkered polo was having a conversation.",
        "Two people were having a conversation.",
    ),
]
OTHERS = [
    ("Rachel is shoving a tie into Chandler's mouth.", "A woman is shoving a tie into a man's mouth."),
    ("Ross puts a laundry basket on a table.", "A man puts a laundry basket on a table."),
    ("James' coat is wet.", "A man's coat is wet."),
    ("Maria talks to Monica and Rachel.", "A woman talks to two women."),
    ("Ross hugs Rachel and Joey laughs.", "A man hugs a woman and another man laughs."),
    ("Ross and Monica are dancing and Ross and Monica smile.", "Two people are dancing and they smile."),
    ("Mrs. Hudson opens the door and Mrs. Hudson smiles.", "A woman opens the door and she smiles."),
    ("Ross hugs Chandler and then Ross leaves.", "A man hugs another man and then the man leaves."),
    ("Ross sits down and Ross's phone rings.", "A man sits down and his phone rings."),
    ("A man hugs Ross.", "A man hugs another man."),
    ('Monica yells, "Ross, wait!"', 'A woman yells, "Wait!"'),
    ("Wait, Ross!", "Wait!"),
    ("His friend Ross sits down.", "His friend sits down."),
    ("A worker named Joey eats.", "A worker eats."),
    ("Young Sheldon walks in.", "A young man walks in."),
    ("Doctor Cameron gives an apple to Officer Green.", "A doctor gives an apple to an officer."),
    ("Ross, Joey, and Monica's table is red.", "Some people's table is red."),
]
NAMELESS = [
    "Various people are dancing on Friday in the Park.",
    "Then the old man walks away.",
    "The man in the Frisbee shirt is rosy and will hope for Christmas.",
    "",
    "...!",
]


@pytest.mark.parametrize(("description", "caption"), PAPER)
def test_examples_of_table_2_become_what_the_paper_prints(description: str, caption: str) -> None:
    texts = [text for text, _ in PAPER]
    assert RuleRewriter(SetNames(texts)).rewrite([description], 0.0) == [caption]


@pytest.mark.parametrize(("description", "caption"), OTHERS)
def test_number_gender_and_repetition_are_kept(description: str, caption: str) -> None:
    names = SetNames([text for text, _ in OTHERS])
    assert RuleRewriter(names).rewrite([description], 0.0) == [caption]
    assert names.names([caption]) == [()]


@pytest.mark.parametrize(
    ("description", "caption"),
    [
        ("A worker by the name of Ross eats.", "A worker eats."),
        ("By the name of Ross he is known to Rachel.", "By the name of a man he is known to a woman."),
        ("He goes by the name of Ross.", "He goes by the name of a man."),
    ],
)
def test_a_name_is_dropped_only_after_the_noun_that_it_names(description: str, caption: str) -> None:
    names = SetNames([text for text, _ in OTHERS])
    assert RuleRewriter(names).rewrite([description], 0.0) == [caption]


def test_sentences_without_names_stay_as_they_are() -> None:
    assert RuleRewriter(SetNames(NAMELESS)).rewrite(NAMELESS, 0.0) == NAMELESS


def test_a_surname_that_no_list_has_is_learned_from_the_set_with_its_gender() -> None:
    texts = [
        "Zorbeck opens her bag.",
        "Then Zorbeck laughs at her phone.",
        "The nurse talks to Zorbeck while she waits.",
        "Zorbeck leaves.",
    ]
    names = SetNames(texts)
    assert names.names(texts) == [("Zorbeck",)] * 4
    assert RuleRewriter(names).rewrite(texts[3:], 0.0) == ["A woman leaves."]


def test_an_ordinary_word_with_a_capital_at_the_start_is_no_name() -> None:
    texts = ["Rose petals fall.", "She smells a rose.", "A rose lies there.", "Will and Rose dance."]
    assert SetNames(texts).names(["Will she dance?", "Hope is a word, and hope is good."]) == [(), ()]


def test_capitals_of_headlines_say_nothing() -> None:
    assert SetNames([]).names(["Woman Hand Paint Best Car With Brush"]) == [()]
