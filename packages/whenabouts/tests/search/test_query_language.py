"""A query in one language on words in another says what it does; files know their language."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.calibration.measuring import measure
from whenabouts.confidence.background import languages
from whenabouts.search.query_language import note_on_languages, strange_language


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


def test_a_query_in_a_language_that_nobody_speaks_here_says_what_it_does(corpus: Corpus) -> None:
    notes = corpus.search("le temps qu'il fait dans les montagnes").notes
    assert any("the query is in French, the words here are in German and English" in note for note in notes)
    assert any("ask in German and English" in note for note in notes)


@pytest.mark.slow
def test_a_language_that_was_given_stays_when_the_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text(captions("en"), encoding="utf-8")
    own = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        own.add(tmp_path / "talk.vtt", processes=1, metadata={"language": "fr"})
        (tmp_path / "talk.vtt").write_text(captions("de"), encoding="utf-8")
        assert own.add(tmp_path / "talk.vtt", processes=1).updated == 1
    assert own.videos()[0].metadata == {"language": "fr", "language_from": "given"}


@pytest.mark.slow
def test_thirty_languages_in_one_file_are_several_and_each_is_found_word_for_word(tmp_path: Path) -> None:
    stamp = "{:02d}:{:02d}.000".format
    sentences = json.loads(Path(__file__).with_name("thirty_languages.json").read_text(encoding="utf-8"))
    cues = [
        f"{stamp(*divmod(20 * row, 60))} --> {stamp(*divmod(20 * row + 9, 60))}\n{sentence}\n"
        for row, sentence in enumerate(sentences.values())
    ]
    (tmp_path / "all.vtt").write_text("WEBVTT\n\n" + "\n".join(cues), encoding="utf-8")
    own = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        own.add(tmp_path / "all.vtt", processes=1)
    assert (len(sentences), own.videos()[0].metadata["language"]) == (30, "mul")
    for row, sentence in enumerate(sentences.values()):
        words = sentence.split()
        phrase = " ".join(words[2:5]) if len(words) > 4 else sentence[3:9]
        assert [scored.start for scored in own.search(f'"{phrase}"', all=True)] == [20.0 * row], phrase


@pytest.mark.slow
def test_all_places_of_a_word_are_found_by_the_stemmer_of_the_file(tmp_path: Path) -> None:
    lines = ("Die Häuser am See sind alt und sehr schön.", "Wir kauften ein Haus mit Garten im Dorf.")
    cues = "\n".join(
        f"00:00:{20 * row:02}.000 --> 00:00:{20 * row + 4:02}.000\n{t}\n" for row, t in enumerate(lines)
    )
    (tmp_path / "dorf.de.vtt").write_text("WEBVTT\n\n" + cues, encoding="utf-8")
    own = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        own.add(tmp_path / "dorf.de.vtt", processes=1)
    assert own.videos()[0].metadata["language"] == "de"
    for word in ("Haus", "häuser", '"mit Garten" haus'):
        assert [scored.start for scored in own.search(word, all=True)] == [0.0, 20.0][
            -1 if " " in word else 0 :
        ]
    notes = own.search("Hausboot", all=True).notes
    assert notes[0] == "nobody says Hausboot"


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


def test_a_language_that_is_guessed_from_a_word_is_not_told_as_a_fact() -> None:
    spoken, told = {"en": 5, "zh": 1}, "this corpus's sentence model does not know Chinese."
    note = note_on_languages("bonjour", spoken, {"zh"})
    assert note.startswith(f"of 6 videos 1 in Chinese: {told}")
    assert "the query is in" not in note
    note = note_on_languages("the weather in the mountains", spoken, {"zh"})
    assert note.startswith(f"of 6 videos 1 in Chinese: the query is in English, and {told}")


@pytest.mark.parametrize(
    ("query", "spoken"),
    [
        ("the weather in the mountains", {"en": 3}),
        ("le temps qu'il fait dans les montagnes", {"en": 3, "fr": 1}),
        ("le temps qu'il fait dans les montagnes", {"en": 3, "mul": 1}),
        ("le temps qu'il fait dans les montagnes", {"": 2}),
        ("PyTorch", {"en": 3}),
        ("Stanislaw Kowalczyk", {"en": 3}),
    ],
)
def test_a_query_is_strange_only_where_that_is_sure(query: str, spoken: dict[str, int]) -> None:
    assert strange_language(query, spoken) is None
