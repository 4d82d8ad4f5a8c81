"""G2L with MMN's program as its network; the authors' program of G2L was not used."""

from __future__ import annotations

from whenabouts_systems.models.g2l import Model


class AsReleased(Model):
    """Normalisation counts the padded square of the map, as in MMN's program; G2L's losses do not change."""

    whole_square = True
