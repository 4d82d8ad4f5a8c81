"""The parts of judgements and runs that a format keeps or loses."""

PARTS = {
    "texts": "texts of queries",
    "durations": "durations of videos",
    "grades": "grades",
    "similarities": "similarities of query and caption",
    "captions": "captions of moments",
    "pools": "pools",
    "most grade": "marks of judgements from pools (pooled.json)",
    "given videos": "queries without judgements",
    "unjudged queries": "queries without judgements",
    "unjudged videos": "videos without judgements",
    "query metadata": "queries' values of",
    "video metadata": "videos' values of",
    "saliency": "queries' predicted saliency scores",
    "confidences": "confidences of queries' first answers",
    "lists": "lists",
}
"""Part -> its name in messages. "query metadata KEY" in KEEPS is one key of a part.

`given videos` belong to queries without judgements whose pool is that one video; `unjudged queries` have
neither. `confidences`, `lists` and `saliency` are parts of runs.
"""
