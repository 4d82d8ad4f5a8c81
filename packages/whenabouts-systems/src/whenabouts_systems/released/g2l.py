"""Run G2L with the network of MMN's program; no program of its own authors is reproduced."""

from __future__ import annotations

from whenabouts_systems.models.g2l import Model


class AsReleased(Model):
    """Normalisation counts the padded square of the map, as in MMN's program; G2L's losses do not change."""

    whole_square = True
