"""Replicas as processes: each in a group of its own, its output read line by line, its end reported once."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_CHUNK = 65_536
_LONGEST_LINE = 65_536


@dataclass
class ReplicaProcess:
    """A started replica. Its group is its pid's."""

    process: subprocess.Popen[bytes]
    on_lines: Callable[[list[str], bool], None]
    """Called with (lines, of standard error)."""
    on_exit: Callable[[int], None]
    """Called with the exit status, 128 + N after signal N."""
    buffers: dict[int, bytes] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        """Signal the whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def start_process(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start `argv` as the leader of a new session. Raises OSError where the program cannot be started."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        argv,
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


class Watcher:
    """One thread that reads all replicas' output and waits for their ends (pidfd_open(2))."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._new: list[ReplicaProcess] = []
        self._lock = threading.Lock()
        self._closed = False
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="replica-watcher", daemon=True)
        self._thread.start()

    def watch(self, replica: ReplicaProcess) -> None:
        with self._lock:
            self._new.append(replica)
        os.write(self._wake_write, b"x")

    def close(self) -> None:
        self._closed = True
        os.write(self._wake_write, b"x")
        self._thread.join(5)

    def _run(self) -> None:
        while not self._closed:
            ended = []
            for key, _ in self._selector.select():
                if key.data is None:
                    os.read(self._wake_read, _CHUNK)
                    self._add_new()
                elif isinstance(key.data, tuple):
                    self._read(*key.data)
                else:
                    ended.append((key.fd, key.data))
            for pidfd, replica in ended:
                self._end(pidfd, replica)

    def _add_new(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for replica in new:
            for stream in (replica.process.stdout, replica.process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                replica.buffers[stream.fileno()] = b""
                self._selector.register(stream, selectors.EVENT_READ, (replica, stream))
            self._selector.register(os.pidfd_open(replica.pid), selectors.EVENT_READ, replica)

    def _read(self, replica: ReplicaProcess, stream: IO[bytes]) -> bool:
        """Read once; False at the end of the stream, or where nothing is there."""
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(stream)
            self._flush(replica, stream)
            return False
        *lines, rest = (replica.buffers[stream.fileno()] + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        replica.buffers[stream.fileno()] = rest
        if lines:
            replica.on_lines([_text(line) for line in lines], stream is replica.process.stderr)
        return True

    def _flush(self, replica: ReplicaProcess, stream: IO[bytes]) -> None:
        rest = replica.buffers.pop(stream.fileno(), b"")
        if rest:
            replica.on_lines([_text(rest)], stream is replica.process.stderr)

    def _end(self, pidfd: int, replica: ReplicaProcess) -> None:
        """Take what it still wrote, end what it left behind in its group, and report."""
        self._selector.unregister(pidfd)
        os.close(pidfd)
        replica.signal(signal.SIGKILL)  # before the wait: until then nobody else can have its process id
        status = replica.process.wait()
        for stream in (replica.process.stdout, replica.process.stderr):
            assert stream is not None
            with contextlib.suppress(KeyError, ValueError):
                while self._read(replica, stream):
                    pass
                self._selector.unregister(stream)
            self._flush(replica, stream)
            stream.close()
        replica.on_exit(status if status >= 0 else 128 - status)


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode(errors="backslashreplace")
