"""Find the phrases of a bracketed constituency tree, such as `(S (NP (NN man)) (VP (VBZ sings)))`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from whenabouts_bench.relevance.phrases.protocol import Phrases, without_article

RULES = 1  # version of the rules in this file; incremented if phrases change
_TOKEN = re.compile(r"\(|\)|[^\s()]+")
_CLAUSES = frozenset({"S", "SINV", "SQ", "SBAR", "FRAG"})
_JOINS = frozenset({"CC", ",", "CONJP"})
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_BRACKET = re.compile("|".join(_BRACKETS))
_JOINED = re.compile(r" ('(?:d|ll|m|re|s|ve)|n't|,)(?=\W|$)")


@dataclass(frozen=True)
class Tree:
    """A constituent: its label, its word if it is a leaf, and its children."""

    label: str
    word: str = ""
    children: tuple[Tree, ...] = ()

    def words(self) -> list[str]:
        """Its words from left to right."""
        return [node.word for node in self.constituents() if node.word]

    def constituents(self) -> Iterator[Tree]:
        """All nodes in preorder."""
        stack = [self]
        while stack:
            yield (node := stack.pop())
            stack += reversed(node.children)

    def is_noun(self) -> bool:
        """Whether it is a noun phrase, noun or personal pronoun."""
        return self.label in ("NP", "NX", "PRP") or self.label.startswith("NN")


def read_tree(text: str) -> Tree:
    """Parse a bracketed tree. Raises ValueError."""
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            node = _node(*stack.pop())
            stack[-1].append(node)
        else:
            stack[-1].append(token)
    match stack:
        case [[Tree() as tree]]:
            return tree
    raise ValueError(f"{text[:60]!r} is not one constituent: a label with a word or with constituents")


def _node(label: Any = "", *parts: Any) -> Tree | None:
    match label, parts:
        case str(), [str(word)]:
            return Tree(label, _BRACKET.sub(lambda bracket: _BRACKETS[bracket[0]], word))
        case str(), [Tree(), *_] if all(isinstance(part, Tree) for part in parts):
            return Tree(label, children=parts)
    return None


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
    return _JOINED.sub(r"\1", " ".join(tree.words()).lower())


def _clauses(node: Tree) -> Iterator[str]:
    """Each noun of the subject with each verb phrase: "man start dancing", "woman ..."."""
    if node.label not in _CLAUSES and node.label != "NP":
        return
    verbs = [child for child in node.children if child.label == "VP"]
    if not verbs:
        return
    before = [child for child in node.children[: node.children.index(verbs[0])] if child.label == "NP"]
    if not before and node.label == "SINV":  # "on the table sits a cat"
        before = [child for child in node.children if child.label == "NP"][:1]
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
