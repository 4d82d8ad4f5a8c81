"""Models of a hub: only what is here is opened, and what is fetched is what the hub told (a real server)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.hub_server import COMMIT, Hub, hub_server
from tests.small_disk import mounted

from whenabouts.intake import hub
from whenabouts.intake.hub import HubError

WEIGHTS = bytes(range(256)) * 400


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The files of a small repository, with a pickle that nobody is to open."""
    folder = tmp_path / "repository"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "onnx").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "1_Pooling" / "config.json").write_text('{"a": 1}')
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "onnx" / "config.json").write_text("{}")
    (folder / "README.md").write_text("A card.")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "cache"


@pytest.fixture
def server(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server(repository) as running:
        _ask_at(running, monkeypatch)
        yield running


def _ask_at(running: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", running.address)
    whole = f"{running.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", whole)


def _is_whole(folder: Path) -> bool:
    return (folder / "model.safetensors").is_file()


def test_what_is_shown_before_a_download_is_what_the_hub_tells(server: Hub) -> None:
    pin = hub.look_up("own/clip")
    assert (pin.repository, pin.revision, pin.licence) == ("own/clip", COMMIT, "apache-2.0")
    assert [file.path for file in pin.files] == [
        "1_Pooling/config.json", "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    (weights,) = pin.weights
    assert (weights.size, len(weights.sha256)) == (len(WEIGHTS), 64)
    assert not [path for path in server.asked if "resolve" in path], "looking fetches nothing"


def test_a_model_is_fetched_and_its_revision_pinned(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = hub.look_up("own/clip")
    folder = hub.fetch(pin)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (folder / "1_Pooling" / "config.json").is_file()
    assert not (folder / "pytorch_model.bin").exists()
    assert hub.is_fetched(pin)
    assert hub.pins() == [pin]
    note = folder.parents[1] / "whenabouts.json"
    assert note.stat().st_mode == (folder / "model.safetensors").stat().st_mode, "others may read both"
    server.asked.clear()
    server.commit = "b" * 40
    assert hub.folder_of("own/clip", _is_whole) == folder, "the name means what was fetched"
    assert hub.folder_of(f"own/clip@{COMMIT}", _is_whole) == folder
    assert server.asked == []
    again = hub.fetch(pin)
    assert again == folder
    assert server.asked == [], "nothing is fetched twice"


@pytest.mark.parametrize("branch", ["v1.0", "refs/pr/1"])
def test_a_branch_or_tag_stands_for_what_was_fetched_by_it(server: Hub, branch: str) -> None:
    name = f"own/clip@{branch}"
    with pytest.raises(HubError):
        hub.folder_of(name, _is_whole)
    folder = hub.fetch(hub.look_up(name), model_name=name)
    assert hub.folder_of(name, _is_whole) == folder


def test_the_hubs_own_client_finds_what_was_fetched(server: Hub) -> None:
    from huggingface_hub import hf_hub_download

    folder = hub.fetch(hub.look_up("own/clip"))
    path = hf_hub_download("own/clip", "model.safetensors", revision=COMMIT, local_files_only=True)
    assert Path(path).parent == folder


def test_nothing_is_downloaded_unasked(server: Hub) -> None:
    with pytest.raises(HubError, match=r"not on this machine.*whenabouts models get own/clip") as caught:
        hub.folder_of("own/clip", _is_whole)
    assert "\n" not in str(caught.value)
    assert server.asked == []


def test_a_cache_that_may_not_be_read_is_named(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(HubError, match=r"own/clip@a{40}: .* may not be read; set HF_HOME"):
        hub.folder_of(f"own/clip@{COMMIT}", _is_whole)


def test_another_revision_than_the_one_that_is_here_is_said(server: Hub) -> None:
    hub.fetch(hub.look_up("own/clip"))
    with pytest.raises(HubError, match="this machine has revision aaaaaaaaaaaa, not v9"):
        hub.folder_of("own/clip@v9", _is_whole)


def test_a_file_that_was_deleted_is_named(server: Hub) -> None:
    folder = hub.fetch(hub.look_up("own/clip"))
    (folder / "config.json").unlink()
    with pytest.raises(HubError, match=r"config\.json of it is missing"):
        hub.folder_of("own/clip", _is_whole)
    hub.fetch(hub.look_up("own/clip"))
    assert hub.folder_of("own/clip", _is_whole) == folder


def test_what_the_hubs_own_client_fetched_is_used_as_well(own_cache: Path) -> None:
    place = own_cache / "models--own--clip"
    (place / "snapshots" / COMMIT).mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    with pytest.raises(HubError, match="files of it are missing"):
        hub.folder_of("own/clip", _is_whole)
    (place / "snapshots" / COMMIT / "model.safetensors").write_bytes(WEIGHTS)
    assert hub.folder_of("own/clip", _is_whole) == place / "snapshots" / COMMIT


def test_a_download_that_breaks_off_goes_on(server: Hub, own_cache: Path) -> None:
    pin = hub.look_up("own/clip")
    blobs = own_cache / "models--own--clip" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{pin.weights[0].sha256}.whenabouts-part").write_bytes(WEIGHTS[:1000])
    folder = hub.fetch(pin)
    assert server.ranges == ["bytes=1000-"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert not list(blobs.glob("*part"))


def test_a_connection_that_breaks_off_is_made_again_for_what_is_lacking(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_PAUSE_SECONDS", 0.0)
    server.breaks_after, server.busy = 500, 2
    seen: list[int] = []
    folder = hub.fetch(hub.look_up("own/clip"), lambda file, count: seen.append(count))
    assert server.ranges == ["bytes=500-"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert seen[-1] == len(WEIGHTS)


@pytest.mark.parametrize("length", [500, 10 * len(WEIGHTS)])
def test_a_part_is_begun_again_where_the_hub_knows_no_ranges_or_the_part_is_too_long(
    server: Hub, own_cache: Path, length: int
) -> None:
    server.knows_no_ranges = True
    pin = hub.look_up("own/clip")
    blobs = own_cache / "models--own--clip" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{pin.weights[0].sha256}.whenabouts-part").write_bytes(bytes(length))
    assert (hub.fetch(pin) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_part_that_is_longer_than_the_hubs_file_is_not_kept(
    server: Hub, repository: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_PAUSE_SECONDS", 0.0)
    pin = hub.look_up("own/clip")
    blobs = own_cache / "models--own--clip" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{pin.weights[0].sha256}.whenabouts-part").write_bytes(WEIGHTS[:-1])
    (repository / "model.safetensors").write_bytes(b"short")
    with pytest.raises(HubError, match="hash differs"):
        hub.fetch(pin)
    assert not list(blobs.glob("*part"))


def test_a_file_that_is_longer_than_announced_is_cut_off_and_not_kept(
    server: Hub, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.told_size = 15
    with pytest.raises(HubError, match=r"model\.safetensors is not the file.*longer than 15 bytes.*not kept"):
        hub.fetch(hub.look_up("own/clip"))
    blobs = own_cache / "models--own--clip" / "blobs"
    assert not list(blobs.glob("*part"))
    assert WEIGHTS[:15] not in [path.read_bytes()[:15] for path in blobs.iterdir()]


def test_a_hub_that_sends_a_byte_now_and_then_is_left_at_the_deadline_and_goes_on_later(
    server: Hub, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_FILE_SECONDS", 0.8)
    monkeypatch.setattr(hub, "_SLOWEST_BYTES_A_SECOND", 1e9)
    server.drip = 0.05
    began = time.monotonic()
    with pytest.raises(HubError, match=r"too slow.*which continues the download"):
        hub.fetch(hub.look_up("own/clip"))
    assert time.monotonic() - began < 3
    (part,) = (own_cache / "models--own--clip" / "blobs").glob("*part")
    kept = part.stat().st_size
    assert 0 < kept < 100
    server.drip = 0.0
    hub.fetch(hub.look_up("own/clip"))
    assert server.ranges == [f"bytes={kept}-"]


def test_the_key_is_for_the_hub_and_not_for_where_it_sends(
    server: Hub, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with hub_server(repository) as other:
        server.elsewhere = other.address
        assert (hub.fetch(hub.look_up("own/clip")) / "model.safetensors").read_bytes() == WEIGHTS
        assert set(server.keys) == {"Bearer hf_secret"}
        assert set(other.keys) == {None}


def test_a_key_that_no_request_can_carry_is_refused(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret…")
    with pytest.raises(HubError, match="characters that none may have; set HF_TOKEN") as caught:
        hub.look_up("own/clip")
    assert "secret" not in str(caught.value) and server.asked == []


@pytest.mark.slow
def test_a_download_that_broke_off_is_no_model(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_PAUSE_SECONDS", 0.0)
    server.breaks_after = 0
    with pytest.raises(HubError, match=r"broke off.*models get.*again"):
        hub.fetch(hub.look_up("own/clip"))
    with pytest.raises(HubError, match="its download is not finished"):
        hub.folder_of("own/clip", _is_whole)
    server.breaks_after = None
    hub.fetch(hub.look_up("own/clip"))
    hub.folder_of("own/clip", _is_whole)


def test_a_file_with_another_hash_is_not_kept(server: Hub, own_cache: Path) -> None:
    server.lies = True
    with pytest.raises(HubError, match=r"model\.safetensors is not the file.*hash differs"):
        hub.fetch(hub.look_up("own/clip"))
    kept = [path.read_bytes() for path in (own_cache / "models--own--clip" / "blobs").iterdir()]
    assert bytes(len(WEIGHTS)) not in kept
    with pytest.raises(HubError, match="not finished"):
        hub.folder_of("own/clip", _is_whole)


def test_a_failed_change_of_revision_leaves_the_old_one(server: Hub, repository: Path) -> None:
    old = hub.fetch(hub.look_up("own/clip"))
    server.commit, server.lies = "b" * 40, True
    (repository / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(HubError, match="hash differs"):
        hub.fetch(hub.look_up("own/clip"))
    assert hub.folder_of("own/clip", _is_whole) == old


def test_a_model_that_is_larger_than_the_disk_is_not_begun(server: Hub) -> None:
    server.told_size = 10**16
    with pytest.raises(HubError, match=r"needs 10,000,000,067 MB more, and .* MB free; make room"):
        hub.fetch(hub.look_up("own/clip"))
    assert not [path for path in server.asked if "resolve" in path]


@pytest.mark.parametrize("ending", [".whenabouts-part", ""])
def test_room_is_needed_only_for_bytes_that_are_not_here(
    server: Hub, own_cache: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    pin = hub.look_up("own/clip")
    blobs = own_cache / "models--own--clip" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{pin.weights[0].sha256}{ending}").write_bytes(WEIGHTS)
    free = SimpleNamespace(free=len(WEIGHTS) // 2)
    monkeypatch.setattr(hub, "_SPARE_BYTES", 0)
    monkeypatch.setattr("shutil.disk_usage", lambda place: free)
    assert (hub.fetch(pin) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_disk_that_fills_up_is_said(
    server: Hub, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    (repository / "model.safetensors").write_bytes(bytes(3 << 20))
    with mounted(tmp_path / "small", megabytes=1) as small:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(small))
        monkeypatch.setattr(hub, "_SPARE_BYTES", -(10 << 20))
        with pytest.raises(HubError, match="the disk is full; make room"):
            hub.fetch(hub.look_up("own/clip"))


@pytest.mark.parametrize("licence", [None, ""])
def test_a_missing_licence_is_no_licence(server: Hub, licence: str | None) -> None:
    server.licence = licence
    assert hub.look_up("own/clip").licence == ""


def test_what_authors_do_not_give_to_everyone_says_what_to_do(server: Hub) -> None:
    server.gated = True
    with pytest.raises(HubError, match=r"terms accepted at http.*own/clip first; then set HF_TOKEN"):
        hub.fetch(hub.look_up("own/clip"))


def test_a_model_of_pickles_alone_is_refused(server: Hub, repository: Path) -> None:
    (repository / "model.safetensors").unlink()
    with pytest.raises(HubError, match=r"only pytorch_model\.bin, which can run code"):
        hub.look_up("own/clip")
    with pytest.raises(HubError, match=r"has no file 'a\.onnx' there"):
        hub.look_up("own/clip", ["a.onnx"])
    assert [file.path for file in hub.look_up("own/clip", ["README.md"]).files] == ["README.md"]


def test_the_weights_of_a_converted_whisper_are_taken(server: Hub, repository: Path) -> None:
    (repository / "model.safetensors").unlink()
    (repository / "model.bin").write_bytes(b"not a pickle")
    (repository / "vocabulary.txt").write_text("a")
    assert "model.bin" in {file.path for file in hub.look_up("own/clip").files}


@pytest.mark.parametrize(
    ("name", "said"), [("own/none", "no such model"), ("own/clip@v9", "not this revision")]
)
def test_what_the_hub_has_not_is_said(server: Hub, name: str, said: str) -> None:
    with pytest.raises(HubError, match=said):
        hub.look_up(name)


def test_without_a_network_one_line_says_so(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    from huggingface_hub import constants

    with hub_server(repository) as gone:
        pass
    _ask_at(gone, monkeypatch)
    with pytest.raises(HubError, match=r"cannot be reached") as caught:
        hub.look_up("own/clip")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        hub.look_up("own/clip")


def test_files_that_would_leave_their_folder_are_left_out(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Hub.described

    def hostile(self: Hub) -> dict[str, Any]:
        told = described(self)
        told["siblings"] += [
            {"rfilename": name, "size": 3, "blobId": "0" * 40} for name in ("../../x.json", "/etc/x.json")
        ]
        return told

    monkeypatch.setattr(Hub, "described", hostile)
    assert not [file for file in hub.look_up("own/clip").files if "x.json" in file.path]


def _described_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], object]) -> None:
    described = Hub.described

    def hostile(self: Hub) -> dict[str, Any]:
        told = described(self)
        change(told)
        return told

    monkeypatch.setattr(Hub, "described", hostile)


HOSTILE = ["../../../../victim", "/etc", "a" * 39, "A" * 40, "a" * 40 + "\n", "", None, 7, {"a": 1}]


@pytest.mark.parametrize("commit", HOSTILE)
def test_a_malformed_commit_is_refused_before_it_becomes_a_path(
    server: Hub, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, commit: object
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "config.json").write_text("mine")
    _described_with(monkeypatch, lambda told: told.update(sha=commit))
    with pytest.raises(HubError, match=r"own/clip: .* as its commit\), so nothing was fetched"):
        hub.look_up("own/clip")
    assert (victim / "config.json").read_text() == "mine"
    assert not own_cache.exists()


@pytest.mark.parametrize("digest", [value for value in HOSTILE if value not in ("", None)])
@pytest.mark.parametrize("place", ["blobId", "sha256"])
def test_a_malformed_hash_is_refused_before_it_becomes_a_path(
    server: Hub, monkeypatch: pytest.MonkeyPatch, digest: object, place: str
) -> None:
    def change(told: dict[str, Any]) -> None:
        file = told["siblings"][-1]
        (file if place == "blobId" else file.setdefault("lfs", {}))[place] = digest

    _described_with(monkeypatch, change)
    with pytest.raises(HubError, match=r"own/clip: .* as the hash of .*, so nothing was fetched"):
        hub.look_up("own/clip")


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "../../x"},
        {"id": "own/clip@v"},
        {"siblings": [{}]},
        {"siblings": 3},
        {"cardData": 3},
        {"tags": [3]},
    ],
)
def test_a_malformed_description_is_reported(
    server: Hub, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    _described_with(monkeypatch, lambda told: told.update(changes))
    with pytest.raises(HubError, match=r"is malformed.*check HF_ENDPOINT"):
        hub.look_up("own/clip")


def test_a_description_without_end_is_not_read(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_MOST_DESCRIBED_BYTES", 100)
    with pytest.raises(HubError, match="is malformed"):
        hub.look_up("own/clip")


def test_a_note_or_a_reference_that_leads_out_of_the_cache_is_not_followed(
    own_cache: Path, tmp_path: Path
) -> None:
    place, victim = own_cache / "models--own--clip", tmp_path / "victim"
    victim.mkdir()
    (victim / "model.safetensors").write_bytes(WEIGHTS)
    (place / "snapshots").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("../../../victim")
    note = {"repository": "own/clip", "revision": "../../../victim", "licence": "", "files": []}
    (place / "whenabouts.json").write_text(json.dumps(note))
    assert hub.pin_of("own/clip") is None
    for name in ("own/clip", f"own/clip@{victim}", "own/clip@../../../victim"):
        with pytest.raises(HubError, match="not on this machine"):
            hub.folder_of(name, _is_whole)


def test_two_who_fetch_the_same_do_not_meet(server: Hub, own_cache: Path) -> None:
    from whenabouts import locking

    place = own_cache / "models--own--clip"
    place.mkdir(parents=True)
    held = locking.hold(place, ".whenabouts.lock")
    assert held is not None
    (place / "whenabouts-begun.json").write_text("the other's")
    with pytest.raises(HubError, match="another command is fetching it"):
        hub.fetch(hub.look_up("own/clip"))
    assert (place / "whenabouts-begun.json").read_text() == "the other's"
    held.release()
    hub.fetch(hub.look_up("own/clip"))


@pytest.mark.parametrize("name", ["../etc", "a/../b", "a/b/c", "a b", "-x/y", "x@../y", "x@/etc", ""])
def test_what_is_no_name_is_none(name: str) -> None:
    assert not hub.is_name(name)


def test_a_spoiled_note_of_what_was_fetched_is_none(own_cache: Path) -> None:
    place = own_cache / "models--own--clip"
    place.mkdir(parents=True)
    for content in ("", "[]", "{}", '{"files": 3}', '{"files": [{"path": 1}]}'):
        (place / "whenabouts.json").write_text(content)
        assert hub.pin_of("own/clip") is None


def test_no_library_asks_the_hub_while_a_model_is_opened(server: Hub) -> None:
    from huggingface_hub import constants, hf_hub_download

    with (
        hub.nothing_downloaded(),
        hub.nothing_downloaded(),
        pytest.raises(Exception, match=r"(?i)offline|cache"),
    ):
        hf_hub_download("own/clip", "config.json")
    assert server.asked == []
    assert constants.HF_HUB_OFFLINE is False


def test_looking_on_this_machine_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(HubError):
        hub.folder_of("own/clip", _is_whole)
    assert hub.pins() == []
