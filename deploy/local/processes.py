"""The stack's parts as processes: started in groups of their own, watched, and always stopped."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LEASH = str(Path(__file__).with_name("leash.py"))
_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class PartFailed(RuntimeError):
    """A part ended or did not become ready; the text holds its last lines and says where its log lies."""


@dataclass
class Part:
    """One running process of the stack."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def failure(self, what: str) -> PartFailed:
        return PartFailed(f"{self.name} {what}. Its last lines ({self.log}):\n{self.tail()}")

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Wait for it until `deadline` (monotonic seconds), then SIGKILL what is left of its whole group."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        self._signal(signal.SIGKILL)
        self.process.wait(_GRACE)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass
class Processes:
    """Starts parts one after the other, and stops them all at once."""

    logs: Path
    parts: list[Part] = field(default_factory=list)

    def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str], folder: Path | None = None) -> Part:
        """Start one part, in `folder` if given; its output goes to ``logs/name.log``."""
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-S", _LEASH, *argv],
                cwd=folder,
                env={**environ, "KICKOFF_LEASH": str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        part = Part(name, process, path)
        self.parts.append(part)
        return part

    def wait_for_line(self, part: Part, pattern: str, seconds: float = 30.0) -> str:
        """The first group of `pattern` once the part has printed it. Raises PartFailed."""
        found: list[str] = []

        def printed() -> bool:
            match = re.search(pattern, part.log.read_text(errors="replace"))
            found.extend(match.groups() if match else ())
            return bool(match)

        self._until(part, printed, seconds)
        return found[0]

    def wait_for_port(self, part: Part, port: int, seconds: float = 30.0) -> None:
        """Return once the part listens. Raises PartFailed."""
        self._until(part, lambda: listens(port), seconds)

    def stop(self) -> None:
        for part in self.parts:
            part.ask_to_stop()
        deadline = time.monotonic() + _GRACE
        while self.parts:
            self.parts.pop().end(deadline)

    def dead(self) -> Part | None:
        """A part that ended by itself, if any."""
        return next((part for part in self.parts if not part.alive), None)

    def _until(self, part: Part, ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            if not part.alive:
                raise part.failure(f"ended with exit status {part.process.returncode} before it was ready")
            if time.monotonic() > deadline:
                raise part.failure(f"was not ready after {seconds:.0f} s")
            time.sleep(0.02)


def free_port() -> int:
    """A port that was free a moment ago, for programs that cannot bind port 0 and tell."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def can_bind(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(0.5)
        return sock.connect_ex(("127.0.0.1", port)) == 0


def answers(address: str) -> bool:
    """Whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True
