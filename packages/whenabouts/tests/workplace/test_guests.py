"""The file of guests: it stores hashes, changes are atomic, and an invalid file admits nobody."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whenabouts.types import UsageError
from whenabouts.workplace.guests import MOST_GUESTS, SCOPES, Guest, Guests, digest_of, matching, session_of


@pytest.fixture
def guests(tmp_path: Path) -> Guests:
    return Guests(tmp_path / "friends.json")


def who(guests: Guests, token: str) -> Guest | None:
    return matching(session_of(token), guests.current())


def test_a_guest_is_let_in_until_the_token_is_withdrawn(guests: Guests) -> None:
    token, other = guests.add(" Ada "), guests.add("Bo", ["collect"])
    here = Guests(guests.path)  # as another process has it
    assert (who(here, token) or 0).name == "Ada"  # type: ignore[union-attr]
    assert {guest.name: set(guest.scopes) for guest in here.current()} == {
        "Ada": {"read"},
        "Bo": {"read", "collect"},
    }
    guests.remove("Ada")
    assert who(here, token) is None
    assert who(here, other) is not None


def test_the_file_may_lie_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Guests(Path("~/friends.json")).add("Ada")
    assert [guest.name for guest in Guests(tmp_path / "friends.json").listed()] == ["Ada"]


def test_a_guest_removed_through_a_link_is_not_admitted_by_the_file(guests: Guests, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "guests.json"
    link.symlink_to(guests.path)
    token = Guests(link).add("Ada")
    assert link.is_symlink() and who(guests, token) is not None
    Guests(link).remove("Ada")
    assert link.is_symlink() and who(guests, token) is None
    assert [path.name for path in link.parent.iterdir()] == [link.name]


def test_the_file_stays_readable_with_as_many_guests_of_the_longest_names_as_are_allowed(
    guests: Guests,
) -> None:
    names = [f"{number:03}{197 * chr(0x20000)}" for number in range(MOST_GUESTS - 1)]
    entries = [{**ENTRY, "name": name, "scopes": list(SCOPES), "made": time.time()} for name in names]
    guests.path.write_text(json.dumps({"guests": entries}, ensure_ascii=False), encoding="utf-8")
    guests.add(200 * chr(0x20000), SCOPES)
    assert len(guests.listed()) == MOST_GUESTS


def test_to_judge_is_not_to_read(guests: Guests) -> None:
    guests.add("Cy", ["judge"])
    assert guests.listed()[0].scopes == {"judge"}


def test_the_file_reveals_neither_token_nor_cookie(guests: Guests) -> None:
    token = guests.add("Ada")
    text = guests.path.read_text()
    assert token not in text and session_of(token) not in text
    assert digest_of(session_of(token)) in text
    assert guests.path.stat().st_mode & 0o077 == 0
    assert who(guests, digest_of(session_of(token))) is None
    assert matching(digest_of(session_of(token)), guests.current()) is None


@pytest.mark.parametrize(
    ("name", "scopes", "told"),
    [
        ("Ada", [], "is a guest already"),
        ("Bo", ["fly"], "'fly' is not a scope; choose from read, collect, index, judge"),
        ("", [], "is not a name"),
        ("a\nb", [], "is not a name"),
        ("a" * 201, [], "is not a name"),
    ],
)
def test_what_cannot_be_a_guest_is_said(guests: Guests, name: str, scopes: list[str], told: str) -> None:
    guests.add("Ada")
    with pytest.raises(UsageError, match=told):
        guests.add(name, scopes)
    assert [guest.name for guest in guests.listed()] == ["Ada"]


def test_nobody_of_that_name_can_be_removed(guests: Guests, tmp_path: Path) -> None:
    guests.add("Ada")
    with pytest.raises(UsageError, match="no guest is called 'Bo'; the file has 'Ada'"):
        guests.remove("Bo")
    with pytest.raises(UsageError, match="cannot store guests there"):
        Guests(tmp_path / "nowhere" / "friends.json").add("Ada")


ENTRY = {"name": "Ada", "scopes": ["read"], "made": 1.0, "digest": "0" * 64}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"guests": 1}',
        '{"guests": [1]}',
        json.dumps({"guests": [{**ENTRY, "name": ""}]}),
        json.dumps({"guests": [{**ENTRY, "name": " Ada"}]}),
        json.dumps({"guests": [{**ENTRY, "name": 5}]}),
        json.dumps({"guests": [{**ENTRY, "digest": "0"}]}),
        json.dumps({"guests": [{**ENTRY, "digest": "ä" * 64}]}),
        json.dumps({"guests": [{**ENTRY, "scopes": ["owner"]}]}),
        json.dumps({"guests": [{**ENTRY, "scopes": "read"}]}),
        json.dumps({"guests": [{**ENTRY, "made": None}]}),
        json.dumps({"guests": [{**ENTRY, "made": 10**400}]}),
        json.dumps({"guests": [{**ENTRY, "made": 1e300}]}),
        json.dumps({"guests": [{**ENTRY, "made": math.inf}]}),
        json.dumps({"guests": [{**ENTRY, "made": -1}]}),
        "[" * 100_000,
        "x" * (2 << 20),
    ],
)
def test_a_file_that_holds_something_else_lets_nobody_in(guests: Guests, content: str) -> None:
    token = guests.add("Ada")
    guests.path.write_text(content)
    assert who(guests, token) is None
    with pytest.raises(UsageError, match=r"friends.json"):
        guests.listed()


def test_a_pipe_and_a_missing_file_let_nobody_in(guests: Guests) -> None:
    token = guests.add("Ada")
    guests.path.unlink()
    assert who(guests, token) is None
    os.mkfifo(guests.path)
    assert who(guests, token) is None


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("none.json", "`whenabouts guests FILE add NAME` creates one"), ("", "name another file, or check its")],
)
def test_only_a_missing_file_is_to_be_created(tmp_path: Path, name: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        Guests(tmp_path / name).listed()


@pytest.mark.slow
def test_commands_at_the_same_time_lose_no_guest(guests: Guests) -> None:
    command = [sys.executable, "-m", "whenabouts", "guests", str(guests.path), "add"]
    running = [
        subprocess.Popen([*command, f"guest {number}"], stdout=subprocess.DEVNULL) for number in range(6)
    ]
    assert [process.wait(120) for process in running] == [0] * 6
    assert len(guests.listed()) == 6
