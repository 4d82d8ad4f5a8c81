"""The verbs of research: parse, call, show. One file each, named in `product/cli/main.py`."""
