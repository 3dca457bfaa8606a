"""The tests of the asynchronous API; scripts/generate_sync.py makes the blocking ones."""
