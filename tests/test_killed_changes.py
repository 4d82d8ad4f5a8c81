"""A library that changes under commands that die: run again, they leave what they would have left."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cut_short import Dead, dies_before
from tests.fuzz import changes
from tests.fuzz.collecting import kill_collections

from whenabouts.corpus import Corpus


@dataclass(frozen=True)
class Changed:
    """A library after changes, the corpus from before them, and what it holds once they are taken in."""

    library: Path
    before: Path
    writes: int
    right: dict[str, Any]

    def taken_in(self, place: Path) -> None:
        Corpus(place, create=False).add(self.library, prune=True, processes=1)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory, unmeasured: None) -> Iterator[Changed]:
    """Files that were renamed, swapped, changed, deleted, copied, and a new one."""
    folder = tmp_path_factory.mktemp("changed")
    library, before, after = (folder / name for name in ("library", "before.corpus", "after.corpus"))
    library.mkdir()
    changes.make_library(library)
    Corpus(before, create=True).add(library, likeness=True, processes=1)
    shutil.copytree(before, after)
    talks = sorted(library.glob("?/talk*.vtt"))
    talks[0].rename(talks[0].with_name("renamed.vtt"))
    talks[1].unlink()
    changes.write_talk(talks[2], "new words")
    changes.write_talk(library / "friday.vtt", "other words of friday")
    changes.write_talk(library / "b" / "new.vtt", "a new talk")
    (library / "nasa_audio_only.mp3").rename(library / "a" / "moon.mp3")
    talks[3].rename(library / "aside")
    talks[4].rename(talks[3])
    (library / "aside").rename(talks[4])
    shutil.copy(talks[5], library / "copy.vtt")
    with dies_before(1 << 30) as count:
        whole = Changed(library, before, 0, {})
        whole.taken_in(after)
    yield Changed(library, before, count(), changes.held(after))


def dies_and_goes_on(changed: Changed, place: Path, write: int) -> None:
    """Take the changes in, die before a write, and again to the end."""
    shutil.copytree(changed.before, place)
    with pytest.raises(Dead), dies_before(write):
        changed.taken_in(place)
    changed.taken_in(place)
    assert not changes.differences(changed.right, changes.held(place))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_changes_are_taken_in_whole_after_a_death_between_writes(
    changed: Changed, tmp_path: Path, share: float
) -> None:
    dies_and_goes_on(changed, tmp_path / "corpus", max(2, round(share * changed.writes)))


@pytest.mark.slow
def test_changes_are_taken_in_whole_after_a_death_before_any_write(changed: Changed, tmp_path: Path) -> None:
    for write in range(1, changed.writes + 1):
        dies_and_goes_on(changed, tmp_path / str(write), write)


@pytest.mark.slow
def test_collections_are_whole_after_kills(tmp_path: Path) -> None:
    rng = random.Random(1)
    assert not [line for _ in range(3) for line in kill_collections(tmp_path, rng)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index", "watch", "collection"])
def test_what_takes_changes_in_is_killed_and_run_again(tmp_path: Path, name: str) -> None:
    attack = changes.Attack(tmp_path)
    for seed in range(3):
        _, findings = attack.kinds[name](random.Random(seed))
        assert not findings
