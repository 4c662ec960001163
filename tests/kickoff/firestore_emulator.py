"""Google's Firestore emulator, where Java and the Cloud SDK's jar are present: started by class, on a free port."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"


def find_jar() -> Path | None:
    gcloud = shutil.which("gcloud")
    if not gcloud:
        return None
    jars = Path(gcloud).resolve().parents[1].glob("platform/cloud-firestore-emulator/*.jar")
    return next(jars, None)


@contextmanager
def firestore_emulator() -> Iterator[str]:
    """``127.0.0.1:port`` of a running emulator; skips the test, saying what is missing, where it cannot run."""
    java, jar = shutil.which("java"), find_jar()
    if not java or not jar:
        pytest.skip(f"Google's Firestore emulator needs {'its jar from the Cloud SDK' if java else 'Java'}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [java, "-Xmx256m", "-cp", str(jar), _MAIN, "--host=127.0.0.1", f"--port={port}"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        _await_port(process, port, deadline=time.monotonic() + 60)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


def _await_port(process: subprocess.Popen[bytes], port: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the Firestore emulator ended with exit status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the Firestore emulator did not open its port within 60 seconds")
