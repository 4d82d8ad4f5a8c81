"""Decode the bytes of a text file in any encoding."""

from __future__ import annotations

import codecs

# UTF-32 before UTF-16, whose mark is a prefix of its mark.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Common encodings of subtitles other than Unicode, each with the most frequent non-ASCII letters of its
# languages. Detectors made for long texts confuse these encodings on a few lines.
_COMMON_LETTERS = {
    "cp1252": "éèêàçäöüßñáíóúôîâëïãåæøù¿¡’“”–…«»ÉÀÇÄÖÜÅÓÍÁ",
    "cp1250": "ąęłśżźćńóčěřšžůáíéýúöüäőűăşţ’„”–…ŁŚŻČŘŠŽÁÉÍ",
    "cp1254": "ığşçöüİĞŞÇÖÜ’“”",
    "cp1257": "āčēģīķļņšūžąęėįųõäöüŠŽ",
    "cp1251": "оеаинтсрвлкмдпуяыьієї–«»…",
    "koi8_r": "оеаинтсрвлкмдпуяыь",
    "cp1253": "αοιετσνηυρπκμλςίόάέήύώ",
    "cp1255": "יוהלאמרתבשנםחפ",
    "cp1256": "اليمنوترهبدعسفحقكةأ",
    "cp874": "านรอกเงมยลวดทสตะปบคหแจพชขใไโผี่้ัิุูำ็",
    "cp932": "",
    "euc_jp": "",
    "gb18030": (
        "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可"
        "也你对生能而子那得于着下自之年过发后作里没什么好去看，。？！"
    ),
    "big5": (
        "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可"
        "也你對生能而子那得於著下自之年過發後作裡沒什麼好去看，。？！"
    ),
    "cp949": "이다는을를가의에고하지한은도로사기나서아어리자시라인그내게니들있요안오해보수만거",
}
_KANA = "".join(map(chr, (*range(0x3041, 0x3097), *range(0x30A1, 0x30FD)))) + "、。？！「」"
# Enough to detect an encoding; the detector's time grows with the text.
_SAMPLE_BYTES = 1 << 16
# UTF-8 with at most this share of invalid bytes is damaged; with more it is another encoding.
_DAMAGED_SHARE = 0.02
# Below this share of common letters the general detector decides.
_SURE = 0.3


def decode_text(data: bytes) -> tuple[str, str]:
    """The text and the name of its encoding. Never fails: invalid bytes become U+FFFD.

    Tried in order: a byte order mark; UTF-16 without a mark, by its zero bytes; UTF-8; and among the usual
    encodings of subtitles the one that gives the most common letters.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace"), name
    # Before UTF-8, because UTF-16 of many alphabets is valid UTF-8 too.
    if (wide := _wide_encoding(data)) is not None:
        return data.decode(wide, "replace"), wide
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        pass
    if _is_damaged_utf8(data):
        return data.decode("utf-8", "replace"), "utf-8"
    name = _legacy_encoding(data)
    return data.decode(name, "replace"), name


def _wide_encoding(data: bytes) -> str | None:
    """UTF-16 without a mark: in most scripts line ends, digits and spaces have a zero byte on one side."""
    sample = data[:_SAMPLE_BYTES]
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    if max(low, high) < len(sample) // 20 + 1:
        return None
    return "utf-16-le" if high > low else "utf-16-be"


def _is_damaged_utf8(data: bytes) -> bool:
    beyond_ascii = sum(byte >= 0x80 for byte in data[: 16 * _SAMPLE_BYTES])
    misfits = data[: 16 * _SAMPLE_BYTES].decode("utf-8", "replace").count("\ufffd")
    return misfits <= _DAMAGED_SHARE * beyond_ascii


def _legacy_encoding(data: bytes) -> str:
    # Lines with non-ASCII letters; numbers and times would dilute the sample.
    sample = b"\n".join(line for line in data.splitlines() if not line.isascii())[:_SAMPLE_BYTES]
    scores = {name: _plausibility(sample, name) for name in _COMMON_LETTERS}
    best = max(scores, key=scores.__getitem__)
    if scores[best] > _SURE:
        return best
    from charset_normalizer import from_bytes

    guess = from_bytes(sample, cp_isolation=list(_COMMON_LETTERS)).best()
    return best if guess is None else guess.encoding


def _plausibility(sample: bytes, encoding: str) -> float:
    """The share of common letters among non-ASCII ones, decoded as `encoding`; 0 if it cannot be decoded."""
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        # The sample may end within a letter, and a file may be damaged slightly.
        text = sample.decode(encoding, "replace")
        if text.count("\ufffd") > 1 + len(text) // 200:
            return 0.0
    letters = [letter for letter in text if letter > "\x7f"]
    common = set(_COMMON_LETTERS[encoding] or _KANA)
    if not letters:
        return 0.0
    # Kana are half of Japanese text and occur nowhere else; GB 18030 has them at the code points of EUC-JP.
    weight = 1.5 if not _COMMON_LETTERS[encoding] else 1.0
    return weight * sum(letter in common for letter in letters) / len(letters)
