"""The SDK against a real server. Run with ``BOTHY_E2E=1 pytest tests/e2e``."""
