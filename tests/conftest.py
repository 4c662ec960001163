"""What tests of the whole system share: one local stack for all of them, started when the first one needs it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


TOGETHER = ("tests/chaos/", "tests/gcp/")
"""With several workers, what begins like this stays in one: its tests share something that costs much to make."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests go to one worker, those of TOGETHER too. (`--dist loadgroup` does nothing under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):  # type: ignore[misc]  # untyped
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((place for place in TOGETHER if file.startswith(place)), file)

    return ByPlace(config, log)
