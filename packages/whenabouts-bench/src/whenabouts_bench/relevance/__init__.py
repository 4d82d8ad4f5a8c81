"""Which pairs of a query and a moment are relevant though nobody said so: judged by the captions alone.

`phrases/` takes captions apart, `units.py` says which parts are compared and makes vectors of them,
`finding.py` compares all with all, `pairs.py` is what comes out and what a training reads. `ranked.py` makes
ranked training sets and pseudo-graded judgements of captions. `pools.py` draws the pools of MVMR, from the
similarity of sentences (`similarity.py`) and of words and frames (`emscore.py`); `pool_report.py` says what
they are like, `people.py` has people check them.
"""
