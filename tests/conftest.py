"""What tests of the whole system share: one local stack for all of them, started when the first one needs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kickoff.clients import Clients
from kickoff.settings import Settings

from deploy.local.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything that `kickoff local` starts, on ports of its own, gone afterwards."""
    state = tmp_path_factory.mktemp("stack")
    with Stack(Path(state), sweep_seconds=1) as running:
        yield running


@pytest.fixture(scope="session")
def clients(stack: Stack) -> Clients:
    """The functions' own clients, for tests that read the ledger. Storage and Pub/Sub clients: see `stack`."""
    return Clients(Settings.from_environ(stack.environ))


SHARED = {"stack": "stack", "deployed": "gcp", "plan": "gcp", "full_plan": "gcp"}
"""Fixtures that are made once and cost much, and the group of tests that share them."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers (`-n`): tests that share something costly stay together, and so do those of one file."""
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        names = getattr(item, "fixturenames", ())
        group = next((SHARED[name] for name in SHARED if name in names), item.path.as_posix())
        item.add_marker(pytest.mark.xdist_group(group))
