"""The benepar extractor with stand-ins for its packages: calls, and errors if they refuse."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whenabouts_bench.relevance.phrases import PhrasesUnavailable, open_phrases

SENTENCE = "man and woman start dancing"
TREE = "(S (NP (NN man) (CC and) (NN woman)) (VP (VBP start) (S (VP (VBG dancing)))))"


class Pipeline:
    """The used part of spaCy's pipeline."""

    def __init__(self, fault: Exception | None = None, names: tuple[str, ...] = ()) -> None:
        self.pipe_names = list(names)
        self.config: dict[str, Any] = {}
        self._fault = fault

    def add_pipe(self, name: str, config: dict[str, Any] | None = None) -> None:
        if name == "benepar" and self._fault:
            raise self._fault
        self.pipe_names.append(name)
        self.config[name] = config

    def pipe(self, texts: list[str], batch_size: int) -> Any:
        for text in texts:
            parts = text.count(SENTENCE)
            yield SimpleNamespace(
                sents=[SimpleNamespace(_=SimpleNamespace(parse_string=TREE)) for _ in range(parts)]
            )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both packages are here; returns a function that says which pipeline spaCy gives."""

    def install(pipeline: Pipeline, fault: Exception | None = None) -> list[str]:
        asked: list[str] = []

        def load(name: str) -> Pipeline:
            asked.append(name)
            if fault:
                raise fault
            return pipeline

        spacy, benepar = ModuleType("spacy"), ModuleType("benepar")
        spacy.load, spacy.blank = load, lambda language: pipeline  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "spacy", spacy)
        monkeypatch.setitem(sys.modules, "benepar", benepar)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: SimpleNamespace())
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "9")
        return asked

    return install


def test_phrases_come_from_the_trees_of_all_sentences(installed: Any) -> None:
    pipeline = Pipeline()
    installed(pipeline)
    extractor = open_phrases("benepar")
    one, two, nothing = extractor.phrases(
        ["man and  woman\nstart dancing", "man and woman start dancing . man and woman start dancing", ""]
    )
    assert one == two and one.verb == ("start dancing", "dancing")
    assert one.clauses == ("man start dancing", "woman start dancing")
    assert nothing.verb == nothing.clauses == ()
    assert pipeline.pipe_names == ["sentencizer", "benepar"]
    assert pipeline.config["benepar"] == {"model": "benepar_en3"}


def test_a_model_of_spacy_is_loaded_where_it_is_named(installed: Any) -> None:
    pipeline = Pipeline(names=("parser",))
    asked = installed(pipeline)
    extractor = open_phrases("benepar:/models/own@en_core_web_md")
    assert asked == ["en_core_web_md"] and pipeline.pipe_names == ["parser", "benepar"]
    assert pipeline.config["benepar"] == {"model": "/models/own"}
    assert extractor.name == "benepar:/models/own@en_core_web_md"
    assert extractor.fingerprint == "benepar:/models/own@en_core_web_md rules=1 benepar=9 spacy=9"


def test_a_missing_parser_model_is_named_with_the_remedy(installed: Any) -> None:
    installed(Pipeline(fault=LookupError("\n*****\n  Resource benepar_en3 not found.\n")))
    with pytest.raises(
        PhrasesUnavailable, match=r"benepar_en3: .*Resource benepar_en3 not found.*benepar\.download"
    ):
        open_phrases("benepar")


def test_a_missing_spacy_model_is_named_with_the_remedy(installed: Any) -> None:
    installed(Pipeline(), fault=OSError("[E050] Can't find model 'xx'."))
    with pytest.raises(PhrasesUnavailable, match=r"xx: spaCy cannot load .*python -m spacy download xx"):
        open_phrases("benepar:@xx")


@pytest.mark.parametrize("package", ["benepar", "spacy"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else SimpleNamespace()
    )
    with pytest.raises(
        PhrasesUnavailable, match=f"need {package}: pip install 'whenabouts-bench\\[parser\\]'"
    ):
        open_phrases("benepar")
