"""The asynchronous source, from which ``scripts/generate_sync.py`` makes its blocking twin."""
