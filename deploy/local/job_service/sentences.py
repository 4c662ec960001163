"""The service's sentences about replicas and jobs, in its words where they are known. Pure."""

from collections.abc import Sequence

from deploy.local.job_service import states

START_ERROR = 128
LAST_LINES = {
    states.SUCCEEDED: ("Job completed successfully.", "INFO"),
    states.CANCELLED: ("Job cancelled.", "WARNING"),
    states.EXPIRED: ("Job expired.", "ERROR"),
    states.FAILED: ("Job failed.", "ERROR"),
}
"""State to the last line of the service and its severity."""


def describe_exit(replica: str, status: int, tail: Sequence[str], *, viewer: str, project: str, job_id: str) -> str:
    """A replica that failed, with its last lines; `viewer` serves the logs where Google's console would."""
    reason = "".join([" Termination reason: Error.\n", *(f"{line}\n" for line in tail)]) if tail else " "
    return (
        f"The replica {replica} exited with a non-zero status of {status}.{reason}To find out more about why your job "
        f"exited please check the logs: {viewer}/logs/viewer?project={project}&resource=ml_job%2Fjob_id%2F{job_id}"
    )


def describe_start_error(replica: str, why: str) -> str:
    status = f"a non-zero status of {START_ERROR}. Termination reason: StartError. {why}"
    return f"The replica {replica} exited with {status}"


def describe_unknown_image(uri: str) -> str:
    return (
        f"Failed to pull image {uri!r}: image is not found. This is the local emulator: map the image to a command in "
        f'the file given with --images, e.g. {{"{uri}": ["python", "-m", "trainer.task"]}}.'
    )
