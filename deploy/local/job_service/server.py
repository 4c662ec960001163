"""Puts the emulator together. For tests: ``with JobServiceServer(Options(state=folder)) as server: server.url``."""

import fcntl
import threading
from dataclasses import replace
from types import TracebackType
from typing import IO, Self

from kickoff.errors import ConfigurationError

from deploy.local.job_service.admin import Admin
from deploy.local.job_service.clock import Clock
from deploy.local.job_service.custom_jobs import CustomJobs, Projects
from deploy.local.job_service.entries import list_entries
from deploy.local.job_service.faults import Faults
from deploy.local.job_service.http_server import HttpServer
from deploy.local.job_service.images import Image, read_images
from deploy.local.job_service.logs import Logs
from deploy.local.job_service.loop import Loop
from deploy.local.job_service.options import Options
from deploy.local.job_service.pipelines import Pipelines
from deploy.local.job_service.processes import Watcher
from deploy.local.job_service.routes import Request, Routes
from deploy.local.job_service.services import Services
from deploy.local.job_service.store import Store
from deploy.local.job_service.supervisor import Supervisor

_PARENT = r"/(?P<version>v1|v1beta1)/projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)"
_ID = r"/(?P<id>[^/:]+)"


class JobServiceServer:
    """A context manager: inside it the emulator serves from threads of this process."""

    def __init__(self, options: Options, port: int = 0) -> None:
        if not options.images:
            options = replace(options, images=read_images(None))
        self.options = options
        self._lock = self._acquire()
        clock = Clock(options.clock_speed)
        self.projects = Projects(numeric=options.numeric_projects)
        self.services = Services(
            options=options,
            store=Store(options.state),
            logs=Logs(options.state, clock, options.logs_topic),
            clock=clock,
            loop=Loop(clock),
            watcher=Watcher(),
            faults=Faults(),
            project_number=self.projects.number,
            url=lambda: self.url,
        )
        for project in self.services.store.projects():
            self.projects.number(project)
        self.supervisor = Supervisor(self.services)
        self.routes = Routes(self.services.faults)
        self._add_routes()
        self._http = HttpServer(port, self.routes, verbose=options.verbose)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True
        )

    @property
    def url(self) -> str:
        return self._http.url

    def start(self) -> None:
        self.supervisor.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, end every replica, close the files."""
        self._http.shutdown()
        self._http.server_close()
        self.supervisor.stop()
        self.services.watcher.close()
        self.services.logs.close()
        self.services.store.close()
        self._lock.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _acquire(self) -> IO[str]:
        """One emulator a state folder. Raises ConfigurationError where another runs."""
        self.options.state.mkdir(parents=True, exist_ok=True)
        lock = (self.options.state / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ConfigurationError(f"another JobService emulator runs on {self.options.state}") from None
        return lock

    def _set_images(self, images: dict[str, Image]) -> None:
        """Put `images` before those of the start; an empty table takes such an addition back."""
        self.services.options = replace(self.options, images=images | dict(self.options.images))

    def _add_routes(self) -> None:
        jobs = CustomJobs(self.services, self.supervisor, self.projects)

        def place(request: Request) -> tuple[str, str]:
            return self.projects.known_as(request["project"]), request["region"]

        path = f"{_PARENT}/customJobs"
        add = self.routes.add
        add("POST", path, lambda r: jobs.create(*place(r), r.json), "create")
        add("GET", path, lambda r: jobs.list_page(*place(r), r.query), "list")
        add("GET", path + _ID, lambda r: jobs.get(*place(r), r["id"]), "get")
        add("POST", f"{path}{_ID}:cancel", lambda r: jobs.cancel(*place(r), r["id"]), "cancel")
        add("DELETE", path + _ID, lambda r: jobs.delete(*place(r), r["id"]), "delete")
        pipelines = Pipelines(self.services, jobs, self.projects)
        self.supervisor.on_job_end = pipelines.job_ended
        path = f"{_PARENT}/trainingPipelines"
        add("POST", path, lambda r: pipelines.create(*place(r), r.json), "create")
        add("GET", path, lambda r: pipelines.list_page(*place(r), r.query), "list")
        add("GET", path + _ID, lambda r: pipelines.get(*place(r), r["id"]), "get")
        add("POST", f"{path}{_ID}:cancel", lambda r: pipelines.cancel(*place(r), r["id"]), "cancel")
        add("DELETE", path + _ID, lambda r: pipelines.delete(*place(r), r["id"]), "delete")
        add("GET", f"{_PARENT}/models{_ID}", lambda r: pipelines.get_model(*place(r), r["id"]), "get")
        add("POST", "/v2/entries:list", lambda r: list_entries(self.services.logs, r.json))
        self._add_admin()

    def _add_admin(self) -> None:
        admin = Admin(self.services, self.supervisor, self._set_images)
        add = self.routes.add
        add("POST", "/admin/faults", lambda r: admin.add_fault(r.json))
        add("GET", "/admin/faults", lambda r: admin.list_faults())
        add("DELETE", "/admin/faults", lambda r: admin.clear_faults())
        add("POST", "/admin/instant", lambda r: admin.instant(r.json))
        add("POST", "/admin/clock", lambda r: admin.clock(r.json))
        add("GET", "/admin/jobs", lambda r: admin.jobs())
        add("POST", f"/admin/jobs{_ID}:(?P<what>[a-z]+)", lambda r: admin.disturb(r["id"], r["what"], r.json))
        add("GET", f"/web{_ID}/(?P<task>[^/]+)", lambda r: admin.log(r["id"], r["task"]))
        add("GET", "/logs/viewer", lambda r: admin.view(r.query.get("resource", "")))
        add("GET", "/", lambda r: "Kickoff's JobService emulator. GET /admin/jobs says what goes on.\n")
