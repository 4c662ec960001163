"""Ports for replicas: held by a bound socket until the replica gets them, and nobody else's after that.

They lie below the kernel's ephemeral range, so that no outgoing connection and no `bind(0)` takes one between
the emulator's letting go and the replica's listening; other emulators see the lock file.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

_FIRST, _LAST = 10_240, 32_000
_LOCKS = Path(tempfile.gettempdir()) / f"kickoff-ports-{os.getuid()}"


class HeldPort:
    """One port. `hand_over` closes the socket; the lock stays until `release`."""

    def __init__(self, number: int, sock: socket.socket, lock: IO[str]) -> None:
        self.number = number
        self._socket: socket.socket | None = sock
        self._lock = lock

    def hand_over(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

    def release(self) -> None:
        self.hand_over()
        self._lock.close()


def hold_port(choose: Callable[[], int] = lambda: random.randint(_FIRST, _LAST)) -> HeldPort:
    """Reserve a free port. Raises OSError where none is found in 200 tries."""
    _LOCKS.mkdir(mode=0o700, exist_ok=True)
    for _ in range(200):
        number = choose()
        lock = (_LOCKS / str(number)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sock = socket.socket()
            try:
                sock.bind(("127.0.0.1", number))
            except OSError:
                sock.close()
                raise
        except OSError:
            lock.close()
            continue
        return HeldPort(number, sock, lock)
    raise OSError(f"no free port between {_FIRST} and {_LAST}")
