"""Windows and ratings that a batch of examples carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from whenabouts.types import Query, UsageError
from whenabouts_systems.training.labels import WindowLabels, sources_of


def labels(queries: list[dict[str, Any]], limit: int | None = None) -> WindowLabels:
    """Examples 0 and 2 are moments of query 0 in video 1, 1 of query 1 there, 3 of query 0 elsewhere."""
    borders = np.array([[0, 2], [1, 3], [4, 5.5], [2, 3]], np.float32)
    made = [Query(str(at), "", metadata) for at, metadata in enumerate(queries)]
    names = ["a_0.0_9.0", "b"]
    return WindowLabels(np.array([0, 1, 0, 0]), np.array([1, 1, 1, 0]), borders, made, names, limit)


def test_every_example_has_all_windows_of_its_query_in_its_video() -> None:
    windows = labels([{}, {}]).of(np.array([2, 1, 3]), 6)["windows"]
    expected = torch.tensor([[[0, 2], [4, 5.5]], [[1, 3], [torch.nan] * 2], [[2, 3], [torch.nan] * 2]])
    torch.testing.assert_close(windows, expected, equal_nan=True)


def test_of_too_many_windows_some_are_drawn_anew_in_each_epoch() -> None:
    cut, examples = labels([{}, {}], limit=1), np.array([0, 1, 2, 3])
    epochs = [cut.of(examples, 6, epoch)["windows"] for epoch in range(20)]
    assert all(windows.shape == (4, 1, 2) for windows in epochs)
    assert {tuple(windows[0, 0].tolist()) for windows in epochs} == {(0, 2), (4, 5.5)}
    for windows in epochs:
        assert torch.equal(windows[0], windows[2]), "both examples are of one query in one video"
        assert windows[1:4:2, 0].tolist() == [[1, 3], [2, 3]]
    assert torch.equal(cut.of(examples, 6, 3)["windows"], epochs[3])


def test_ratings_are_added_up_where_every_query_has_them() -> None:
    rated = {"relevant_clip_ids": [1, 3, 9], "saliency_scores": [[1, 2, 3], [4, 4, 4], [1, 1, 1]]}
    found = labels([rated, rated]).of(np.array([0, 1]), 5)
    assert found["saliency"].tolist() == [[0, 6, 0, 12, 0]] * 2
    assert "saliency" not in labels([rated, {}]).of(np.array([0, 1]), 5)
    of_one_person = {**rated, "saliency_scores": [3, (4, 0), 1]}
    found = labels([of_one_person, rated]).of(np.array([0, 1]), 5)
    assert found["saliency"].tolist() == [[0, 3, 0, 4, 0], [0, 6, 0, 12, 0]]


@pytest.mark.parametrize("ratings", [[None], [["good", 2]], ["good"]])
def test_a_rating_that_is_no_number_names_its_query(ratings: list[Any]) -> None:
    wrong = {"relevant_clip_ids": [1], "saliency_scores": ratings}
    with pytest.raises(UsageError, match=r"query '0': saliency_scores .* accepted: numbers"):
        labels([wrong, {}]).of(np.array([0, 1]), 5)


@pytest.mark.slow
def test_segments_of_one_recording_have_one_source() -> None:
    """Names that only look alike, or are nothing but times, are videos of their own."""
    names = ["x_y_0.0_150.0", "x_y_150_300", "x_y", "x", "x_210.0_360.0", "1_2", "_1_2", "x_a_b"]
    assert sources_of(names).tolist() == [0, 0, 0, 1, 1, 2, 3, 4]
    assert labels([{}, {}]).of(np.array([0, 3]), 6)["source"].tolist() == [1, 0]
