"""Videos on an object store: index, search, show, cut and send ranges of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.ray_cluster import cluster_head, nodes
from tests.s3 import Fault, Proxy, Request, free_port, running
from tests.server.conftest import Client, Open, opened  # noqa: F401 - the fixture

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.export.json import read_moments
from whenabouts.video.objects import source_path

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy in front of a store, a real one if it is installed."""
    name = "ceph" if shutil.which("radosgw") else "moto"
    with running(name, tmp_path_factory.mktemp(name)) as server, Proxy(server) as made:
        yield made


@pytest.fixture
def place(proxy: Proxy, monkeypatch: pytest.MonkeyPatch, samples: Path) -> str:
    """A place on the store with two films, one with a subtitle file."""
    for name, value in proxy.server.environment.items():
        monkeypatch.setenv(name, value)
    bucket, client = proxy.server.bucket(), proxy.server.client()
    for name in ("friday.mp4", "friday.vtt", "flower.webm"):
        client.put_object(Bucket=bucket, Key=f"videos/{name}", Body=(samples / name).read_bytes())
    return f"s3://{bucket}/videos"


def test_the_whole_way_of_videos_on_a_store(
    proxy: Proxy,
    place: str,
    samples: Path,
    tmp_path: Path,
    opened: Open,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = Corpus(tmp_path / "c", create=True)
    summary = corpus.add(place, processes=2)
    assert (summary.added, summary.failed) == (2, [])
    record = corpus.resolve(f"{place}/friday.mp4")
    assert record.path == f"{place}/friday.mp4"
    assert record.words == "sidecar:friday.vtt"
    moment = corpus.search("crown jewels", k=1).moments[0]
    assert moment.video_id == record.video_id
    again = corpus.add(place, processes=1)
    assert (again.unchanged, again.added) == (2, 0)

    out = str(tmp_path / "x.mp4")
    code = main(["cut", "--moment", f"{record.path}@1-3", "--out", out, "--corpus", corpus.location])
    assert (code, capsys.readouterr().err) == (0, "")
    assert (tmp_path / "x.mp4").stat().st_size > 10_000
    assert main(["search", "crown jewels", "-k", "1", "--corpus", corpus.location, "--json"]) == 0
    (tmp_path / "found.json").write_text(capsys.readouterr().out)
    found = ["--from", str(tmp_path / "found.json"), "--all-moments", "--corpus", corpus.location]
    assert main(["cut", *found, "--out", str(tmp_path / "y.mp4")]) == 0
    assert main(["export", *found, "--format", "json", "--out", str(tmp_path / "list.json")]) == 0
    (listed,) = read_moments(tmp_path / "list.json")
    assert listed.path == record.path

    client: Client = opened(tmp_path / "c")
    film = (samples / "friday.mp4").read_bytes()
    name = f"/api/videos/{record.video_id}"
    proxy.sent = 0
    part = client.get(f"{name}/file", headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, film[1000:2000])
    assert part.headers["content-range"] == f"bytes 1000-1999/{len(film)}"
    whole = client.get(f"{name}/file")
    assert (whole.status_code, whole.content) == (200, film)
    assert whole.headers["content-type"] == "video/mp4"
    assert client.get(f"{name}/file", headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert client.get(f"{name}/file", headers={"Range": "bytes=99999999-"}).status_code == 416
    assert client.get(f"{name}/thumbnail", params={"at": 3}).content[:2] == b"\xff\xd8"

    key = record.path.removeprefix("s3://").split("/", 1)
    proxy.server.client().put_object(Bucket=key[0], Key=key[1], Body=film + b"\0" * 8)
    assert client.get(f"{name}/file").status_code == 409
    assert corpus.add(place, processes=1).updated == 1
    proxy.server.client().delete_object(Bucket=key[0], Key=key[1])
    assert client.get(f"{name}/file").status_code == 410
    gone = corpus.add(place, processes=1)
    assert [str(path) for path in gone.gone] == [record.path]
    assert [str(path) for path in corpus.add(place, prune=True, processes=1).pruned] == [record.path]


CUES = "1\n00:00:00,500 --> 00:00:03,000\n{}\n"


def test_side_files_on_a_store_are_read_chosen_and_followed(proxy: Proxy, place: str, tmp_path: Path) -> None:
    client, bucket = proxy.server.client(), place.split("/")[2]

    def put(name: str, words: str) -> None:
        client.put_object(Bucket=bucket, Key=f"videos/{name}", Body=CUES.format(words).encode())

    put("flower.en.srt", "a red flower opens")
    put("flower.de.srt", "eine rote Blume geht auf")
    corpus = Corpus(tmp_path / "c", create=True)
    summary = corpus.add(place, processes=1)
    assert (summary.added, summary.left_out) == (2, [])
    flower = corpus.resolve(f"{place}/flower.webm")
    assert flower.words == "sidecar:flower.en.srt"
    assert "searched: en; not searched: de" in summary.choices["subtitles"]
    assert corpus.search("red flower", k=1)[0].video_id == flower.video_id
    assert corpus.add(place, processes=1).unchanged == 2

    assert "searched: de" in corpus.add(place, language="de", processes=1).choices["subtitles"]
    assert corpus.search("Blume", k=1)[0].text == "eine rote Blume geht auf"
    # A changed subtitle file is read again, and after it is deleted the other one is used.
    put("flower.de.srt", "eine rote Tulpe geht auf")
    assert corpus.add(place, processes=1).updated == 1
    assert corpus.search("Tulpe", k=1)[0].video_id == flower.video_id
    client.delete_object(Bucket=bucket, Key="videos/flower.de.srt")
    again = corpus.add(place, processes=1)
    assert again.updated == 1 and "subtitles" not in again.choices
    assert corpus.resolve("flower.webm").words == "sidecar:flower.en.srt"


def test_a_film_on_a_store_that_is_named_alone_finds_its_side_file_in_another_form_of_its_name(
    proxy: Proxy, place: str, samples: Path, tmp_path: Path
) -> None:
    client, bucket = proxy.server.client(), place.split("/")[2]
    for name, body in (
        ("\u00dcber.mp4", (samples / "bottle-detection.mp4").read_bytes()),
        ("u\u0308ber.SRT", CUES.format("about bottles").encode()),
        ("lone.srt", CUES.format("nobody films this").encode()),
    ):
        client.put_object(Bucket=bucket, Key=f"videos/{name}", Body=body)
    corpus = Corpus(tmp_path / "c", create=True)
    assert corpus.add(f"{place}/\u00dcber.mp4", processes=1).added == 1
    assert corpus.search("about bottles", k=1)[0].path.endswith("\u00dcber.mp4")
    # The other files follow. A subtitle file belongs to its film; a transcript without a film is a video.
    assert corpus.add(place, processes=1).added == 3
    names = sorted(Path(video.path).name for video in corpus.records())
    assert names == ["flower.webm", "friday.mp4", "lone.srt", "\u00dcber.mp4"]


def test_a_row_that_names_another_place_is_not_served(
    place: str,
    tmp_path: Path,
    opened: Open,  # noqa: F811
) -> None:
    from dataclasses import replace

    corpus = Corpus(tmp_path / "c", create=True)
    corpus.add(place, processes=1)
    record = corpus.resolve(f"{place}/friday.mp4")
    corpus.store.put_fact("indexed folders", {"paths": ["s3://another/videos"]})
    corpus.store.put_records([replace(record, title="x")])
    assert opened(tmp_path / "c").get(f"/api/videos/{record.video_id}/file").status_code == 403


def test_a_store_that_refuses_half_way_costs_no_video_its_rest_and_the_same_command_finishes(
    proxy: Proxy, place: str, tmp_path: Path
) -> None:
    asked = count()

    def expire(request: Request) -> Fault | None:
        is_film = request.method == "GET" and request.path.endswith("flower.webm")
        return Fault(400, "ExpiredToken") if is_film and next(asked) >= 1 else None

    corpus = Corpus(tmp_path / "c", create=True)
    proxy.fault = expire
    summary = corpus.add(place, likeness=True, processes=1)
    proxy.well()
    assert next(asked) > 1
    assert summary.added == 1
    ((path, why),) = summary.failed
    assert path.name == "flower.webm"
    assert "have expired" in why
    assert "same command" in why
    assert not corpus.store.clips_of("likeness", [record_of(corpus, path)]).text
    again = corpus.add(place, likeness=True, processes=1)
    assert (again.added + again.updated, again.unchanged, again.failed, again.damaged) == (1, 1, [], [])
    whole = Corpus(tmp_path / "whole", create=True)
    whole.add(place, likeness=True, processes=1)
    rows = [each.store.clips_of("likeness", [record_of(each, path)]) for each in (corpus, whole)]
    assert rows[0].end.tolist() == rows[1].end.tolist()
    assert len(rows[0].end) > 1


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_reads_videos_on_a_store_and_a_node_that_does_not_reach_it_is_named(
    place: str, tmp_path: Path
) -> None:
    here = Corpus(tmp_path / "here", create=True)
    here.add(place, likeness=True, processes=1)
    corpus = Corpus(tmp_path / "c", create=True)
    nowhere = f"http://127.0.0.1:{free_port()}"
    with cluster_head() as cluster:
        with nodes(cluster, None, AWS_ENDPOINT=nowhere, AWS_ENDPOINT_URL=nowhere):
            failed = corpus.add(place, likeness=True, ray=cluster.address).failed
        assert len(failed) == 2
        for _, why in failed:
            assert "the node " in why
            assert "a store that cannot be reached" in why
        with nodes(cluster, None):
            summary = corpus.add(place, likeness=True, ray=cluster.address)
    assert (summary.updated + summary.added, summary.failed) == (2, [])
    for row in here.store.videos():
        again = record_of(corpus, source_path(row.path))
        for stream in ("subtitle", "likeness"):
            one, other = here.store.clips_of(stream, [row.video_id]), corpus.store.clips_of(stream, [again])
            assert (one.text, one.end.tolist()) == (other.text, other.end.tolist())
            assert one.vectors.tolist() == other.vectors.tolist()


def record_of(corpus: Corpus, path: Path) -> str:
    """The id of the video at a path, also if it failed."""
    (video_id,) = [row.video_id for row in corpus.store.videos() if row.path == str(path)]
    return video_id
