"""The admin methods, which the service does not have: faults, the clock, disturbances, what goes on."""

from collections.abc import Callable
from typing import Any

from deploy.local.job_service.clock import MAX_ADVANCE, MAX_SPEED
from deploy.local.job_service.errors import ApiError, not_found
from deploy.local.job_service.execution import CUSTOM_JOBS
from deploy.local.job_service.faults import parse_fault
from deploy.local.job_service.images import Image
from deploy.local.job_service.services import Services
from deploy.local.job_service.supervisor import Supervisor

Json = dict[str, Any]
DISTURBANCES = ("kill", "preempt", "freeze", "thaw", "slow")


class Admin:
    """All under ``/admin/``."""

    def __init__(
        self, services: Services, supervisor: Supervisor, set_images: Callable[[dict[str, Image]], None]
    ) -> None:
        self._services = services
        self._supervisor = supervisor
        self._set_images = set_images

    def add_fault(self, body: object) -> Json:
        fault = parse_fault(body)
        self._services.faults.add(fault)
        return fault.to_json()

    def list_faults(self) -> Json:
        return {"faults": [fault.to_json() for fault in self._services.faults.standing()]}

    def clear_faults(self) -> Json:
        self._services.faults.clear()
        return {}

    def jobs(self) -> Json:
        return self._supervisor.stats()

    def instant(self, body: object) -> Json:
        """``{"enabled": bool, "status": 0}``: every image ends at once, without a process."""
        fields = body if isinstance(body, dict) else {}
        enabled, status = fields.get("enabled", True), fields.get("status", 0)
        if not isinstance(enabled, bool) or not isinstance(status, int) or not 0 <= status < 256:
            raise ApiError(400, "enabled must be a boolean, and status a whole number from 0 to 255")
        self._set_images({"*": Image(instant=status)} if enabled else {})
        return {"enabled": enabled, "status": status}

    def clock(self, body: object) -> Json:
        """``{"advance_seconds": S, "speed": X}``: put the clock forward, or let it run faster."""
        fields = body if isinstance(body, dict) else {}
        advance, speed = fields.get("advance_seconds", 0), fields.get("speed")
        if not _between(advance, 0, MAX_ADVANCE) or (speed is not None and not _between(speed, 0.001, MAX_SPEED)):
            raise ApiError(400, f"advance_seconds must be from 0 to {MAX_ADVANCE:g}, speed from 0.001 to {MAX_SPEED:g}")
        if speed is not None:
            self._services.clock.set_speed(speed)
        self._services.clock.advance(advance)
        self._services.loop.wake()
        return {"now": self._services.clock.now()}

    def disturb(self, job_id: str, what: str, body: object) -> Json:
        """``{"replica": "workerpool1-0", "signal": 9}``; the primary and SIGKILL by default."""
        fields = body if isinstance(body, dict) else {}
        replica, number = fields.get("replica", "workerpool0-0"), fields.get("signal", 9)
        if what not in DISTURBANCES:
            raise not_found(f"The admin method {what}")
        if not isinstance(replica, str) or not _between(number, 1, 31) or not isinstance(number, int):
            raise ApiError(400, "replica must be a replica's name, and signal a whole number from 1 to 31")
        self._supervisor.disturb(job_id, what, replica, number)
        return {}

    def log(self, job_id: str, task: str) -> str:
        """What a task wrote, as text."""
        path = self._services.logs.path(job_id, task)
        fine = job_id.isdigit() and task.replace("-", "").isalnum() and self._services.store.get(CUSTOM_JOBS, job_id)
        if not fine or not path.is_file():
            raise not_found(f"A log of {task} of job {job_id}"[:300])
        return path.read_text(errors="replace")

    def view(self, resource: str) -> str:
        """All entries of ``ml_job/job_id/N`` as text: where the error message of a failed job points to."""
        job_id = resource.rpartition("/")[2]
        if not self._services.store.get(CUSTOM_JOBS, job_id):
            raise not_found(f"The job {job_id[:30]}")
        return "".join(f"{line}\n" for line in map(describe_entry, self._services.logs.entries(job_id)))


def describe_entry(entry: Json) -> str:
    """One log entry as a line for people."""
    text = entry.get("textPayload") or entry["jsonPayload"].get("message") or entry["jsonPayload"]
    return f"{entry['timestamp']} {entry['severity']:7} {entry['resource']['labels']['task_name']}: {text}"


def _between(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
