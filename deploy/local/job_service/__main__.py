"""``python -m deploy.local.job_service``: prints its URL when ready; SIGTERM and SIGINT end it with its replicas."""

import argparse
import errno
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from kickoff.errors import ConfigurationError

from deploy.local.job_service.images import read_images
from deploy.local.job_service.options import QUEUE, REJECT, Options
from deploy.local.job_service.server import JobServiceServer
from deploy.local.job_service.states import PERMANENT_EXITS


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        server = JobServiceServer(build_options(arguments), arguments.port)
    except OSError as error:
        taken = f"port {arguments.port} is taken by another program; choose another with --port"
        print(f"kickoff: {taken if error.errno == errno.EADDRINUSE else error}", file=sys.stderr)
        return 2
    except ConfigurationError as error:
        print(f"kickoff: {error}", file=sys.stderr)
        return 2
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    with server:
        print(server.url, flush=True)
        if arguments.hints:
            print(describe_clients(server.url, arguments.project, arguments.region), flush=True)
        done.wait()
    return 0


def build_options(arguments: argparse.Namespace) -> Options:
    """Raises ConfigurationError."""
    return Options(
        state=arguments.state,
        project=arguments.project,
        region=arguments.region,
        images=read_images(arguments.images),
        logs_topic=arguments.logs_topic,
        numeric_projects=arguments.numeric_projects,
        submissions_per_minute=arguments.submissions_per_minute,
        quotas=dict(arguments.quota),
        quota_mode=arguments.quota_mode,
        unusable_service_accounts=tuple(arguments.unusable_service_account),
        bucket_locations=dict(arguments.bucket_location),
        mounts=tuple(arguments.mount),
        startup_deadline=arguments.startup_deadline,
        permanent_exits=frozenset(arguments.permanent_exit) or PERMANENT_EXITS,
        error_delay=arguments.error_delay,
        grace=arguments.grace,
        clock_speed=arguments.clock_speed,
        verbose=arguments.verbose,
    )


def describe_clients(url: str, project: str, region: str) -> str:
    """How the stock clients reach the emulator."""
    return f"""
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform

aiplatform.init(project="{project}", location="{region}", staging_bucket="gs://{project}-staging",
                credentials=AnonymousCredentials(), api_endpoint="{url}", api_transport="rest")

export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM={url}/ CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING={url}/
export CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true CLOUDSDK_CORE_PROJECT={project}
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.job_service", description="A Vertex AI Training service on this machine."
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="0: any free port")
    add("--state", type=Path, required=True, help="folder for jobs and logs; survives restarts")
    add("--project", default="kickoff-local")
    add("--region", default="us-central1")
    add("--images", type=Path, help='JSON file {"<uri glob>": ["command", …] | "instant" | "idle"}')
    add("--logs-topic", default="", help="projects/P/topics/T for the service's log lines")
    add("--numeric-projects", action="store_true", help="answer with project numbers, as the service does")
    add("--submissions-per-minute", type=int, default=0, help="beyond it create answers 429; the service allows 60")
    add(
        "--quota",
        type=_limit,
        action="append",
        default=[],
        metavar="METRIC=N",
        help="e.g. custom_model_training_nvidia_t4_gpus=2",
    )
    add("--quota-mode", choices=(QUEUE, REJECT), default=QUEUE)
    add("--unusable-service-account", action="append", default=[], metavar="EMAIL")
    add("--bucket-location", type=_pair, action="append", default=[], metavar="BUCKET=LOCATION")
    add("--mount", action="append", default=[], metavar="BUCKET", help="seen at /gcs/BUCKET by every replica")
    add("--startup-deadline", type=float, default=600.0, help="seconds until every replica must be up")
    add("--permanent-exit", type=int, action="append", default=[], metavar="STATUS", help="ends a job at once")
    add("--error-delay", type=float, default=0.0, help="seconds until a failed job's error is filled")
    add("--grace", type=float, default=2.0, help="seconds between SIGTERM and SIGKILL")
    add("--clock-speed", type=float, default=1.0, help="how fast the emulator's time runs")
    add("--hints", action="store_true", help="also print how clients reach it")
    add("--verbose", action="store_true", help="log every request")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=VALUE")
    return name, value


def _limit(text: str) -> tuple[str, int]:
    name, value = _pair(text)
    if not value.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}: {value!r} must be a whole number")
    return name, int(value)


if __name__ == "__main__":
    sys.exit(main())
