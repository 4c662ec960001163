"""Waits until every peer is up, and names the one that is not, before TensorFlow starts to wait for ever.

Each replica listens on its own address of the cluster until it has seen all the others answer, then frees the
port for TensorFlow's server. A peer that already went on is seen through that server.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping

from trainer.cluster import Cluster
from trainer.errors import InvalidArguments, PeerAbsent

_PAUSE = 0.05
_BANNER = "kickoff-trainer accelerators="


def wait_for_peers(cluster: Cluster, timeout: float, accelerators: int = 0) -> float:
    """Seconds left of `timeout` once all peers answered.

    Raises PeerAbsent naming those that did not, and InvalidArguments when one has another number of accelerators:
    synchronous replicas would then wait for each other for ever.
    """
    deadline = time.monotonic() + timeout
    waiting = dict(cluster.peers)
    if not waiting or cluster.address is None:
        return timeout
    with _listening(cluster.address, f"{_BANNER}{accelerators}\n"):
        while waiting:
            greetings = {name: _greeting(address) for name, address in waiting.items()}
            _compare(cluster, accelerators, greetings)
            waiting = {name: address for name, address in waiting.items() if greetings[name] is None}
            if waiting and time.monotonic() > deadline:
                raise PeerAbsent(f"{_list(waiting)} did not answer within {timeout:g} s (--peer-timeout)")
            time.sleep(_PAUSE if waiting else 0)
    return max(deadline - time.monotonic(), 1.0)


def answers(address: str) -> bool:
    """True when something accepts connections at host:port."""
    return _greeting(address, wait=0) is not None


def _greeting(address: str, wait: float = 0.5) -> str | None:
    """What a peer says first; "" from one that has gone on to TensorFlow's server; None from nobody."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.settimeout(wait)
            with contextlib.suppress(OSError):
                return connection.recv(64).decode(errors="replace") if wait else ""
            return ""
    except OSError:  # refused, no route, or a name that does not resolve yet
        return None


def _compare(cluster: Cluster, accelerators: int, greetings: Mapping[str, str | None]) -> None:
    """Of two replicas at least one reads the other's greeting: who goes on first has read all of them."""
    for name, greeting in greetings.items():
        if greeting and greeting.startswith(_BANNER) and greeting != f"{_BANNER}{accelerators}\n":
            theirs = greeting.removeprefix(_BANNER).strip()
            raise InvalidArguments(
                f"{name} has {theirs} accelerators and {cluster} has {accelerators}; all need the same number"
            )


def _list(peers: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({address})" for name, address in peers.items())


@contextlib.contextmanager
def _listening(address: str, banner: str) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    loopback = host in ("127.0.0.1", "localhost", "::1")
    with socket.create_server((host if loopback else "", int(port)), backlog=64) as server:
        server.settimeout(0.2)
        done = threading.Event()
        thread = threading.Thread(target=_accept, args=(server, banner.encode(), done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _accept(server: socket.socket, banner: bytes, done: threading.Event) -> None:
    while not done.is_set():
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(banner)
