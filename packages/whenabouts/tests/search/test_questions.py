"""What rules read of a question, and the many sentences that they leave alone."""

from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.index.records import VideoRecord
from whenabouts.search.question_scopes import Names, period
from whenabouts.search.questions import RULES, Question, read

QUOTES = '"“”„«»「」『』＂'
FRIDAY = date(2026, 11, 27)
WEEK, MONTH = "(2026-11-16 to 2026-11-22)", "(2026-10-01 to 2026-10-31)"


def video(video_id: str, path: str, title: str = "", recorded: str = "2020-01-01") -> VideoRecord:
    return VideoRecord(video_id, path=path, title=title, metadata={"recorded": recorded})


NAMES = Names(
    [
        video("a", "/v/lecture-3.mp4", "On bells", "2026-11-18"),
        video("b", "/v/friday.mp4", "His girl Friday", "2026-11-26"),
        video("c", "/v/Lecture 012.mp4", recorded="2024-05-03"),
        video("d", "/v/London.mp4", "London", "2026-11-22T23:59:59"),
        video("e", "/v/core.mp4", "Bitcoin Core v24", "2026-10-31"),
    ]
)


def asked(text: str, literal: tuple[str, ...] = ()) -> Question | None:
    return read(text, NAMES, FRIDAY, literal)


def understood(text: str, literal: tuple[str, ...] = ()) -> tuple[list[str], str]:
    question = asked(text, literal)
    return ([], text) if question is None else ([rule.label for rule in question.rules], question.text)


@pytest.mark.parametrize(
    ("text", "order", "event"),
    [
        ("the first time that a bell rings", "first", "a bell rings"),
        ("The first time a bell rings", "first", "a bell rings"),
        ("When is the first time somebody opens the door?", "first", "somebody opens the door"),
        ("the first moment when you can see the sea", "first", "you can see the sea"),
        ("the first mention of bitcoin", "first", "bitcoin"),
        ("jump to the last time she sings", "last", "she sings"),
        ("the last scene where the train stops", "last", "the train stops"),
        ('the very first time "main bus"', "first", '"main bus"'),
        ("show me every time someone laughs", "every", "someone laughs"),
        ("all the times that the dog barks", "every", "the dog barks"),
        ("all mentions of the budget", "every", "the budget"),
        ("das erste Mal, dass jemand lacht", "first", "jemand lacht"),
        ("Wann war das letzte Mal, als der Zug hielt?", "last", "der Zug hielt"),
        ("die erste Szene, in der ein Hund bellt", "first", "ein Hund bellt"),
        ("jedes Mal, wenn die Tür aufgeht", "every", "die Tür aufgeht"),
        ("immer wenn jemand lacht", "every", "jemand lacht"),
        ("alle Stellen, an denen jemand lacht", "every", "jemand lacht"),
        ("alle Erwähnungen von Bitcoin", "every", "Bitcoin"),
    ],
)
def test_an_order_is_understood(text: str, order: str, event: str) -> None:
    question = asked(text)
    assert question is not None
    assert (question.order, question.text, question.relation, question.scopes) == (order, event, None, ())


@pytest.mark.parametrize(
    ("text", "event", "relation", "other"),
    [
        ("after the applause comes a speech", "a speech", "after", "the applause"),
        ("a man walks in after the dog leaves us", "a man walks in", "after", "the dog leaves us"),
        ("After the talk ends, the film is shown", "the film is shown", "after", "the talk ends"),
        ("the door opens before the lights go out", "the door opens", "before", "the lights go out"),
        ("a bell rings right before a saxophone plays", "a bell rings", "before", "a saxophone plays"),
        ("first the bell rings, then the door opens", "the door opens", "after", "the bell rings"),
        ('"main bus" before "oxygen tank"', '"main bus"', "before", '"oxygen tank"'),
        ('after "main bus" comes "oxygen tank"', '"oxygen tank"', "after", '"main bus"'),
        ("nach dem Applaus kommt eine Rede", "eine Rede", "after", "dem Applaus"),
        ("die Tür geht auf, bevor das Licht ausgeht", "die Tür geht auf", "before", "das Licht ausgeht"),
        ("das Licht geht aus, nachdem der Zug abfährt", "das Licht geht aus", "after", "der Zug abfährt"),
        ("nachdem der Zug abfährt, geht das Licht aus", "geht das Licht aus", "after", "der Zug abfährt"),
        ("erst läutet die Glocke, dann geht die Tür auf", "geht die Tür auf", "after", "läutet die Glocke"),
    ],
)  # fmt: skip
def test_two_events_in_order_are_understood(text: str, event: str, relation: str, other: str) -> None:
    question = asked(text)
    assert question is not None
    assert (question.text, question.relation, question.other) == (event, relation, other)


@pytest.mark.parametrize(
    ("text", "event", "without"),
    [
        ('rockets but not "main bus"', "rockets", '"main bus"'),
        ('somebody says "main bus", without "oxygen"', 'somebody says "main bus"', '"oxygen"'),
        ("boats on the river but not a bridge", "boats on the river", "a bridge"),
        ("rockets without the word budget", "rockets", "budget"),
        ("Raketen, aber nicht „main bus“", "Raketen", "„main bus“"),
        ("Raketen ohne das Wort Geld", "Raketen", "Geld"),
    ],
)
def test_what_is_to_be_left_out_is_understood(text: str, event: str, without: str) -> None:
    question = asked(text)
    assert question is not None
    assert (question.text, question.without) == (event, without)


@pytest.mark.parametrize(
    ("text", "label", "event", "ids"),
    [
        ("a bell in lecture-3", "in: lecture-3", "a bell", "a"),
        ("a bell in the video lecture-3", "in: lecture-3", "a bell", "a"),
        ("a bell in lecture 12", "in: Lecture 012", "a bell", "c"),
        ("a bell in friday.mp4", "in: friday", "a bell", "b"),
        ('"the first time" in friday.mp4', "in: friday", '"the first time"', "b"),
        ("in lecture-3, a bell", "in: lecture-3", "a bell", "a"),
        ("a bell, but not in lecture-3", "not in: lecture-3", "a bell", "a"),
        ("the vote in the video called London", "in: London", "the vote", "d"),
        ('the vote in the recording titled "his girl friday"', "in: friday", "the vote", "b"),
        ("eine Glocke im Video namens London", "in: London", "eine Glocke", "d"),
        ("eine Glocke, aber nicht im Video namens London", "not in: London", "eine Glocke", "d"),
        ("what was said in last week's meeting", f"recorded: last week {WEEK}", "what was said", "ad"),
        ("the vote in yesterday’s call on tax", "recorded: yesterday (2026-11-26)", "the vote on tax", "b"),
        ("the vote in the meeting on 3 May 2024", "recorded: 3 May 2024 (2024-05-03)", "the vote", "c"),
        ("the vote in the meeting of May 3, 2024", "recorded: May 3, 2024 (2024-05-03)", "the vote", "c"),
        ("the vote in the recordings from 2024-05-03", "recorded: 2024-05-03", "the vote", "c"),
        ("the vote in the recordings of last month", f"recorded: last month {MONTH}", "the vote", "e"),
        ("the vote in the videos of 2024", "recorded: 2024 (2024-01-01 to 2024-12-31)", "the vote", "c"),
        ("wer fehlt in der Sitzung von letzter Woche", f"recorded: letzter Woche {WEEK}", "wer fehlt", "ad"),
        ("der Beschluss im gestrigen Meeting", "recorded: gestrigen (2026-11-26)", "der Beschluss", "b"),
        ("wer fehlt in der Sitzung vom 3. Mai 2024", "recorded: 3. Mai 2024 (2024-05-03)", "wer fehlt", "c"),
    ],
)  # fmt: skip
def test_a_scope_is_understood(text: str, label: str, event: str, ids: str) -> None:
    question = asked(text)
    assert question is not None
    assert ([rule.label for rule in question.rules], question.text) == ([label], event)
    assert question.scopes[0].video_ids == set(ids)


@pytest.mark.parametrize(
    "text",
    [
        "after the war",
        "before the war",
        "the day after tomorrow",
        "life after death",
        "happily ever after",
        "not bad",
        "to be or not to be",
        "a kitchen without people",
        "a man without a hat is drumming",
        "the first amendment",
        "the first time was in Paris",
        "the first time zone",
        "the last time I checked",
        "the first time contributors",
        "a girl tries ice skating for the first time",
        "she laughs every time",
        "every time step of the network",
        "Each time the ball reaches base, another kid has a turn",
        "Each time the ball reaches base,another kid has a turn",
        "the first slide",
        "the last man on earth",
        "a protest in London",
        "what changed in Bitcoin Core v24",
        "the vote in the video called nobody knows",
        "who spoke in lecture 4",
        "music of last week",
        "in last week's meeting",
        '"in last week\'s meeting"',
        '"the first time"',
        '"after the applause comes a speech"',
        "after Rachel comes home, Ross leaves her",
        "Phoebe opens her mouth after Ross apologizes to her",
        "Chandler looks at Monica before he leaves",
        "Rachel sits down before typing on a keyboard",
        "a woman stands before a track making hand gestures",
        "the camera turns before the camera performing martial arts moves",
        "House releases the hug after Chase has a look and Wilson laughs",
        "he instructs on how to use them, but not to mix certain elements",
        "more people slide, not a tube",
        "he wants to go but not now",
        "person cuts chili but not a stem",
        "the last dance ends before the lights go out",
        "er geht, bevor sie kommt",
        "nach dem Krieg",
        "nach Hause kommt der Mann",
        "vor dem Fest",
        "nicht schlecht",
        "ohne Worte",
        "zum ersten Mal auf dem Eis",
        "das erste Mal",
        "der erste Weltkrieg",
        "\ue000 the first time that a bell rings",
        "",
        "?",
        "the first time that " + "very " * 50 + "loud bells ring",
    ],
)  # fmt: skip
def test_any_other_sentence_stays_as_it_is(text: str) -> None:
    assert asked(text) is None


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("can you find the part where they talk about mining pools?", "mining pools"),
        ("Where does the speaker explain how routing works", "how routing works"),
        ("what did they say about fees", "fees"),
        ("What was said about the oxygen tank?", "the oxygen tank"),
        ("where is gradient descent discussed", "gradient descent"),
        ("I'm looking for the section on watchtowers", "watchtowers"),
        ("please show me a discussion of covenants", "covenants"),
        ("I remember somebody explaining dropout, where was that?", "dropout"),
        ('the moment when the host mentions "main bus"', '"main bus"'),
        ("find where they start talking about the halving", "the halving"),
        ("did anyone ever mention Python 4", "Python 4"),
        ("who talks about the budget?", "the budget"),
        ("in which episode do they discuss compilers", "compilers"),
        ("is there anything about seed phrases", "seed phrases"),
        ("finde die Stelle, an der sie über Kanäle sprechen", "Kanäle"),
        ("Wo wird über das Budget gesprochen?", "das Budget"),
        ("was sagt der Gast über Gebühren", "Gebühren"),
    ],
)
def test_a_request_for_a_topic_is_searched_for_the_topic(text: str, topic: str) -> None:
    assert understood(text) == ([f"about: {topic}"], topic)
    assert asked(text, ("about",)) is None


@pytest.mark.parametrize(
    "text",
    [
        "where they talk about it",
        "what did he say about that?",
        "people talk about the weather",
        "a woman explains the rules of a game",
        "where is the exit",
        "the part about the budget",
        "what is proof of work",
        '"where do they talk about fees"',
        "what did Rachel say about the wedding",
        "where she goes into the kitchen",
        "he describes a dream about the sea",
        "worüber sprechen sie",
        "who is the speaker",
        "is there anything else",
        "find something on the table",
        "show me the point on the map",
        "the man who mentions it",
        "was ist das",
    ],
)
def test_a_sentence_that_asks_for_no_topic_stays_as_it_is(text: str) -> None:
    assert asked(text) is None


def test_a_topic_is_read_in_a_scope_and_not_beside_an_order() -> None:
    assert understood("where do they talk about fees in lecture-3") == (
        ["about: fees", "in: lecture-3"],
        "fees",
    )
    assert understood("the first time they talk about fees") == (["first"], "they talk about fees")


def test_rules_are_read_together() -> None:
    assert understood('in lecture-3, the first time "main bus"') == (["first", "in: lecture-3"], '"main bus"')
    assert understood("the last time a bell rings before a dog barks in yesterday's lecture") == (
        ["last", "before: a dog barks", "recorded: yesterday (2026-11-26)"],
        "a bell rings",
    )
    assert understood("jedes Mal wenn der Hund bellt, bevor die Tür aufgeht") == (
        ["every time", "before: die Tür aufgeht"],
        "der Hund bellt",
    )
    assert understood("a bell in lecture-3 in the recordings of last week")[0] == [
        "recorded: last week (2026-11-16 to 2026-11-22)",
        "in: lecture-3",
    ]


def test_a_rule_that_is_off_leaves_its_words() -> None:
    text = "the first time a bell rings in lecture-3"
    assert understood(text, ("in",)) == (["first"], "a bell rings in lecture-3")
    assert understood(text, ("first",)) == (["in: lecture-3"], "the first time a bell rings")
    assert understood(text, ("first", "in")) == ([], text)
    assert understood(text, ("all",)) == ([], text)
    for rule, example in (
        ("last", "the last time that a bell rings"),
        ("every", "every time a bell rings"),
        ("after", "after the applause comes a speech"),
        ("before", "the door opens before the lights go out"),
        ("without", 'rockets but not "main bus"'),
        ("about", "where do they talk about rockets"),
        ("outside", "a bell but not in lecture-3"),
        ("recorded", "the vote in yesterday's call"),
    ):
        question = asked(example)
        assert rule in RULES and question is not None and question.rules[0].name == rule
        assert asked(example, (rule,)) is None


@pytest.mark.parametrize(
    ("when", "today", "span"),
    [
        ("this week", date(2026, 11, 23), ("2026-11-23", "2026-11-30")),  # a Monday
        ("last week", date(2026, 11, 23), ("2026-11-16", "2026-11-23")),
        ("last week", date(2026, 11, 22), ("2026-11-09", "2026-11-16")),  # a Sunday
        ("last week", date(2027, 1, 1), ("2026-12-21", "2026-12-28")),
        ("last month", date(2026, 1, 31), ("2025-12-01", "2026-01-01")),
        ("this month", date(2026, 12, 31), ("2026-12-01", "2027-01-01")),
        ("last year", date(2024, 2, 29), ("2023-01-01", "2024-01-01")),
        ("yesterday", date(2024, 3, 1), ("2024-02-29", "2024-03-01")),
        ("29 February 2024", FRIDAY, ("2024-02-29", "2024-03-01")),
        ("01.12.2025", FRIDAY, ("2025-12-01", "2025-12-02")),
        ("Dezember 2025", FRIDAY, ("2025-12-01", "2026-01-01")),
    ],
)
def test_periods_begin_on_mondays_and_firsts(when: str, today: date, span: tuple[str, str]) -> None:
    found = period(when, today)
    assert found is not None and tuple(map(str, found)) == span


@pytest.mark.parametrize("when", ["30 February 2024", "2024-00-10", "December 9999", "aprıl 2024"])
def test_a_date_that_does_not_exist_is_none(when: str) -> None:
    assert period(when, FRIDAY) is None


def test_a_date_that_does_not_exist_stays_words() -> None:
    assert asked("the vote in the meeting of 30 February 2024") is None


# Words that begin, join and end the patterns, with some that belong to none.
_PIECES = (
    "the first last very time that when where every each mention of after before comes follows there is a an "
    "then , . ? but not without in im aus video called lecture-3 lecture 12 friday.mp4 London last week "
    "week's yesterday's meeting recordings from May ſept 2024 2024-13-01 9999-12-31 31.02.2024 das Mal, dass "
    "jedes wenn nachdem bevor erst dann kommt opens leaves he it somebody door find part they talk about "
    '" “ ” „ « » \ue000 \x00 e\u0301'
)


@given(st.lists(st.sampled_from(_PIECES.split(" ")), max_size=45).map(" ".join) | st.text(max_size=200))
def test_no_sentence_is_too_strange_and_nothing_is_lost_by_turning_rules_off(text: str) -> None:
    question = asked(text)
    assert asked(text, RULES) is None
    if question is None:
        return
    assert question.rules and question.text.strip()
    assert asked(text, tuple({rule.name for rule in question.rules})) != question
    assert asked(f"“{text.translate(dict.fromkeys(map(ord, QUOTES)))}”") is None


def test_a_long_sentence_is_read_quickly() -> None:
    for words in (
        "after ",
        "in the recordings of ",
        "the first time ",
        "a, ",
        "in lecture-3 ",
        "1" * 40 + " ",
    ):
        started = time.perf_counter()
        for _ in range(20):
            asked((words * 40)[:2000])
        assert time.perf_counter() - started < 2
