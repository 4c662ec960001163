"""`python -m trainer.task`: reads where it runs, trains, leaves a model, and ends with a status that says how.

docs/trainer.md has the options, the variables and the exit statuses.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence

from trainer.arguments import Options, find_unsupported, parse_arguments
from trainer.cluster import Cluster, parse_cluster, select_strategy
from trainer.errors import InvalidArguments, TrainerError
from trainer.fence import fence_uri, wins
from trainer.progress import say, warn

DUPLICATE = 0
"""Another job of the same run trains: nothing to do is not a failure."""


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit status. Nothing of TensorFlow is imported before options, cluster and fence are known to be right."""
    options = parse_arguments(argv, environ)
    cluster = parse_cluster(environ)
    fence = fence_uri(environ)
    if fence and not wins(fence, environ["CLOUD_ML_JOB_ID"], primary=cluster.is_primary):
        say(f"duplicate: {fence} names another job, which trains this run; nothing to do")
        return DUPLICATE
    return _train(options, cluster, environ)


def _train(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's greetings are no news in a job's log
    strategy = select_strategy(options.strategy, cluster, devices=0)
    if faults := find_unsupported(options, strategy):
        raise InvalidArguments("\n".join(faults))
    if strategy == "parameter-server":
        os.environ["TF_USE_LEGACY_KERAS"] = "1"  # read when TensorFlow is imported: parameter servers need tf_keras
        from trainer.parameter_server import run_task

        run_task(options, cluster, environ)
    else:
        from trainer.training import train

        train(options, cluster, environ)
    return 0


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        parse_arguments(["--help"], os.environ)
    try:
        status = run(sys.argv[1:], os.environ)
    except TrainerError as error:
        warn("".join(f"trainer: {line}\n" for line in str(error).splitlines()).rstrip())
        status = error.exit_status
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: with a peer gone, TensorFlow's teardown may wait for it, or abort and hide the status.
    os._exit(status)


if __name__ == "__main__":
    main()
