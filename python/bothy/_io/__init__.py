"""What asynchronous and blocking code do differently, under the same names.

``aio`` and ``blocking`` offer the same names; the asynchronous source imports the
first, and its generated twin the second.
"""
