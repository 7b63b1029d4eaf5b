"""Under load, LuxiD, WConfD and job processes are killed at random moments.

In half of the rounds another node becomes master as well.  Afterwards every job whose id was
returned exists and has ended, none ran twice, and nothing is left locked.

``GANETI_TEST_ROUNDS=200 pytest test/fault/test_luxid_campaign.py`` plays longer;
``GANETI_TEST_SEED`` plays the same damage again.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from fakes.campaign import (
    Campaign,
    Load,
    check_nothing_left,
    check_promises,
    install_hook,
    wait_for_jobs,
    wait_settled,
)
from fakes.chance import seed
from fakes.failing_cluster import failing_cluster

from ganeti.jobs.status import Status

ROUNDS = int(os.environ.get("GANETI_TEST_ROUNDS", "12"))
SEED = seed()
CLIENTS = 2
ARCHIVE_EVERY = 10  # rounds, so that the queue does not reach its limit
ROUND_SECONDS_MAX = 30
JOBS_PER_ROUND = 4  # at least, so that most of them are not killed


@pytest.mark.shows("backend/masterd/hard-stop", "2.12/locking/processes")
def test_nothing_acknowledged_is_lost_and_nothing_runs_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faulthandler.cancel_dump_traceback_later()
    faulthandler.dump_traceback_later(
        120 + ROUNDS * ROUND_SECONDS_MAX, exit=True, file=sys.__stderr__
    )
    monkeypatch.setenv("GANETI_HOSTNAME", "client.example.com")  # it is none of the nodes
    with failing_cluster(3) as cluster:
        ran_path = install_hook(cluster)
        campaign = Campaign(cluster, SEED)
        loads = [Load(cluster, number, SEED + number) for number in range(CLIENTS)]
        for load in loads:
            load.start()
        try:
            for number in range(ROUNDS):
                wait_for_jobs(loads, (number + 1) * JOBS_PER_ROUND)
                campaign.play_round(fails_over=number % 2 == 1)
                if number % ARCHIVE_EVERY == ARCHIVE_EVERY - 1:
                    cluster.gnt("job autoarchive all")
        finally:
            for load in loads:
                load.stop()
        wait_settled(cluster)
        accepted = {job_id: name for load in loads for job_id, name in load.accepted.items()}
        assert sum(len(load.accepted) for load in loads) == len(accepted), "an id was given twice"
        ran = Counter(Path(ran_path).read_text().split())
        ended = check_promises(cluster, accepted, ran, campaign.killed_jobs)
        check_nothing_left(cluster)
        refusals = sum((load.refusals for load in loads), Counter[str]())
        with capsys.disabled():
            sys.stdout.write(
                f"\n{ROUNDS} rounds, GANETI_TEST_SEED={SEED}: {dict(campaign.done)};"
                f" {len(accepted)} jobs: { {str(s): n for s, n in ended.items()} };"
                f" submissions without an answer: {dict(refusals)}\n"
            )
        assert ended[Status.SUCCESS] > len(accepted) / 4, "hardly any job succeeded"
