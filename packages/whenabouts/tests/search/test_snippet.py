"""The line that answers is what is shown of a moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts import Corpus
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.search.answer import best_clip, from_answer, share_held, weights_of
from whenabouts.search.word_units import Rarity

LINES = (
    "Okay, Houston. I believe we've had a problem here.",
    "This is Houston. Say again, please.",
    "Houston, we've had a problem. We've had a main bus undervolt.",
    "Roger. Main undervolt. Stand by, we are looking at it.",
)
RARITY = Rarity.in_texts(LINES)


@pytest.mark.parametrize(
    ("query", "best"),
    [("Houston, we've had a problem", 2), ("say it again please", 1), ("problems", 0), ("stand by", 3)],
)
def test_the_clip_that_holds_most_of_the_words_is_shown(query: str, best: int) -> None:
    assert best_clip(LINES, np.ones(len(LINES)), weights_of(query, RARITY)) == best


@pytest.mark.parametrize("query", ["spacecraft in danger", "…", "🦁"])
def test_without_shared_words_the_strongest_clip_is_shown(query: str) -> None:
    assert best_clip(LINES, np.array([0.1, 0.2, 0.3, 0.9]), weights_of(query, RARITY)) == 3


def test_weights_are_shares_and_rare_words_weigh_more() -> None:
    weights = weights_of("Houston undervolt please", RARITY)
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["pleas"] > weights["undervolt"] > weights["houston"]
    assert share_held("Houston, please", weights) < share_held("undervolt, please", weights)


def test_what_is_shown_begins_with_the_sentence_that_answers() -> None:
    text = " ".join(LINES)
    assert from_answer(text, weights_of("please say again", RARITY)).startswith(
        "… Say again, please. Houston"
    )
    assert from_answer(text, weights_of("zebra", RARITY)) == text
    assert from_answer("one sentence", weights_of("sentence", RARITY)) == "one sentence"
    chinese = "今天天气很好。氧气罐的压力正在下降。"
    assert (
        from_answer(chinese, weights_of("氧气压力", Rarity.in_texts([chinese]))) == "… 氧气罐的压力正在下降。"
    )


def test_a_text_on_the_screen_is_not_shown_for_another_at_the_same_time(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "screen.corpus", create=True)
    store.add_stream(StreamInfo("screen_text", "words", "a", 0))
    texts = ["quarterly budget review", "budget of the harbour", "nothing else"]
    clips = ClipColumns(np.array([0.0, 10.0, 40.0]), np.array([30.0, 14.0, 50.0]), text=texts)
    store.put_video(VideoRecord("film", "/film.mp4", streams={"screen_text": "a"}), {"screen_text": clips})
    result = Corpus(store.place).search("quarterly budget")
    shown = {(scored.start, scored.end): scored.evidence["screen_text"].text for scored in result}
    assert (shown[0.0, 30.0], shown[10.0, 14.0]) == (texts[0], texts[1])


@pytest.mark.slow
def test_a_search_shows_the_line_that_answers(tmp_path: Path) -> None:
    cues = "".join(
        f"00:00:{10 * at:02d}.000 --> 00:00:{10 * at + 9:02d}.000\n{line}\n\n"
        for at, line in enumerate(LINES)
    )
    (tmp_path / "flight.vtt").write_text(f"WEBVTT\n\n{cues}01:00:00.000 --> 01:00:02.000\nGood night.\n")
    corpus = Corpus(tmp_path / "all.corpus", create=True)
    corpus.add(tmp_path / "flight.vtt", processes=1)
    for query, line in [
        ("Houston, we've had a problem", LINES[2]),
        ("say again please", "Say again, please."),
    ]:
        best = corpus.search(query, 1).moments[0]
        piece = best.evidence["subtitle"]
        assert line in piece.text[: len(line) + 2]
        assert best.moment.start <= piece.start < piece.end <= best.moment.end
