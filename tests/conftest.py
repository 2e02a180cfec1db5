"""Fixtures and profiles that every test shares."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from scripted_server import KEY

slow_machine = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("default", **slow_machine)
settings.register_profile("ci", derandomize=True, print_blob=True, **slow_machine)
settings.register_profile("thorough", max_examples=1000, **slow_machine)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MEMPP_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    """The tests' outcome must not depend on MEMPP_ variables of the developer's shell."""
    for name in list(os.environ):
        if name.startswith("MEMPP_") and name not in ("MEMPP_DATA", "MEMPP_CACHE"):
            monkeypatch.delenv(name)


@pytest.fixture
def model_keys(monkeypatch, tmp_path):
    """Keys for models, and nothing else of the developer's shell that would lead to a real server."""
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path / "nowhere"))


@pytest.fixture(scope="session")
def orgmembench() -> Path:
    """The medium tier of OrgMemBench; tests that need it skip where it is absent."""
    folder = DATA / "orgmembench" / "helix" / "medium"
    if not folder.is_dir():
        pytest.skip(f"needs the OrgMemBench data ({folder}); set MEMPP_DATA")
    return folder
