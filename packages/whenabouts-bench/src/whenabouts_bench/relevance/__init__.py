"""Relevance of queries and moments beyond the annotations, inferred from captions.

`phrases/` extracts phrases from captions, `units.py` encodes them, `finding.py` compares all pairs, and
`pairs.py` stores the relevant pairs that training reads. `ranked.py` makes ranked training sets and
pseudo-graded judgements. `pools.py` builds MVMR pools from the similarity of sentences (`similarity.py`) and
of words and frames (`emscore.py`); `pool_report.py` describes them, and `people.py` lets annotators check
them.
"""
