from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import ClipBatch, VideoEncoding
from whenabouts_systems.ranking import encode_corpus, encoded_corpus


def same(one: VideoEncoding, other: VideoEncoding) -> bool:
    """Equal masks, keys and parts, padding beside."""
    shortest = min(one.mask.shape[1], other.mask.shape[1])
    assert not one.mask[:, shortest:].any()
    assert not other.mask[:, shortest:].any()
    pairs = [(one.mask, other.mask)]
    for name in ("keys", "key_masks", "parts"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert set(mine) == set(theirs)
        pairs += [(mine[key], theirs[key]) for key in mine]
    return all(torch.equal(a[:, :shortest], b[:, :shortest]) for a, b in pairs)


def test_videos_lie_in_the_order_of_their_ids_each_with_its_own_clips(toy: Callable[..., Any]) -> None:
    one = toy()
    encoded = one.corpus(batch_videos=4)
    assert list(encoded.ids) == sorted(one.video_ids)
    taken = encoded.take(np.arange(len(encoded)))
    for row, name in enumerate(encoded.ids):
        at = one.video_ids.index(name)
        count = one.clips[at]
        assert taken.mask[row].sum() == count
        assert encoded.durations[row] == one.durations[at]
        np.testing.assert_array_equal(taken.parts["clips"][row, :count].numpy(), one.videos[at])


def test_videos_of_similar_length_are_encoded_together(toy: Callable[..., Any]) -> None:
    one = toy()
    seen: list[list[int]] = []

    def clips_of(rows: Any) -> Any:
        seen.append(one.clips[rows].tolist())
        return one.clips_of(rows)

    encode_corpus(one.model, clips_of, one.video_ids, clips=one.clips, clip_seconds=2.0, batch_videos=4)
    assert [count for batch in seen for count in batch] == sorted(one.clips.tolist())
    assert max(map(len, seen)) == 4


def test_a_batch_with_its_padding_has_no_more_clips_than_allowed(
    toy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_corpus, "_BATCH_CLIPS", 12)
    one = toy()
    one.corpus()
    counts = np.split(np.sort(one.clips), np.cumsum(one.model.encoded)[:-1])
    assert all(len(batch) == 1 or len(batch) * batch.max() <= 12 for batch in counts)
    assert max(map(len, counts)) > 1


def test_without_by_length_the_order_is_the_one_given_and_there_is_one_block(toy: Callable[..., Any]) -> None:
    one = toy()
    encoded = one.corpus(batch_videos=5, by_length=False)
    assert one.model.encoded == [5, 5, 3]
    assert len(encoded.blocks) == 1
    assert encoded.blocks[0].mask.sum(1).tolist() == one.clips.tolist()


def test_a_corpus_on_disk_is_the_one_in_memory(
    toy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_corpus, "_BLOCK_BYTES", 1000)
    one = toy()
    memory = one.corpus(batch_videos=2)
    assert len(memory.blocks) > 2
    for _ in range(2):  # an encoded corpus of that name is replaced
        in_folder = one.corpus(batch_videos=2, folder=tmp_path / "made")
        assert in_folder.ids == memory.ids
        np.testing.assert_array_equal(in_folder.durations, memory.durations)
        np.testing.assert_array_equal(in_folder.clip_seconds, memory.clip_seconds)
        rows = [3, 0, 12, 3]
        assert same(in_folder.take(rows), memory.take(rows))
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_durations_that_are_not_known_are_infinite(toy: Callable[..., Any], tmp_path: Path) -> None:
    one = toy()
    durations = np.where(np.arange(13) % 2, np.nan, one.durations)
    encoded = encode_corpus(
        one.model,
        one.clips_of,
        one.video_ids,
        clips=one.clips,
        clip_seconds=2.0,
        durations=durations,
        folder=tmp_path / "c",
    )
    assert np.isinf(encoded.durations).sum() == 6


def test_encoding_leaves_the_model_as_it_was_and_uses_no_dropout(toy: Callable[..., Any]) -> None:
    one = toy()
    one.model.train()
    one.model.dropout.eval()
    one.model.dropout.p = 1.0
    one.model.dropout.train()
    encoded = one.corpus()
    assert one.model.training
    assert one.model.dropout.training
    assert encoded.blocks[0].parts["clips"].any()
    assert not encoded.blocks[0].parts["clips"].requires_grad


def test_an_interrupted_encoding_leaves_no_folder_and_keeps_the_one_before(
    toy: Callable[..., Any], tmp_path: Path
) -> None:
    one = toy()
    one.corpus(folder=tmp_path / "c")
    before = (tmp_path / "c" / "corpus.json").read_bytes()

    def stops(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.corpus(folder=tmp_path / "c", batch_videos=2, progress=stops)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert (tmp_path / "c" / "corpus.json").read_bytes() == before


def test_a_folder_of_something_else_is_never_replaced(toy: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="mine: exists and is not the folder of an encoded corpus"):
        toy().corpus(folder=tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_a_block_cut_off_in_the_middle_is_named(toy: Callable[..., Any], tmp_path: Path) -> None:
    corpus = toy().corpus(folder=tmp_path / "c")
    path = tmp_path / "c" / "block-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FormatError, match=r"block-00000\.safetensors: cannot be read"):
        corpus.take([0])


def test_a_video_that_comes_twice_is_named(toy: Callable[..., Any]) -> None:
    one = toy()
    with pytest.raises(UsageError, match="video 'b' comes twice"):
        encode_corpus(one.model, one.clips_of, ["b", "a", "b"], clips=one.clips[:3], clip_seconds=2.0)


def test_numbers_that_do_not_fit_and_videos_that_are_not_there_are_named(toy: Callable[..., Any]) -> None:
    one = toy()
    with pytest.raises(UsageError, match="2 videos, 3 numbers of clips"):
        encode_corpus(one.model, one.clips_of, ["a", "b"], clips=one.clips[:3], clip_seconds=2.0)
    with pytest.raises(UsageError, match="has no videos"):
        encode_corpus(one.model, one.clips_of, [], clips=[], clip_seconds=2.0)
    with pytest.raises(UsageError, match="video 'zebra' is not among the 13 videos"):
        one.corpus().rows_of(["v00", "zebra"])
    with pytest.raises(UsageError, match="no videos were asked for"):
        one.corpus().take([])


@pytest.mark.parametrize("in_folder", [False, True])
def test_silent_videos_are_known_in_memory_and_on_disk(
    toy: Callable[..., Any], tmp_path: Path, in_folder: bool
) -> None:
    one = toy()
    silent = {"v03", "v10"}

    def clips_of(rows: NDArray[np.int64]) -> ClipBatch:
        told = torch.tensor([one.video_ids[row] in silent for row in rows.tolist()])
        clips: ClipBatch = replace(one.clips_of(rows), silent=told)
        return clips

    folder = tmp_path / "encoded" if in_folder else None
    made = encode_corpus(
        one.model, clips_of, one.video_ids, clips=one.clips, clip_seconds=2.0, folder=folder, batch_videos=2
    )
    retrieved = zip(made.ids, made.audible.tolist(), strict=True)
    assert {name for name, is_audible in retrieved if not is_audible} == silent
    assert one.corpus().audible.all()
