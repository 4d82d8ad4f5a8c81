"""Find the phrases of a bracketed constituency tree, such as `(S (NP (NN man)) (VP (VBZ sings)))`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whenabouts_bench.relevance.phrases.protocol import Phrases, without_article

_TOKEN = re.compile(r"\(|\)|[^\s()]+")
_CLAUSES = frozenset({"S", "SINV", "SQ", "SBAR", "FRAG"})
_JOINS = frozenset({"CC", ",", "CONJP"})
_BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


@dataclass(frozen=True)
class Tree:
    """A constituent: its label, its word if it is a leaf, and its children."""

    label: str
    word: str = ""
    children: tuple[Tree, ...] = ()

    def words(self) -> list[str]:
        """Its words from left to right."""
        return [self.word] if self.word else [word for child in self.children for word in child.words()]

    def constituents(self) -> Iterator[Tree]:
        """All nodes in preorder."""
        yield self
        for child in self.children:
            yield from child.constituents()

    def is_noun(self) -> bool:
        """Whether it is a noun phrase, noun or pronoun."""
        return self.label == "NP" or self.label.startswith(("NN", "PRP", "NX"))


def read_tree(text: str) -> Tree:
    """Parse a bracketed tree. Raises ValueError."""
    tokens = _TOKEN.findall(text)
    tree, place = _node(tokens, 0)
    if place != len(tokens):
        raise ValueError(f"{text[:60]!r} goes on behind its last bracket")
    return tree


def _node(tokens: list[str], place: int) -> tuple[Tree, int]:
    if tokens[place : place + 1] != ["("] or place + 1 >= len(tokens) or tokens[place + 1] in "()":
        raise ValueError(f"no constituent begins at {' '.join(tokens[place : place + 4])!r}")
    label, place = tokens[place + 1], place + 2
    children: list[Tree] = []
    word = ""
    while place < len(tokens) and tokens[place] != ")":
        if tokens[place] == "(":
            child, place = _node(tokens, place)
            children.append(child)
        else:
            word, place = _BRACKETS.get(tokens[place], tokens[place]), place + 1
    if place >= len(tokens):
        raise ValueError(f"the constituent {label} is not closed")
    return Tree(label, word, tuple(children)), place + 1


def phrases_of(trees: list[Tree]) -> Phrases:
    """Verb and noun phrases at every depth, and clauses, of the trees of one text."""
    nodes = [node for tree in trees for node in tree.constituents()]
    verb = [text_of(node) for node in nodes if node.label == "VP"]
    noun = [text_of(node) for node in nodes if node.label == "NP"]
    clauses = [clause for node in nodes for clause in _clauses(node)]
    clauses += [clause for tree in trees for clause in _commands(tree)]
    return Phrases(*(tuple(dict.fromkeys(texts)) for texts in (verb, noun, clauses)))


def text_of(tree: Tree) -> str:
    """The words as normal text in lower case."""
    return re.sub(r" ('\w+|n't|,)(?=\W|$)", r"\1", " ".join(tree.words()).lower())


def _clauses(node: Tree) -> Iterator[str]:
    """Each noun of the subject with each verb phrase: "man start dancing", "woman ..."."""
    if node.label not in _CLAUSES and node.label != "NP":
        return
    verbs = [child for child in node.children if child.label == "VP"]
    if not verbs:
        return
    before = [child for child in node.children[: node.children.index(verbs[0])] if child.label == "NP"]
    if before:
        for noun in _members(before[-1], Tree.is_noun):
            for verb in _members(verbs[0], lambda child: child.label == "VP"):
                yield f"{without_article(text_of(noun))} {text_of(verb)}"


def _commands(root: Tree) -> Iterator[str]:
    """The verb phrases of an imperative: "zoom in on the stage"."""
    verbs = [child for child in root.children if child.label == "VP"]
    if root.label == "S" and verbs and not any(child.is_noun() for child in root.children):
        yield from (text_of(verb) for verb in _members(verbs[0], lambda child: child.label == "VP"))


def _members(node: Tree, is_member: Callable[[Tree], bool]) -> list[Tree]:
    """The conjuncts of a phrase, or the phrase itself."""
    if any(child.label in ("CC", "CONJP") for child in node.children):
        members = [child for child in node.children if child.label not in _JOINS and is_member(child)]
        if len(members) > 1:
            return [deeper for member in members for deeper in _members(member, is_member)]
    return [node]
