"""The real gcloud, loaded once: its modules take most of a second to import, and one script calls it 150 times.

`warm(folder)` puts a program `gcloud` into `folder`. It hands its arguments, environment, folder and streams to a
process of gcloud's own Python, which has gcloud's code loaded and forks once a call. This file is that process
too, when it is run as a script: ``python warm_gcloud.py SDK_ROOT SOCKET``.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_CLIENT = """#!{python} -SE
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
server.sendall(call)
server.shutdown(socket.SHUT_WR)
answer = server.recv(1)
sys.exit(answer[0] if answer else 70)
"""


def available() -> str:
    """The path of gcloud, or an empty string."""
    return shutil.which("gcloud") or ""


@contextlib.contextmanager
def warm(folder: Path) -> Iterator[Path]:
    """`folder` with a program `gcloud` in it that works until the block ends."""
    info = "--format=value(basic.python_location,installation.sdk_root)"
    python, root = subprocess.check_output([available(), "info", info], text=True, timeout=60).split()
    path = folder / "gcloud.socket"
    bundled = "bundledpython" in python
    environ = {**os.environ, **({"CLOUDSDK_PYTHON_SITEPACKAGES": "1"} if bundled else {})}
    argv = [python, *([] if bundled else ["-S"]), __file__, root, str(path)]
    server = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not path.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("gcloud did not load within 60 s")
            time.sleep(0.05)
        client = folder / "gcloud"
        client.write_text(_CLIENT.format(python=sys.executable, path=str(path)))
        client.chmod(0o755)
        yield folder
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def serve(root: str, path: str) -> None:
    """Fork for each call; the child is gcloud, with the caller's streams."""
    for folder in (f"{root}/lib", f"{root}/lib/third_party"):
        sys.path.insert(0, folder)
    gcloud = importlib.import_module("googlecloudsdk.gcloud_main")

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen()
    Path(path + ".new").rename(path)
    learned = Path(path + ".modules")
    while True:
        connection, _ = server.accept()
        load(learned)
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            known = set(sys.modules)
            status = run(gcloud, connection)
            with learned.open("a") as file:
                file.writelines(
                    f"{name}\n" for name in sys.modules.keys() - known if name.startswith("googlecloudsdk.")
                )
            connection.sendall(bytes([status]))
            os._exit(0)
        connection.close()


def load(learned: Path) -> None:
    """Import what the calls so far had to import themselves, so that the next one finds it loaded."""
    if learned.exists():
        for name in set(learned.read_text().split()) - set(sys.modules):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        learned.unlink()


def run(gcloud: object, connection: socket.socket) -> int:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    argv, folder, environ = json.loads(connection.makefile("rb").read(int.from_bytes(size, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["gcloud", *argv]
    try:
        gcloud.main()  # type: ignore[attr-defined]
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        print(f"gcloud: {error!r}", file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status & 255


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
