"""Forks real function processes whose imports are paid for once: ``python -m tests.chaos.zygote``.

A line ``{"target", "environ", "skew", "requests"}`` on stdin forks a process that serves so many requests to that
function of functions/main.py through functions-framework, and ends; the answer is ``{"pid", "port"}``. A line
``{"reap": pid}`` is answered with ``{"status"}``: null while it lives, its exit status after, negative for a signal.
"""

import ctypes
import importlib
import json
import os
import pkgutil
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "functions" / "main.py"


def load() -> None:
    """Everything that functions import when they first need it. No client is made: none would survive a fork."""
    import google.cloud.aiplatform_v1.services.job_service
    import google.cloud.pubsub_v1
    import google.cloud.storage  # noqa: F401
    import kickoff

    for module in pkgutil.walk_packages(kickoff.__path__, "kickoff."):
        if not module.name.endswith("firestore"):
            importlib.import_module(module.name)


def serve(target: str, environ: dict[str, str], skew: float, requests: int, ready: int) -> None:
    """In the child: with this environment, by a clock that is `skew` seconds off."""
    import functions_framework
    from werkzeug.serving import make_server

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive the zygote
    os.environ.update(environ)
    app = functions_framework.create_app(target=target, source=str(SOURCE))
    if skew:
        entry: Any = sys.modules["main"]
        entry.utc_now = lambda: datetime.now(UTC) + timedelta(seconds=skew)
    server = make_server("127.0.0.1", 0, app)
    os.write(ready, f"{server.server_port}\n".encode())
    for _ in range(requests):
        server.handle_request()


def fork(command: dict[str, Any]) -> dict[str, int]:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            serve(command["target"], command["environ"], command["skew"], command["requests"], told)
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(ready) as pipe:
        return {"pid": pid, "port": int(pipe.readline() or 0)}


def reap(pid: int) -> dict[str, int | None]:
    found, status = os.waitpid(pid, os.WNOHANG)
    return {"status": os.waitstatus_to_exitcode(status) if found else None}


def main() -> None:
    load()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what functions print is no answer
    print("{}", file=answers)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(reap(command["reap"]) if "reap" in command else fork(command)), file=answers)


if __name__ == "__main__":
    main()
