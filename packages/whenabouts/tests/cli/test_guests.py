"""`whenabouts guests`: links are shown once, listed without tokens, and revoked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import Whenabouts

from whenabouts.cli.main import main
from whenabouts.workplace.guests import Guests, matching, session_of


def test_a_guest_from_the_link_to_the_end(bare: Whenabouts, tmp_path: Path) -> None:
    file = str(tmp_path / "friends.json")
    made = bare("guests", file, "add", "Ada Byron", "--address", "https://example.org/moments").json
    assert made["link"] == f"https://example.org/moments/?token={made['token']}"
    assert made["scopes"] == ["read"]
    guest = matching(session_of(made["token"]), Guests(Path(file)).listed())
    assert guest is not None and guest.name == "Ada Byron"
    shown = bare("guests", file, "add", "Bo", "collect", "index", "--table").out
    assert "Bo may read, collect, index" in shown and "?token=" in shown
    listed = bare("guests", file, "--table").out
    assert "Ada Byron: read, since 2" in listed and made["token"] not in listed
    assert [each["name"] for each in bare("guests", file).json] == ["Ada Byron", "Bo"]
    assert bare("guests", file, "remove", "Ada Byron").code == 0
    assert bare("guests", file, "remove", "Bo").code == 0
    assert bare("guests", file).code == 1


def test_the_help_names_what_the_server_must_allow(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["guests", "--help"])
    said = capsys.readouterr().out
    assert "add videos (serve --allow)" in said and "people (serve --change-people)" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add",), "give one name"),
        (("add", "Ada", "fly"), "'fly' is not a scope"),
        (("add", "Ada", "--address", "example.org"), "give the address of the page"),
        (("add", "Ada", "--address", "http://[::1/"), "give the address of the page"),
        (("add", "Ada", "--address", "https://example.org/?q=x"), "give the address of the page"),
        (("remove", "Ada"), "no guest is called 'Ada'; the file has no guests"),
        (("remove", "Ada", "Bo"), "give one name"),
        (("remove", "Ada", "--address", "https://example.org/"), "--address needs `add`"),
        (("--address", "https://example.org/"), "--address needs `add`"),
        ((), "the file of guests cannot be read"),
    ],
)
def test_wrong_use_names_the_remedy(
    bare: Whenabouts, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = bare("guests", str(tmp_path / "friends.json"), *arguments)
    assert done.code == 2
    assert told in done.err


def test_an_address_from_the_users_file_counts_for_add_alone(
    bare: Whenabouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "whenabouts" / "whenabouts.toml"
    place.parent.mkdir()
    place.write_text('[guests]\naddress = "https://example.org/"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = str(tmp_path / "friends.json")
    assert bare("guests", file, "add", "Ada").json["link"].startswith("https://example.org/?token=")
    assert bare("guests", file).code == 0
    assert bare("guests", file, "remove", "Ada").code == 0
