"""Co-occurrence of words in queries: counted, written, read, and queried."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.intake.files import FormatError
from whenabouts_bench.relevance.cooccurrence import FIRST_NOUNS, Cooccurrence, Words, words_of

SENTENCES = (
    "A person opens the door.",
    "Someone opened two doors and closed a window",
    "Monica is closing the window.",
    "The woman has been reading books",
)


def words(nouns: str, verbs: str) -> Words:
    return Words(*(frozenset((word, word) for word in some.split()) for some in (nouns, verbs)))


def test_words_are_common_nouns_and_full_verbs_in_both_forms() -> None:
    found = words_of(SENTENCES)
    assert found[SENTENCES[1]].nouns == {("doors", "door"), ("window", "window")}
    assert found[SENTENCES[1]].verbs == {("opened", "open"), ("closed", "close")}
    assert found[SENTENCES[2]] == Words(frozenset({("window", "window")}), frozenset({("closing", "close")}))
    assert found[SENTENCES[3]].verbs == {("reading", "read")}
    assert words_of([""]) == {"": Words(frozenset(), frozenset())}


def test_nouns_and_their_verbs_are_counted_once_a_sentence_and_stand_in_order() -> None:
    table = Cooccurrence.of(words_of(SENTENCES).values())
    assert list(table.verbs) == ["door", "window", "book", "person", "woman"]
    assert table.verbs["door"] == [("open", 2), ("close", 1)]
    assert table.verbs["window"] == [("close", 2), ("open", 1)]
    assert table.verbs["woman"] == [("read", 1)]


def test_a_query_is_usual_by_the_first_verb_of_one_of_the_first_nouns() -> None:
    nouns = [f"noun{number}" for number in range(FIRST_NOUNS + 1)]
    table = Cooccurrence({noun: [("open", 2), ("close", 1)] for noun in nouns})
    assert table.is_usual(words("noun9 other", "see open"))
    assert not table.is_usual(words("noun9", "close"))
    assert not table.is_usual(words("noun10", "open"))
    assert not Cooccurrence({"door": []}).is_usual(words("door", "open"))
    told = Words(frozenset({("doors", "door")}), frozenset({("opens", "open")}))
    assert Cooccurrence({"door": [("open", 1)]}).is_usual(told)
    assert Cooccurrence({"doors": [("opens", 1)]}).is_usual(told)


def test_a_table_is_read_as_it_was_written_and_in_its_order(tmp_path: Path) -> None:
    table = Cooccurrence.of(words_of(SENTENCES).values())
    table.write(tmp_path / "table.json")
    again = Cooccurrence.read(tmp_path / "table.json")
    assert again == table
    assert list(again.verbs) == list(table.verbs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", r"table\.json.*not a table of nouns and verbs"),
        ("{}", r"not a table of nouns and verbs"),
        ('{"door": [["open"]]}', r"door\[0\]: is not a pair: \['open'\]; accepted: \[verb, count\]"),
        ('{"door": {"open": 3}}', r"door: is not a list: .*\{noun: \[\[verb, count\]"),
        ('{"door": [[3, "open"]]}', r"door\[0\]\[0\]: is not a text: 3"),
        ("{", r"table\.json"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "table.json").write_text(content)
    with pytest.raises(FormatError, match=message):
        Cooccurrence.read(tmp_path / "table.json")
