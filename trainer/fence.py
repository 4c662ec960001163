"""The fence: of all jobs that were ever made for one output directory, one trains.

Vertex AI has no idempotent create, so two jobs of one run are possible. The first primary to create
`<base output>/winner` names its job in it; the other job finds that name and ends well, touching nothing.
"""

from collections.abc import Mapping

from trainer.errors import StorageFailed
from trainer.storage import create, join, read

WINNER = "winner"


def fence_uri(environ: Mapping[str, str]) -> str | None:
    """Where the fence stands; None outside Vertex AI, or without a base output directory, where nothing can collide.

    AIP_MODEL_DIR is `<base output directory>/model/`.
    """
    model_dir = environ.get("AIP_MODEL_DIR", "").rstrip("/")
    if not model_dir or not environ.get("CLOUD_ML_JOB_ID"):
        return None
    return join(model_dir.removesuffix("/model"), WINNER)


def wins(uri: str, job_id: str, *, primary: bool) -> bool:
    """True when this job may train: it holds the fence, or (a worker asking early) nobody holds it yet.

    A restart of the same job finds its own id. So does a create whose answer was lost: Cloud Storage then says
    that the object exists, and its content says whose it is.
    """
    if primary and create(uri, job_id.encode()):
        return True
    try:
        holder = read(uri).decode().strip()
    except FileNotFoundError:
        return not primary
    if not holder:  # on a disk, where the file is there before what is in it
        raise StorageFailed(f"{uri} is empty: nobody can say which job trains; delete it if none does")
    return holder == job_id
