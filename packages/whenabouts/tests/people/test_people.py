"""Who speaks by the names in subtitles: filters, naming, merging, undoing, forgetting, through every door."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.index.stream import label_in
from whenabouts.people.linking import LabelVectors, join_labels
from whenabouts.people.naming import People
from whenabouts.types import UsageError

TALK = [
    ("Ada", "We light the engine in the morning."),
    ("Ben", "I would rather light it in the evening."),
    ("Ada", "Then the harbour is dark."),
    ("Speaker 1", "The engine is broken."),
    ("Ben", "Nobody said a word about the engine before."),
    ("Ada", "It is broken all the same."),
] * 3
PANEL = [("Ben", "The glacier melts."), ("Speaker 1", "The glacier grows."), ("Ben", "It melts.")] * 2


def write(path: Path, lines: list[tuple[str, str]]) -> Path:
    stamp = "{:02d}:{:02d}.000".format
    cues = [
        f"{stamp(*divmod(20 * at, 60))} --> {stamp(*divmod(20 * at + 19, 60))}\n{name}: {text}\n"
        for at, (name, text) in enumerate(lines)
    ]
    path.write_text("WEBVTT\n\n" + "\n".join(cues), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    films = tmp_path / "films"
    films.mkdir()
    write(films / "talk.vtt", TALK)
    write(films / "panel.vtt", PANEL)
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        corpus.add(films, speakers=True, processes=1)
    return corpus


def names(corpus: Corpus) -> dict[str, int]:
    return {person.name: len(person.videos) for person in corpus.people.listed()}


def test_everybody_is_listed_and_a_role_belongs_to_its_file(corpus: Corpus) -> None:
    found = names(corpus)
    assert found.pop("Ada") == 1 and found.pop("Ben") == 2
    assert sorted(name.split(" (")[0] for name in found) == ["Speaker 1", "Speaker 1"]


def test_a_search_is_narrowed_to_what_somebody_says(corpus: Corpus) -> None:
    for who, rows in (("Ben", (1, 4)), ("ada", (0, 2, 5))):
        moments = corpus.search("engine", where=f"speaker={who}", within="talk.vtt").moments
        assert moments
        for scored in moments:
            assert any(
                20 * at <= scored.moment.start and scored.moment.end <= 20 * at + 19.001
                for at in range(len(TALK))
                if at % 6 in rows
            )


def test_not_somebody_is_everything_else_and_conditions_meet(corpus: Corpus) -> None:
    ben = corpus.search("glacier", where="speaker=Ben").moments
    others = corpus.search("glacier", where="speaker!=Ben").moments
    assert ben and others
    assert not {m.moment for m in ben} & {m.moment for m in others}
    assert not corpus.search("glacier", where=["speaker=Ben", "speaker!=Ben"]).moments
    assert corpus.search("glacier", where=["speaker=Ben", "name=panel*"]).moments


def test_phrases_and_every_place_are_narrowed_as_well(corpus: Corpus) -> None:
    everywhere = corpus.search("engine", all=True)
    ada = corpus.search("engine", all=True, where="speaker=Ada")
    assert 0 < len(ada) < len(everywhere)
    assert all(scored.moment.start % 120 < 20 for scored in ada)
    quoted = corpus.search('"light the engine"', where="speaker=Ben")
    assert quoted.answer != "match" and "nobody says" in quoted.notes[0]
    assert len(corpus.search('"light the engine"', all=True, where="speaker=Ben")) == 0


def test_who_is_not_there_is_said_with_those_who_are(corpus: Corpus) -> None:
    result = corpus.search("engine", where="speaker=Zoe")
    assert not result.moments and "no speaker is called 'Zoe'; there are Ben, Ada" in " ".join(result.notes)
    with pytest.raises(UsageError, match="names have no order"):
        corpus.search("engine", where="speaker>=Ada")
    with pytest.raises(UsageError, match="--where speaker=NAME"):
        corpus.search("engine", streams="speaker")


def test_nobody_is_found_where_nobody_is_named(tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:09.000\nThe engine is broken.\n")
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        corpus.add(tmp_path / "talk.vtt", speakers=True, processes=1)
    for operator, count in (("=", 0), ("!=", 1)):
        result = corpus.search("engine", where=f"speaker{operator}Ada")
        assert len(result.moments) == count
        assert "nobody has been found yet" in " ".join(result.notes)


@pytest.mark.slow
def test_facts_of_a_video_with_the_same_key_still_count(tmp_path: Path, corpus: Corpus) -> None:
    lecture = write(tmp_path / "lecture.vtt", [("Eve", "The glacier of the pole."), ("Kim", "Ice.")] * 3)
    with uncalibrated():
        corpus.add(lecture, metadata={"speaker": "Ada"}, processes=1)
    for operator, is_found in (("=", True), ("!=", False)):
        result = corpus.search("glacier", where=f"speaker{operator}Ada")
        assert ("lecture" in {scored.video_id.split("-")[0] for scored in result}) is is_found


@pytest.mark.slow
def test_names_are_given_merged_and_taken_back(corpus: Corpus) -> None:
    role = next(name for name in names(corpus) if name.startswith("Speaker 1 (talk"))
    assert corpus.people.name(role, "  Cy\n Young ") == 1
    assert corpus.search("engine broken", where="speaker=Cy Young").moments
    assert corpus.people.merge("Ada", "Cy Young") == 1
    assert "Cy Young" not in names(corpus)
    assert corpus.people.undo().startswith("merge") and "Cy Young" in names(corpus)
    assert corpus.people.undo().startswith("name") and role in names(corpus)
    with pytest.raises(UsageError, match="nothing to undo"):
        corpus.people.undo()


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "not a name"), ("\x1b\x00", "not a name"), ("x" * 500, "500 characters"), ("Ben", "merge")],
)
def test_what_is_no_name_is_refused(corpus: Corpus, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        corpus.people.name("Ada", name)
    assert "Ada" in names(corpus)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../etc/passwd", "<script>alert(1)</script>", "O'Hara \"; DROP", "名前"])
def test_any_other_name_is_kept_as_it_is(corpus: Corpus, name: str) -> None:
    corpus.people.name("Ada", name)
    assert corpus.search("harbour", where=f"speaker={name}").moments
    assert corpus.people.forget(name) > 0


@pytest.mark.slow
def test_names_outlive_indexing_again(tmp_path: Path, corpus: Corpus) -> None:
    corpus.people.name("Ada", "Ada Lovelace")
    write(tmp_path / "films" / "talk.vtt", [*TALK, ("Ada", "One more word.")])
    with uncalibrated():
        assert corpus.add(tmp_path / "films", processes=1).updated == 1
    assert Corpus(tmp_path / "corpus").people.listed()[0].name == "Ada Lovelace"


@pytest.mark.slow
def test_a_new_name_is_also_that_of_a_video_that_was_away(tmp_path: Path, corpus: Corpus) -> None:
    role = next(name for name in names(corpus) if name.startswith("Speaker 1 (panel"))
    corpus.people.merge("Ben", role)
    corpus.remove("panel.vtt")
    corpus.people.name("Ben", "Benjamin")
    with uncalibrated():
        corpus.add(tmp_path / "films", again=True, processes=1)
    assert names(corpus)["Benjamin"] == 2 and "Ben" not in names(corpus)


@pytest.mark.slow
def test_nobody_unknown_is_named_merged_or_forgotten(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="nobody is called 'Zoe'; there is Ben, Ada"):
        corpus.people.name("Zoe", "Y")
    with pytest.raises(UsageError, match="nobody is called 'Zoe'"):
        corpus.people.forget("Zoe")
    with pytest.raises(UsageError, match="with itself"):
        corpus.people.merge("Ada", "Ada")


@pytest.mark.slow
def test_a_person_whose_name_is_given_in_other_case_is_that_person(corpus: Corpus) -> None:
    assert corpus.people.merge("ada", "Ben") == 1
    assert "ada" not in names(corpus) and names(corpus)["Ada"] == 2
    with pytest.raises(UsageError, match="with itself"):
        corpus.people.merge("Ada", "ada")
    assert corpus.people.name("ada", "Ada") == 1 and corpus.people.name("ADA", "ada") == 1
    assert "ada" in names(corpus) and "Ada" not in names(corpus)


def test_the_command_does_all_of_it(
    tmp_path: Path, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "corpus")
    Corpus(tmp_path / "nobody", create=True)
    assert main(["people", "--corpus", str(tmp_path / "nobody"), "--table"]) == 1
    assert "no people are indexed" in capsys.readouterr().out
    assert main(["people", "--corpus", place]) == 0
    assert {person["name"] for person in json.loads(capsys.readouterr().out)} == names(corpus).keys()
    assert main(["people", "name", "Ada", "Ada L.", "--corpus", place]) == 0
    assert main(["people", "--corpus", place, "merge", "Ada L.", "Ben"]) == 0
    assert main(["people", "undo", "--corpus", place, "--table"]) == 0
    assert "undone: merge" in capsys.readouterr().out
    assert main(["people", "forget", "Ada L.", "--corpus", place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clips"] == 7  # the last turn of a round goes on in the next
    assert main(["people", "forget", "Ada L.", "--corpus", place]) == 2
    assert main(["search", "glacier", "--where", "speaker=ben", "--corpus", place, "--json"]) == 0


@pytest.mark.parametrize("given", [("{}", "undo", "{}2"), ("{}", "{}2"), ("undo", "{}", "{}2"), ("{}", "{}")])
def test_two_corpora_are_refused_before_and_after_the_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...]
) -> None:
    for name in ("a", "a2"):
        Corpus(tmp_path / name, create=True)
    words = (word.format(tmp_path / "a") for word in given)
    line = [part for word in words for part in ([word] if word == "undo" else ["--corpus", word])]
    is_one = len(set(given)) == 1
    assert main(["people", *line]) == (1 if is_one else 2)
    assert ("this command works on one corpus" in capsys.readouterr().err) == (not is_one)


def test_one_video_is_read_without_a_loop_over_the_corpus() -> None:
    count = 200_000
    ids = [f"talk-{row // 200:04d}" for row in range(count)]
    labels = [f"voice {row % 3} ({video_id})" for row, video_id in enumerate(ids)]
    start = np.arange(count, dtype=float)
    rows = pa.table({"video_id": ids, "start": start, "end": start + 1, "text": labels})
    store: Any = SimpleNamespace(
        streams=["speaker"], state_of=lambda _: 1, labels=lambda _: rows, fact=lambda _: None
    )
    people = People(store)
    began = time.perf_counter()
    rows.to_pylist()
    whole = time.perf_counter() - began
    began = time.perf_counter()
    turns = people.turns("speaker", "talk-0007")
    assert time.perf_counter() - began < whole / 3
    assert (len(turns), turns[0]) == (200, (1400.0, 1401.0, "voice 2 (talk-0007)"))


def test_the_work_of_linking_a_label_is_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    random, width = np.random.default_rng(7), 16
    vectors = {}
    for row in range(300):
        video_id = f"talk-{row // 3:04d}"
        label = label_in(f"voice {row % 3}", video_id)
        vectors[label] = LabelVectors(random.normal(size=width), frozenset([video_id]))
    measured: list[int] = []
    norm = np.linalg.norm

    def counted(array: Any, *arguments: Any, **options: Any) -> Any:
        measured.append(np.size(array))
        return norm(array, *arguments, **options)

    monkeypatch.setattr(np.linalg, "norm", counted)
    people: dict[str, str] = {}
    assert join_labels(vectors, people, 0.5) == 300
    assert 1 < len(set(people.values())) < 300
    assert all(len({people[label] for label in list(vectors)[at : at + 3]}) == 3 for at in range(0, 300, 3))
    assert sum(measured) <= 4 * len(vectors) * width
