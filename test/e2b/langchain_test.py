"""LangChain's own tests of sandboxes, with its backend for E2B, against a server of this tree."""

import e2b
import pytest
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        sandbox = e2b.Sandbox.create(timeout=600)
        try:
            yield E2BSandbox(sandbox=sandbox)
        finally:
            sandbox.kill()
