from collections.abc import Iterator

import pytest

from deploy.local.pubsub.server import PubSubServer
from tests.pubsub.emulators import Clients, Endpoint, clients_of, google_emulator, google_emulator_jar, push_endpoint


@pytest.fixture(scope="session")
def server() -> Iterator[PubSubServer]:
    with PubSubServer() as running:
        yield running


@pytest.fixture(scope="session", params=["ours", pytest.param("google", marks=pytest.mark.java)])
def emulator(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Which one it is, and its endpoint."""
    if request.param == "ours":
        yield "ours", request.getfixturevalue("server").endpoint
        return
    jar = google_emulator_jar()
    if jar is None:
        pytest.skip("Google's Pub/Sub emulator or Java is not installed here")
    with google_emulator(jar) as endpoint:
        yield "google", endpoint


@pytest.fixture(scope="session")
def either(emulator: tuple[str, str]) -> Iterator[Clients]:
    """Clients of the emulator under trial."""
    clients = clients_of(emulator[1])
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def ours(server: PubSubServer) -> Iterator[Clients]:
    """Clients of our emulator."""
    clients = clients_of(server.endpoint)
    yield clients
    clients.close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with push_endpoint() as running:
        yield running
