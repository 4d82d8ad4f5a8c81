"""How the convolutions of borders begin."""

from __future__ import annotations

import torch

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.parts.borders import BorderConvolution, begin_at_edges


def test_fresh_kernels_find_the_edges_of_what_is_similar() -> None:
    borders = BorderConvolution(5)
    begin_at_edges(borders)
    similarity = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 0, 0, 0]], dtype=torch.float32)
    start, end = borders([torch.ones(1, 1)], [similarity[:, :, None]], torch.ones(1, 10, dtype=torch.bool))
    assert (start.argmax().item(), end.argmax().item()) == (3, 6)


def test_what_is_similar_throughout_has_no_edge_inside() -> None:
    borders = BorderConvolution(5)
    begin_at_edges(borders)
    start, end = borders([torch.ones(1, 1)], [torch.ones(1, 9, 1)], torch.ones(1, 9, dtype=torch.bool))
    torch.testing.assert_close(start[0, 2:7], torch.zeros(5), atol=1e-6, rtol=0.0)
    torch.testing.assert_close(end[0, 2:7], torch.zeros(5), atol=1e-6, rtol=0.0)


def test_a_kernel_of_one_clip_begins_with_what_is_similar() -> None:
    borders = BorderConvolution(1)
    begin_at_edges(borders)
    similarity = torch.tensor([[0.0, 1.0, 0.5]])
    found = borders([torch.ones(1, 1)], [similarity[:, :, None]], torch.ones(1, 3, dtype=torch.bool))
    assert torch.equal(found, similarity.expand(2, 1, 3))


def test_kernels_of_the_released_program_depend_on_the_seed() -> None:
    def kernels(seed: int, **settings: object) -> torch.Tensor:
        torch.manual_seed(seed)
        model = new_model("xml", config_of("xml", {"streams": {"video": 8}, "hidden": 8, **settings}))
        return torch.cat([one.start.weight for one in model.borders.values()])

    assert torch.equal(kernels(1), kernels(2))
    assert not torch.equal(kernels(1, as_released=True), kernels(2, as_released=True))
    assert not torch.equal(kernels(1, span_start="random"), kernels(2, span_start="random"))
