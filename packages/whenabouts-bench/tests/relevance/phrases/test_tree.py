from __future__ import annotations

import pytest

from whenabouts_bench.relevance.phrases._tree import phrases_of, read_tree, text_of


def test_the_papers_example_gives_the_papers_phrases() -> None:
    found = phrases_of([read_tree(
        "(S (NP (NN man) (CC and) (NN woman)) (VP (VBP start) (S (VP (VBG dancing)))))"
    )])  # fmt: skip
    assert found.verb == ("start dancing", "dancing")
    assert found.noun == ("man and woman",)
    assert found.clauses == ("man start dancing", "woman start dancing")


def test_a_possessive_pronoun_is_no_member_of_a_joined_subject() -> None:
    tree = "(S (NP (PRP$ his) (NN dog) (CC and) (NN cat)) (VP (VBP run)))"
    assert phrases_of([read_tree(tree)]).clauses == ("dog run", "cat run")


@pytest.mark.parametrize(
    ("tree", "clause"),
    [
        ("(SINV (PP (IN on) (NP (NN ice))) (VP (VBZ sits)) (NP (DT a) (NN cat)))", "cat sits"),
        ("(SINV (ADVP (RB never)) (VBZ has) (NP (DT a) (NN man)) (VP (VBN danced)))", "man danced"),
    ],
)
def test_the_subject_of_an_inverted_clause_stands_on_either_side_of_its_verb(tree: str, clause: str) -> None:
    assert phrases_of([read_tree(tree)]).clauses == (clause,)


def test_joined_subjects_and_verbs_are_taken_apart() -> None:
    found = phrases_of([read_tree(
        "(S (NP (NP (DT A) (NN man)) (CC and) (NP (DT a) (NN dog))) "
        "(VP (VP (VBP run)) (CC and) (VP (VBP sit) (ADVP (RB down)))) (. .))"
    )])  # fmt: skip
    assert found.clauses == ("man run", "man sit down", "dog run", "dog sit down")
    assert found.verb == ("run and sit down", "run", "sit down")


def test_a_noun_with_what_it_does_is_a_clause() -> None:
    found = phrases_of([read_tree("(NP (NP (DT a) (NN man)) (VP (VBG holding) (NP (DT a) (NN cup))))")])
    assert found.clauses == ("man holding a cup",)


def test_a_command_without_subject_stands_alone() -> None:
    assert phrases_of([read_tree("(S (VP (VB Discard) (NP (NN lime) (NNS slices))))")]).clauses == (
        "discard lime slices",
    )


def test_words_are_written_as_one_writes_them() -> None:
    tree = "(S (NP (NP (NNP Ross) (POS 's)) (NN hand)) (VP (VBZ is) (RB n't) (ADJP (-LRB- -LRB-) (JJ red))))"
    found = phrases_of([read_tree(tree)])
    assert found.noun == ("ross's hand", "ross's") and found.verb == ("isn't ( red",)
    tree = "(NP (DT the) (NNS '90s) (-LRB- -LSB-) (NN a) (: :--RRB-) (-RRB- -RSB-))"
    assert text_of(read_tree(tree)) == "the '90s [ a :-) ]"
    assert text_of(read_tree("(S (NP (PRP They)) (VP (VBP 're) (VP (VBG getting) (NP (PRP 'em)))))")) == (
        "they're getting 'em"
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "(", "(S", "(S (NP", "man", "(S (NN a)) (S (NN b))", ")(", "(S (NN a)))"),
        *("()", "((NN a))", "(NN a b)", "(NN a (X b))", "(NN (X b) a)", "(S (VP))"),
        "(" + "(VP " * 3_000 + "(VB go)" + ")" * 3_001,
    ],
)
def test_what_is_no_tree_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="constituent"):
        read_tree(text)


def test_a_deep_tree_is_read() -> None:
    found = phrases_of([read_tree("(X " * 3_000 + "(VP (VB go))" + ")" * 3_000)])
    assert found.verb == ("go",)
