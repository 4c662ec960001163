"""500 requests meet Vertex AI's 60 submissions a minute: all start, by 429, back-off and the sweep alone."""

from pathlib import Path

from kickoff.runs import State

from deploy.local.job_service.images import parse_images
from deploy.local.job_service.options import Options
from deploy.local.job_service.server import JobServiceServer
from tests.kickoff.lab import Lab

REQUESTS = 500


def test_a_burst_beyond_the_submission_quota_starts_in_the_time_that_the_quota_allows(tmp_path: Path) -> None:
    images = parse_images('{"instant": "instant"}', "tests")
    with JobServiceServer(Options(state=tmp_path / "vertex", images=images, submissions_per_minute=60)) as server:
        lab = Lab(tmp_path, server)
        runs = [lab.submit(lab.queued(f"m-{n}", image="instant")) for n in range(REQUESTS)]
        assert sum(run.state is State.SUBMITTED for run in runs) == 60
        minutes = 0
        while lab.ledger.count_runs(states=[State.QUEUED, State.SUBMITTING]) and minutes < 30:
            minutes += 1
            lab.later(60)
            server.services.clock.advance(60)
            assert lab.sweep(budget=10_000).errors == []
        stored = [lab.run(run) for run in runs]
        assert minutes <= 13, "the quota alone needs 8"
        assert all(len(run.nonces) == run.submissions for run in stored)
        assert sum(run.submissions for run in stored) < 2.2 * REQUESTS, "not many submissions were wasted"
        jobs = lab.vertex._list(lab.project, "us-central1", "labels.kickoff-run:*")
        assert len(jobs) == len({job.labels["kickoff-run"] for job in jobs}) == REQUESTS
        lab.ledger.close()
