"""Which pairs of a query and a moment are relevant though nobody said so: told from the captions alone.

`phrases/` takes captions apart, `detectors.py` says which parts two captions are compared by, `units.py`
makes vectors of them, `finding.py` compares all with all, `pairs.py` is what comes out and what a training
reads. `ranked.py` makes ranked training sets and pseudo-graded judgements of captions.
"""
