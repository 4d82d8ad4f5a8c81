"""Find phrases with the constituency parser of Kitaev and Klein (2018), used in paper 000: benepar, spaCy.

A name is `benepar`, `benepar:MODEL` or `benepar:MODEL@SPACY`. MODEL is a benepar model by name
(`benepar_en3`) or local path; SPACY is a spaCy model by name or path, which only splits words and sentences.
Without @SPACY, spaCy's rules for English split them, without a download.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import Any

from whenabouts.lines import first_line
from whenabouts_bench.relevance.phrases._tree import RULES, phrases_of, read_tree
from whenabouts_bench.relevance.phrases.protocol import PhraseExtractor, Phrases, PhrasesUnavailable

NAME = "benepar"
_DEFAULT_MODEL = "benepar_en3"
_FINDS_SENTENCES = frozenset({"parser", "senter", "sentencizer"})
_BATCH = 256


def open_phrases(model: str) -> PhraseExtractor:
    """The extractor of `model`, the part of the name after `benepar:`, loaded.

    Raises PhrasesUnavailable, which says what to install.
    """
    parser, _, splitter = model.partition("@")
    parser = parser or _DEFAULT_MODEL
    for package in ("benepar", "spacy"):
        if importlib.util.find_spec(package) is None:
            raise PhrasesUnavailable(
                f"the phrases of {NAME!r} need {package}: pip install 'whenabouts-bench[parser]'; "
                "the extractor `chunks` needs no model"
            )
    nlp = _pipeline(splitter)
    _add_parser(nlp, parser)
    return ConstituencyExtractor(nlp, parser, splitter)


class ConstituencyExtractor:
    """Phrases of constituency trees."""

    def __init__(self, nlp: Any, parser: str, splitter: str) -> None:
        self.name = f"{NAME}:{parser}" + (f"@{splitter}" if splitter else "")
        self._nlp = nlp

    @property
    def fingerprint(self) -> str:
        versions = " ".join(f"{name}={importlib.metadata.version(name)}" for name in ("benepar", "spacy"))
        return f"{self.name} rules={RULES} {versions}"

    def phrases(self, texts: Sequence[str]) -> list[Phrases]:
        documents = self._nlp.pipe([" ".join(text.split()) for text in texts], batch_size=_BATCH)
        return [
            phrases_of([read_tree(sentence._.parse_string) for sentence in document.sents])
            for document in documents
        ]


def _pipeline(splitter: str) -> Any:
    """A spaCy pipeline that splits words and sentences; `splitter` is a spaCy model, "" for the rules."""
    spacy = importlib.import_module("spacy")
    try:
        nlp = spacy.load(splitter) if splitter else spacy.blank("en")
    except OSError as error:
        raise PhrasesUnavailable(
            f"{splitter}: spaCy cannot load this model ({first_line(error)}); fetch it with "
            f"`python -m spacy download {splitter}`, give its path, or leave out @{splitter}"
        ) from None
    if not _FINDS_SENTENCES & set(nlp.pipe_names):
        nlp.add_pipe("sentencizer")
    return nlp


def _add_parser(nlp: Any, parser: str) -> None:
    # The import registers the component with spaCy.
    importlib.import_module("benepar")
    try:
        nlp.add_pipe("benepar", config={"model": parser})
    except (LookupError, OSError, ValueError) as error:
        reason = next(
            (line.strip() for line in str(error).splitlines() if line.strip(" *")), "no reason given"
        )
        raise PhrasesUnavailable(
            f"{parser}: benepar cannot load this model ({reason}); fetch it with "
            f"`python -c \"import benepar; benepar.download('{parser}')\"` or give the path of one"
        ) from None
