"""What can end a training run early, and the exit status each gives (docs/trainer.md has the table).

Statuses follow sysexits.h where it has a word for it. Trying again can only help from 74 on, so an
operator, or a retry rule, can tell the two groups apart by the number alone.
"""


class TrainerError(Exception):
    """The root: its text is one line for a person, its `exit_status` is for the platform."""

    exit_status = 1


class InvalidArguments(TrainerError):
    """Options, TF_CONFIG or the machine cannot work together. Permanent."""

    exit_status = 2


class InvalidData(TrainerError):
    """No images, one class only, or images that cannot be read. Permanent."""

    exit_status = 65


class Diverged(TrainerError):
    """The loss is no longer a finite number. Permanent: the same seed gives the same end."""

    exit_status = 70


class AccessDenied(TrainerError):
    """The service account may not read or write there. Permanent until somebody grants it."""

    exit_status = 73


class StorageFailed(TrainerError):
    """A disk is full, or Cloud Storage does not answer."""

    exit_status = 74


class PeerLost(TrainerError):
    """A replica that was there has gone; a restart of the whole job resumes from the last checkpoint."""

    exit_status = 75


class PeerAbsent(TrainerError):
    """A replica named in the cluster never answered within --peer-timeout."""

    exit_status = 76


class Terminated(TrainerError):
    """SIGTERM: a checkpoint was written at the step it came in. 128 + 15, as the shell counts it."""

    exit_status = 143
