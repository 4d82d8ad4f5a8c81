"""The files of all-MiniLM-L6-v2 in half precision, in the folder `model`; nothing here runs."""
