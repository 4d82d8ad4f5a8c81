"""Simulated sentences: where they are said, what they keep of a caption, and that no query is said whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.simulated_moments import Moment, moments_of
from benchmarks.simulated_sentences import Amounts, Speech, content_words, write_speech

from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.sentences import read_sentences

VERBS = ["opens", "closes", "takes", "holds", "throws", "washes", "drops", "paints"]
THINGS = ["door", "window", "book", "laptop", "pillow", "bottle", "broom", "towel"]
TEXTS = [f"A person {verb} the {thing}." for verb in VERBS for thing in THINGS]
UNLIKE = [f"A person {first}aks the {first}ob." for first in "bcdfghjklmnpqrstvwxz"]
OFTEN = Amounts(spoken=1.0, off=0.0, pause=2.0)


def moments(videos: int = 30) -> dict[str, list[Moment]]:
    return {
        f"v{number}": [Moment(TEXTS[2 * number], 5, 10), Moment(TEXTS[2 * number + 1], 20, 28)]
        for number in range(videos)
    }


def test_what_is_said_of_a_moment_keeps_some_of_its_words_and_changes_some() -> None:
    own = {f"v{number}": [Moment(text, 15, 20)] for number, text in enumerate(UNLIKE)}
    speech, kept = Speech(own, Amounts(spoken=1.0, off=0.0, pause=1e9)), []
    for video, (moment,) in own.items():
        (sentence,) = speech.said(video, 40)
        assert moment.start <= (sentence.start + sentence.end) / 2 <= moment.end
        new, old = content_words(sentence.text), content_words(moment.text)
        assert len(new) == len(old) and new != old
        assert sentence.text.startswith("A person ")
        kept += [word in old for word in new]
    assert 0.2 < sum(kept) / len(kept) < 0.5  # of two words one changes at least


def test_no_caption_is_said_whole_and_sentences_lie_in_the_video_in_order() -> None:
    speech, count = Speech(moments(), OFTEN), 0
    for video in moments():
        said = speech.said(video, 31.5)
        assert not {sentence.text for sentence in said} & set(TEXTS[:60])
        assert all(0 <= sentence.start < sentence.end <= 31.5 for sentence in said)
        assert [sentence.start for sentence in said] == sorted(sentence.start for sentence in said)
        count += len(said)
    assert count > 60


def test_a_video_alone_without_words_or_without_others_says_nothing() -> None:
    assert not Speech({"v": [Moment("A person is there.", 1, 4)], "w": []}, OFTEN).said("w", 0.0)
    assert not Speech({"v": [Moment(TEXTS[0], 1, 4)]}, OFTEN).said("v", 30)
    assert not Speech({"v": [Moment("A person is there.", 1, 4)], "w": []}, OFTEN).said("v", 30)


def test_what_is_said_depends_on_the_seed_and_not_on_what_was_said_before() -> None:
    first, again = Speech(moments(), OFTEN), Speech(moments(), OFTEN)
    first.said("v1", 30)
    assert first.said("v2", 30) == again.said("v2", 30)
    assert first.said("v2", 30) != Speech(moments(), Amounts(spoken=1.0, seed=1)).said("v2", 30)


def annotated(name: str, first: int) -> Annotations:
    builder = AnnotationBuilder(name)
    for number in range(first, first + 20):
        builder.add_video(f"v{number}", 30)
        builder.add_query(f"q{number}", TEXTS[number])
        builder.judge(f"q{number}", f"v{number}", 5, 12)
    return builder.annotations()


def test_files_hold_all_videos_those_to_train_on_and_a_tokenizer_as_hero_expects_it(tmp_path: Path) -> None:
    tokens_of = pytest.importorskip("whenabouts_systems.models.parts.text_encoder").tokens_of
    splits = {"train": annotated("train", 0), "test": annotated("test", 20)}
    write_speech(splits, Amounts(vocabulary=300), lambda name: tmp_path / f"set_{name}")
    whole, train = (read_sentences(tmp_path / f"set_{name}.jsonl") for name in ("said", "said_train"))
    assert len(whole) == 40 and set(train) == set(moments_of(splits["train"]))
    assert {video: whole[video] for video in train} == train
    told = json.loads((tmp_path / "set_said_settings.json").read_text())
    tokenizer = tokens_of(str(tmp_path / "set_tokenizer"))
    assert told["ids"] == 300 and told["<mask>"] == tokenizer.largest_id == 299
    assert tokenizer.words(["<s><pad></s><unk><mask>"], 9) == [[0, 1, 2, 3, 299]]
    # A word is the same at the beginning, and no word is unknown.
    assert tokenizer.words(["door", "the door"], 9)[1][-1:] == tokenizer.words(["door"], 9)[0]
    assert 3 not in tokenizer.words(["Ein Mann läuft"], 50)[0]
