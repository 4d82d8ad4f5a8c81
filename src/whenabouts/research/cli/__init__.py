"""The verbs of research: parse, call, show. One file each, named in `whenabouts/product/cli/main.py`."""
