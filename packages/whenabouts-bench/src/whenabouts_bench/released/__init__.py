"""Reproduce MVMR's released programs where they depart from the paper, which other modules follow."""
