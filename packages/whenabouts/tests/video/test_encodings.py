from __future__ import annotations

import pytest

from whenabouts.video.encodings import decode_text

FRENCH = "Où êtes-vous allés ? Ça n'a pas été facile, mais le garçon a réussi à l'école."
GERMAN = "Das Mädchen hörte die Vögel über den Dächern, und die Straße war schön."
RUSSIAN = "Где вы были вчера вечером? Мы ждали вас до самой ночи, но никто не пришёл."
JAPANESE = "昨日の夜はどこにいましたか。私たちは駅であなたを待っていました。とても寒かったです。"
POLISH = "Gdzie byłeś wczoraj? Źle się czułem, więc poszedłem wcześniej spać. Książka leży na łóżku."


def as_subtitles(text: str) -> str:
    return "".join(
        f"{number}\r\n00:00:{number:02},000 --> 00:00:{number:02},900\r\n{text}\r\n\r\n"
        for number in range(1, 9)
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", [FRENCH, RUSSIAN, JAPANESE])
def test_unicode_in_any_form_is_read(encoding: str, text: str) -> None:
    whole = as_subtitles(text)
    assert decode_text(whole.encode(encoding))[0] == whole


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (FRENCH, "cp1252"),
        (GERMAN, "latin-1"),
        (RUSSIAN, "cp1251"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (POLISH, "cp1250"),
    ],
)
def test_old_encodings_are_recognised(text: str, encoding: str) -> None:
    whole = as_subtitles(text)
    assert decode_text(whole.encode(encoding))[0] == whole


def test_a_few_damaged_bytes_do_not_turn_utf8_into_something_else() -> None:
    data = bytearray(as_subtitles(RUSSIAN * 5).encode())
    place = data.index("ждали".encode())
    data[place] = 0xFF
    text, encoding = decode_text(bytes(data))
    assert encoding == "utf-8" and "самой ночи" in text and "\ufffd" in text


def test_nothing_and_noise_do_not_fail() -> None:
    assert decode_text(b"") == ("", "utf-8")
    assert isinstance(decode_text(bytes(range(128, 256)) * 20)[0], str)
