from __future__ import annotations

import pytest

from whenabouts_bench.relevance.phrases import PhrasesUnavailable, open_phrases, phrase_names


def test_the_folder_is_the_registry() -> None:
    assert phrase_names() == ("benepar", "chunks")


def test_an_unknown_way_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        PhrasesUnavailable, match=r"'magic:x': no such phrase extractor; known: benepar, chunks"
    ):
        open_phrases("magic:x")


def test_what_a_sentence_gives_does_not_depend_on_the_others() -> None:
    pytest.importorskip("HanTa", reason="the phrases of `chunks` need the package HanTa")
    extractor = open_phrases()
    texts = ["a man sits", "", "two dogs run and a cat sleeps", "a man sits"]
    assert extractor.phrases(texts) == [extractor.phrases([text])[0] for text in texts]
    assert extractor.phrases([]) == []
    assert open_phrases(extractor.name).fingerprint == extractor.fingerprint
