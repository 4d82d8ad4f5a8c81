"""Unrelated sentences by language: complete, alike, and recognised by frequent words and scripts."""

from __future__ import annotations

import pytest

from whenabouts.confidence.background import SENTENCES, language_of, languages
from whenabouts.confidence.probability import FEWEST_SCORES

SPOKEN = {
    "en": "So this is what we have seen in the last part, and you can ask me if it is not clear.",
    "de": "Das ist auch der Grund, warum wir es nicht mit einer Zahl machen, sondern wie ich es sage.",
    "fr": "Alors nous allons voir dans cette partie ce que vous avez fait, et pourquoi ce n'est pas ici.",
    "es": "Y esto es lo que hay que hacer para que no se pierda, como ya está en los datos de aquí.",
    "pt": "Então isso é o que a gente não tem, mas você pode ver que os dados são como no exemplo.",
    "ru": "Мы не знаем, как это так вышло, но если он уже есть в этой таблице, то все будет хорошо.",
    "ar": "هذا هو ما كان في الكتاب الذي قرأناه، ثم نحن هنا من أجل أن نتكلم عن ذلك مع كل من في البيت.",
    "zh": "我们现在来看这个问题，因为它和刚才说的不一样。",
    "ja": "それでは次の問題を見てみましょう。これは前の話とは違います。",
    "hi": "यह वह बात है जो हम पहले से जानते थे और अब इसके बारे में सोचना होगा।",
}


def test_there_are_the_most_used_languages_and_each_has_sentences_enough() -> None:
    assert len(languages()) >= 21
    for code, language in languages().items():
        assert len(language.sentences) == len(set(language.sentences)) >= 40 > FEWEST_SCORES, code
        assert len(language.frequent) >= 20 and language.name.isalpha(), code
        assert all(sentence == " ".join(sentence.split()) for sentence in language.sentences), code
    assert languages()["en"].sentences == SENTENCES


@pytest.mark.parametrize("code", sorted(SPOKEN))
def test_a_language_is_recognised_in_what_is_said(code: str) -> None:
    language = language_of([SPOKEN[code]])
    assert language is not None and language.code == code


@pytest.mark.parametrize(
    "text",
    [
        "Vi har sett att det finns flera sätt att räkna ut vikterna, och nu ska jag visa bilder.",
        "Tämä on suomenkielinen luento syväoppimisesta, ja seuraavaksi katsomme, miten gradientti lasketaan.",
        "Αυτό είναι ένα μάθημα για τη μηχανική μάθηση και τα νευρωνικά δίκτυα που θα δούμε σήμερα μαζί.",
    ],
)
def test_another_language_is_none_of_ours(text: str) -> None:
    assert language_of([text]) is None


def test_english_names_in_technical_talk_do_not_hide_its_language() -> None:
    talk = "Мы берём PyTorch tensor и вызываем backward, но это не так просто, как в NumPy array API для GPU."
    language = language_of([talk])
    assert language is not None and language.code == "ru"
