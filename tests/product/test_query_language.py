"""A query in one language on words in another says what it does; files know their language."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whenabouts import Corpus
from whenabouts.confidence.background import languages
from whenabouts.product.calibration.measuring import measure
from whenabouts.product.query_language import note_on_languages


def captions(code: str) -> str:
    lines = [
        f"00:{row // 6:02}:{row % 6 * 10:02}.000 --> 00:{row // 6:02}:{row % 6 * 10 + 9:02}.000\n{sentence}\n"
        for row, sentence in enumerate(languages()[code].sentences[:30])
    ]
    return "WEBVTT\n\n" + "\n".join(lines)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, unmeasured: None) -> Corpus:
    folder = tmp_path_factory.mktemp("languages")
    for code in ("en", "de"):
        (folder / f"talk_{code}.vtt").write_text(captions(code), encoding="utf-8")
    made = Corpus(folder / "corpus", create=True)
    made.add(folder, processes=1)
    # As every index run does, but with fewer sentences: here the languages matter, and no rate.
    measure(made.store, made.encoders.for_queries(), languages()["en"].sentences[60:90], made=0)
    return made


def test_each_file_has_its_language_and_can_be_chosen_by_it(corpus: Corpus) -> None:
    spoken = {Path(video.path).stem: video.metadata["language"] for video in corpus.videos()}
    assert spoken == {"talk_en": "en", "talk_de": "de"}
    found = corpus.search("garden", where="language=de")
    assert {scored.title for scored in found} == {"talk de"}
    assert "languages of words: German (1), English (1)" in "\n".join(corpus.stats().lines())
    assert json.loads(json.dumps(corpus.stats().to_json()))["languages"] == {"English": 1, "German": 1}


def test_an_english_query_on_german_words_says_what_it_does(corpus: Corpus) -> None:
    notes = corpus.search("the weather in the mountains").notes
    assert any("of 2 videos 1 in German: the query is in English" in note for note in notes)
    assert any("--text multilingual-e5" in note for note in notes)


def test_a_word_is_found_in_another_form_in_the_language_of_its_file(corpus: Corpus) -> None:
    word = "Häuser"
    hits = corpus.store.match_text("subtitle", word, 100)
    singular = corpus.store.match_text("subtitle", "Haus", 100)
    assert {*zip(hits.video_ids, hits.index.tolist(), strict=True)} == {
        *zip(singular.video_ids, singular.index.tolist(), strict=True)
    }


@pytest.mark.parametrize(
    ("query", "foreign"),
    [("the weather in the mountains", ()), ("das Wetter in den Bergen", ("de",)), ("PyTorch", ("de",))],
)
def test_nothing_is_said_where_the_model_knows_or_the_query_does_not_tell(
    query: str, foreign: tuple[str, ...]
) -> None:
    assert note_on_languages(query, {"en": 3, "de": 2}, foreign) == ""
