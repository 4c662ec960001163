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
from trainer.errors import PeerAbsent

_PAUSE = 0.05


def wait_for_peers(cluster: Cluster, timeout: float) -> float:
    """Seconds left of `timeout` once all peers answered; raises PeerAbsent naming those that did not."""
    deadline = time.monotonic() + timeout
    waiting = dict(cluster.peers)
    if not waiting or cluster.address is None:
        return timeout
    with _listening(cluster.address):
        while waiting:
            waiting = {name: address for name, address in waiting.items() if not answers(address)}
            if waiting and time.monotonic() > deadline:
                raise PeerAbsent(f"{_list(waiting)} did not answer within {timeout:g} s (--peer-timeout)")
            time.sleep(_PAUSE if waiting else 0)
    return max(deadline - time.monotonic(), 1.0)


def _list(peers: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({address})" for name, address in peers.items())


def answers(address: str) -> bool:
    """True when something accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:  # refused, no route, or a name that does not resolve yet
        return False
    return True


@contextlib.contextmanager
def _listening(address: str) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    loopback = host in ("127.0.0.1", "localhost", "::1")
    with socket.create_server((host if loopback else "", int(port)), backlog=64) as server:
        server.settimeout(0.2)
        done = threading.Event()
        thread = threading.Thread(target=_accept, args=(server, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _accept(server: socket.socket, done: threading.Event) -> None:
    while not done.is_set():
        with contextlib.suppress(OSError):
            server.accept()[0].close()
