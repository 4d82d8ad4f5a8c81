"""A judged collection as a data set: whole, loadable, without names of annotators."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.judging.conftest import Clock, task

from whenabouts.cli.main import main
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.judging import publish as publishing
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.model_study import Alpha
from whenabouts_bench.judging.publish import NUMBERS, annotator_numbers, publish
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.tasks import Source, TaskSet


@pytest.fixture
def judged(make_set: Callable[..., TaskSet], clock: Clock) -> Judged:
    """Six tasks of two annotators, of which five are settled; the name of the set looks like markup."""
    tasks = tuple(task(number, f"q{number // 2}") for number in range(6))
    task_set = make_set(*tasks, folder="a [set] <b>")
    journal = Journal.open(task_set, clock)
    for number, grades in enumerate([(1, 1), (2, 3), (0, 0), (4, 4), (3, 3), (0, 4)]):
        for name, grade in zip(("Ada Lovelace", "Bo"), grades, strict=True):
            journal.append(Event("grade", name, f"t{number}", grade))
    return Judged.of(task_set, journal.state())


def test_the_tables_hold_what_was_judged_and_no_names(judged: Judged, tmp_path: Path) -> None:
    out = tmp_path / "out"
    files = publish(judged, out, "CC-BY-4.0")
    assert {str(file.relative_to(out)) for file in files} == {
        "README.md", "croissant.json", "index.html",
        "data/judgements.parquet", "data/queries.parquet", "data/videos.parquet", "data/grades.parquet",
        "qrels.jsonl", "queries.jsonl", "videos.jsonl", "pooled.json",
    }  # fmt: skip
    judgements = pq.read_table(out / "data/judgements.parquet").to_pylist()
    assert judgements[1] == {"query_id": "q0", "video_id": "video", "start": 1.0, "end": 6.0, "grade": 3}
    assert [row["grade"] for row in judgements] == [1, 3, 0, 4, 3]
    assert pq.read_table(out / "data/queries.parquet").num_rows == 3
    assert pq.read_table(out / "data/videos.parquet").to_pylist() == [{"video_id": "video", "duration": 60.0}]
    grades = pq.read_table(out / "data/grades.parquet").to_pylist()
    numbers = annotator_numbers(judged)
    assert sorted(numbers.values()) == [1, 2] and len(grades) == 12
    assert {row["annotator"]: row["grade"] for row in grades[2:4]} == {
        numbers["Ada Lovelace"]: 2,
        numbers["Bo"]: 3,
    }
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"Lovelace" not in written and str(tmp_path).encode() not in written
    assert b"video.mp4" not in written


def test_others_compute_the_agreement_of_the_card(judged: Judged, tmp_path: Path) -> None:
    publish(judged, tmp_path / "out", "CC-BY-4.0")
    given: dict[tuple[str, ...], list[int]] = {}
    for row in pq.read_table(tmp_path / "out/data/grades.parquet").to_pylist():
        given.setdefault(tuple(row[name] for name in ("query_id", "video_id", "start", "end")), []).append(
            row["grade"]
        )
    alpha = Alpha.of([(query_id, grades) for (query_id, *_), grades in given.items()])
    card = (tmp_path / "out/README.md").read_text()
    assert f"Krippendorff's alpha (interval metric): {alpha.value:.2f}" in card
    settled = pq.read_table(tmp_path / "out/data/judgements.parquet").to_pylist()
    assert len(given) - len(settled) == 1  # grades 0 and 4
    assert "also of moments without a final one" in card


def test_others_measure_runs_by_it_and_see_what_was_not_judged(judged: Judged, tmp_path: Path) -> None:
    (judged.task_set.folder / "judging.json").unlink()
    judged.task_set.write({"t0": Source({"run.jsonl": 1}, similarity=0.5, caption="a private caption")})
    judged = Judged.of(judged.task_set, judged.state)
    publish(judged, tmp_path / "out", "CC-BY-4.0")
    truth = read_annotations(tmp_path / "out")
    assert truth.qrels == judged.annotations.qrels and truth.most_grade == 4
    assert truth.queries == judged.annotations.queries and truth.videos == judged.annotations.videos
    assert truth.captions is None and judged.annotations.captions is not None


def test_who_knows_the_names_cannot_work_out_the_numbers(
    make_set: Callable[..., TaskSet], tmp_path: Path
) -> None:
    names, tasks = [f"annotator {number}" for number in range(12)], make_set()
    Journal.open(tasks).append_all([Event("grade", name, "t0", 1) for name in names])
    judged = Judged.of(tasks, Journal.open(tasks).state())
    publish(judged, tmp_path / "out", "CC0-1.0")
    numbers = annotator_numbers(judged)
    assert sorted(numbers) == sorted(names) and sorted(numbers.values()) == [*range(1, 13)]
    salt = 12 * judged.state.time  # the card has it, and imported answers have one time
    tried = sorted(names, key=lambda name: hashlib.sha256(f"{salt} {name}".encode()).digest())
    assert [numbers[name] for name in tried] != [*range(1, 13)]
    assert annotator_numbers(judged) == numbers


def test_annotators_keep_their_numbers_when_others_join(
    make_set: Callable[..., TaskSet], tmp_path: Path
) -> None:
    tasks = make_set()
    numbers: dict[str, int] = {}
    for count in (3, 9, 20):
        Journal.open(tasks).append_all([Event("grade", f"annotator {n}", "t0", 1) for n in range(count)])
        judged = Judged.of(tasks, Journal.open(tasks).state())
        publish(judged, tmp_path / f"of {count}", "CC0-1.0")
        again = annotator_numbers(judged)
        assert again | numbers == again and sorted(again.values()) == [*range(1, count + 1)]
        numbers = again


def test_runs_that_are_known_by_their_paths_are_published_by_their_names(
    judged: Judged, tmp_path: Path
) -> None:
    runs = {"/srv/ada/xml/run.jsonl": 1, "/srv/ada/new/run.jsonl": 2}
    (judged.task_set.folder / "judging.json").unlink()
    judged.task_set.write({"t0": Source(runs)})
    publish(judged, tmp_path / "out", "CC-BY-4.0")
    pool = pq.read_table(tmp_path / "out" / "data/pool.parquet").to_pylist()
    assert [(row["run"], row["rank"]) for row in pool] == [("xml/run", 1), ("new/run", 2)]


def test_the_card_and_the_croissant_file_describe_the_files(judged: Judged, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(judged, out, "CC-BY-4.0")
    _, head, text = (out / "README.md").read_text().split("---\n", 2)
    fields = {
        key: json.loads(value) for key, _, value in (line.partition(": ") for line in head.splitlines())
    }
    assert fields["license"] == "cc-by-4.0"
    for config in fields["configs"]:
        (data,) = config["data_files"]
        assert data["split"] == "test" and (out / data["path"]).is_file()
    assert "5 of 6 moments are settled" in text and "weighted kappa" in text
    croissant = json.loads((out / "croissant.json").read_text())
    assert croissant["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    for file in croissant["distribution"]:
        assert hashlib.sha256((out / file["contentUrl"]).read_bytes()).hexdigest() == file["sha256"]
    for records in croissant["recordSet"]:
        columns = pq.read_schema(out / "data" / f"{records['name']}.parquet").names
        assert [field["source"]["extract"]["column"] for field in records["field"]] == columns
    page = (out / "index.html").read_text()
    assert "<h2>Licence</h2>" in page and "5 of 6 moments" in page


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of those libraries
def test_the_libraries_that_others_use_load_it(judged: Judged, tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    datasets = pytest.importorskip("datasets")
    out = tmp_path / "out"
    publish(judged, out, "CC-BY-4.0")
    records = list(mlcroissant.Dataset(out / "croissant.json").records("judgements"))
    assert [record["judgements/grade"] for record in records] == [1, 3, 0, 4, 3]
    loaded = datasets.load_dataset(str(out), "grades", cache_dir=str(tmp_path / "cache"))
    assert loaded["test"].num_rows == 12
    assert (
        datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["test"].column_names[-1] == "grade"
    )


def test_nothing_is_half_written_or_replaced(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="SPDX identifier"):
        publish(judged, out, "../mine")

    def full(card: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_page", full)
        with pytest.raises(FormatError, match="No space left"):
            publish(judged, out, "CC0-1.0")
    assert not list(tmp_path.glob("*out*"))
    assert not (judged.task_set.folder / NUMBERS).exists()
    publish(judged, out, "CC0-1.0")
    with pytest.raises(UsageError, match="exists; name a new folder"):
        publish(judged, out, "CC0-1.0")


def test_by_the_command(
    judged: Judged, make_set: Callable[..., TaskSet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, folder = str(tmp_path / "out"), str(judged.task_set.folder)
    assert main(["judgements", folder, "--publish", out]) == 2
    assert "--licence" in capsys.readouterr().err
    assert main(["judgements", folder, "--publish", out, "--licence", "CC-BY-4.0", "--json"]) == 0
    assert str(tmp_path / "out" / "README.md") in json.loads(capsys.readouterr().out)["files"]
    empty = str(make_set(folder="empty").folder)
    assert main(["judgements", empty, "--publish", out + "2", "--licence", "CC-BY-4.0"]) == 2
    assert "nothing is settled yet" in capsys.readouterr().err
