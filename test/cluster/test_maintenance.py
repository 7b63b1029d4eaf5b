"""The maintenance daemon on five nodes: events become jobs, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import lvm_programs
from fakes.rapi import rapi_of
from fakes.shell_scripts import write_script
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle
from ganeti.system import daemon_control, process

MAINTD = "ganeti-maintd"
DEADLINE_S = 120.0
NEW = "-H fake --no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m"
FINE = {"status": "Ok"}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """Five nodes whose diagnose command prints a file, and four guests."""
    programs = tmp_path_factory.mktemp("lvm")
    lvm_programs.install(programs)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        made = stack.enter_context(own_cluster(5, ("ganeti-rapi",), None))
        for node in made.nodes:
            paths = made.paths_of(node)
            os.makedirs(paths.diagnose_commands_dir, exist_ok=True)
            os.makedirs(paths.repair_commands_dir, exist_ok=True)
            text = f"cat {paths.root}/diagnosis"
            say(made, node, FINE)
            write_script(Path(paths.diagnose_commands_dir) / "check", text)
            write_script(Path(paths.repair_commands_dir) / "fix", f"cat > {paths.root}/repaired")
        made.gnt("cluster modify --data-collector-interval diagnose=1")
        made.gnt("cluster modify --diagnose-data-collector-filename check")
        made.gnt("cluster modify --maintenance-interval=60")
        for number in range(4):
            node = made.nodes[1 + number % 2]
            made.gnt(f"instance add {NEW} -t sharedfile -n {node} i{number}.example.com")
        yield made


def say(cluster: TestCluster, node: str, found: object) -> None:
    """Have the diagnose command of a node print that."""
    path = Path(cluster.paths_of(node).root) / "diagnosis"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.rename(path)


def say_fine(cluster: TestCluster, node: str) -> None:
    """Have a node report that it is well: a fault that it still reports would be a new event."""
    say(cluster, node, FINE)
    host = cluster.layout.address_of(node)
    wait_until(
        lambda: '"Ok"' in ask(host, 1815, "/1/report/node/diagnose")["data"].get("msg", ""),
        "the report",
        timeout_s=DEADLINE_S,
    )


def get(cluster: TestCluster, target: str) -> Any:
    """Ask the maintenance daemon."""
    return ask(cluster.layout.address_of(cluster.master), 1816, target)


def ask(host: str, port: int, target: str) -> Any:
    """Ask a daemon of a node."""
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return json.loads(body)
    finally:
        connection.close()


def incident_of(cluster: TestCluster, node: str) -> dict[str, Any]:
    """Return the incident of a node; {} if there is none."""
    try:
        found = [each for each in get(cluster, "/1/status") if each["node-name"] == node]
    except OSError:
        return {}
    return found[0] if found else {}


def until_status(cluster: TestCluster, node: str, status: str) -> dict[str, Any]:
    wait_until(
        lambda: incident_of(cluster, node).get("repair-status") == status,
        f"{node} {status}: {incident_of(cluster, node)}",
        timeout_s=DEADLINE_S,
    )
    return incident_of(cluster, node)


def tags_of(cluster: TestCluster, node: str) -> set[str]:
    return set(cluster.gnt(f"node list-tags {node}").lines)


def instances_on(cluster: TestCluster, node: str) -> int:
    return int(cluster.gnt(f"node list --no-headers -o pinst_cnt {node}").out)


def acknowledge(cluster: TestCluster, node: str, tag: str) -> None:
    """Bring a node back, and forget its event."""
    say(cluster, node, FINE)
    cluster.gnt(f"node modify --offline=no {node}")
    cluster.gnt(f"node remove-tags {node} {tag}")
    wait_until(lambda: not incident_of(cluster, node), "the end", timeout_s=DEADLINE_S)


@pytest.mark.shows(
    "maintd/proposal/maintd",
    "maintd/proposal/source",
    "maintd/status/evacuate",
    "maintd/details/exported",
    "maintd/incidents/list",
    "maintd/incidents/fields",
    "maintd/incidents/states",
    "maintd/versions/list",
    "maintd/reporting/json",
    "maintd/reporting/port",
    "maintd/events/reason",
    "maintd/events/tags",
    "maintd/events/acknowledged",
    "maintd/operation/polls",
    "maintd/operation/shown",
    "maintd/operation/together",
)
def test_a_node_that_asks_for_it_is_emptied_and_tagged(five: TestCluster) -> None:
    node = five.nodes[1]
    assert get(five, "/") == [1]
    assert get(five, "/1/") is None
    assert instances_on(five, node) == 2
    original = {"status": "evacuate", "details": {"disk": ["sda", 1.5]}}
    say(five, node, original)
    found = until_status(five, node, "completed")
    uuid = five.gnt(f"node list --no-headers -o uuid {node}").out.strip()
    assert (found["node"], found["original"]) == (uuid, original)
    assert found["tag"] == f"maintd:repairready:{found['id']}"
    assert found["tag"] in tags_of(five, node)
    assert instances_on(five, node) == 0
    assert five.gnt(f"node list --no-headers -o role {node}").out.strip() == "O"
    states = five.gnt("instance list --no-headers -o status").lines
    assert {each.strip() for each in states} == {"running"}
    assert get(five, "/1/evacuated") == ["i0.example.com", "i2.example.com"]
    assert set(get(five, "/1/jobs")) <= set(found["jobs"])
    [ops] = five.client().query_jobs([found["jobs"][0]], ["ops"])[0]
    assert ops[0]["reason"][0][:2] == ["gnt:daemon:maintd", found["id"]]
    acknowledge(five, node, found["tag"])
    assert get(five, "/1/status") == []
    wait_until(lambda: get(five, "/1/evacuated") == [], "tidying up", timeout_s=DEADLINE_S)


def test_a_node_that_is_well_when_the_queue_opens_is_left_alone(five: TestCluster) -> None:
    node = five.nodes[1]
    five.gnt("cluster queue drain")
    try:
        say(five, node, {"status": "evacuate", "details": "refused"})
        wait_until(
            lambda: "refused" in (incident_of(five, node).get("why") or ""),
            "the refusal",
            timeout_s=DEADLINE_S,
        )
        until_status(five, node, "noted")
        refusal = f"NODE_SET_PARAMS({node}) is refused: "
        assert refusal in five.gnt("maint show").out
        say(five, node, FINE)
        wait_until(lambda: not incident_of(five, node), "the end", timeout_s=DEADLINE_S)
        log = Path(five.paths.log_file(MAINTD)).read_text()
        assert log.count(refusal) == 1
    finally:
        five.gnt("cluster queue undrain")
    assert five.gnt(f"node list --no-headers -o drained,offline {node}").out.split() == ["N", "N"]


@pytest.mark.shows("maintd/status/evacuate")
@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_guests_go_on_while_their_node_is_emptied(five: TestCluster) -> None:
    node, names = five.nodes[4], ("heart1.example.com", "heart2.example.com")
    new = NEW.replace("-H fake", "-H kvm").replace("-o test", "-o bootsector+default")
    for name in names:
        five.gnt(f"instance add {new} -t sharedfile -n {node} {name}")

    def beats(node: str, name: str) -> list[int]:
        path = Path(f"{five.paths_of(node).log_kvm_dir}/{name}.serial.log")
        text = path.read_text("latin1") if path.exists() else ""
        return [int(found) for found in re.findall(r"beat (\d+)\s", text)]

    for name in names:
        wait_until(lambda name=name: len(beats(node, name)) >= 3, f"{name} is up")  # type: ignore[misc]
    say(five, node, {"status": "evacuate", "details": "guests"})
    found = until_status(five, node, "completed")
    assert found["tag"] in tags_of(five, node)
    for name in names:
        before, target = beats(node, name), five.instance_field(name, "pnode")
        assert target != node
        wait_until(
            lambda name=name, target=target: len(beats(target, name)) >= 3,  # type: ignore[misc]
            f"{name} goes on",
        )
        # The counter goes on: the guest was not started anew.  Its first line may have been cut.
        assert min(beats(target, name)[1:]) >= before[-1] - 1
        five.gnt(f"instance remove -f {name}")
    acknowledge(five, node, found["tag"])


@pytest.mark.shows("maintd/status/live-repair", "maintd/command/executed", "maintd/security/stdin")
def test_a_live_repair_reads_the_whole_object(five: TestCluster) -> None:
    node = five.nodes[3]
    original = {"status": "live-repair", "command": "fix", "details": {"md": 0}}
    say(five, node, original)
    found = until_status(five, node, "completed")
    with open(f"{five.paths_of(node).root}/repaired", encoding="utf-8") as file:
        assert json.load(file) == original
    assert found["tag"] in tags_of(five, node)
    acknowledge(five, node, found["tag"])


@pytest.mark.shows("maintd/events/failed")
def test_a_repair_that_fails_is_tagged_and_not_tried_again(five: TestCluster) -> None:
    node = five.nodes[3]
    script = Path(five.paths_of(node).repair_commands_dir) / "breaks"
    write_script(script, "echo no; exit 1")
    say(five, node, {"status": "live-repair", "command": "breaks"})
    until_status(five, node, "failed")
    wait_until(
        lambda: incident_of(five, node)["tag"].startswith("maintd:repairfailed:"),
        "the tag",
        timeout_s=DEADLINE_S,
    )
    found = incident_of(five, node)
    assert found["tag"] in tags_of(five, node)
    assert len(found["jobs"]) == 2
    say_fine(five, node)
    five.gnt(f"node remove-tags {node} {found['tag']}")
    wait_until(lambda: not incident_of(five, node), "the end", timeout_s=DEADLINE_S)


@pytest.mark.shows("maintd/store/in-config", "maintd/events/jobs")
def test_killed_again_and_again_it_submits_nothing_twice(five: TestCluster) -> None:
    node = five.nodes[2]
    guests = instances_on(five, node)
    assert guests > 0
    say(five, node, {"status": "evacuate", "details": "again"})
    wait_until(lambda: incident_of(five, node), "the event", timeout_s=DEADLINE_S)
    for _ in range(3):
        jobs = len(incident_of(five, node).get("jobs", []))
        pid = daemon_control.running_pid(five.paths, MAINTD)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert process.wait_gone(pid, DEADLINE_S)
        daemon_control.start_daemon(five.paths, MAINTD, hostname=five.master)
        wait_until(
            lambda before=jobs: (
                incident_of(five, node).get("repair-status") == "completed"
                or len(incident_of(five, node).get("jobs", [])) > before
            ),
            "progress",
            timeout_s=DEADLINE_S,
        )
    found = until_status(five, node, "completed")
    assert instances_on(five, node) == 0
    words = [row[1] for row in five.client().query_jobs(found["jobs"], ["id", "summary"])]
    moves = [word for summary in words for word in summary if word.startswith("INSTANCE_")]
    assert len(moves) == len(set(moves)) == guests
    acknowledge(five, node, found["tag"])


@contextmanager
def watching(cluster: TestCluster) -> Iterator[Iterator[str]]:
    """Yield the lines that 'gnt-maint watch' prints."""
    environment = lifecycle.command_environment(cluster.layout, cluster.master)
    program = lifecycle.find_program("gnt-maint", environment)
    with subprocess.Popen(
        [program, "watch"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        finally:
            process.kill()


def next_line(lines: Iterator[str], word: str) -> str:
    """Return the next line with a word; the test as a whole has a limit of time."""
    return next(line for line in lines if word in line)


@pytest.mark.shows("maintd/events/cancel")
def test_events_are_canceled_by_a_command_and_by_the_remote_api(five: TestCluster) -> None:
    node = five.master  # which is never emptied, so that the event waits
    say(five, node, {"status": "evacuate", "details": 1})
    first = until_status(five, node, "noted")["id"]
    why = "it is the master node"
    wait_until(
        lambda: why in str(incident_of(five, node)["why"]), "the reason", timeout_s=DEADLINE_S
    )
    row = [first, node, "evacuate", "noted", "-"]
    assert five.gnt("maint list --no-headers").out.split() == row
    shown = five.gnt(f"maint show {first}").out
    assert '"details":1' in shown
    assert why in shown
    with watching(five) as lines:
        told = f"incident {first} of {node}: evacuate is"
        assert f"{told} noted ({why}" in next_line(lines, first)
        five.gnt(f"maint cancel {first}")
        assert f"{told} canceled" in next_line(lines, "canceled")
    assert five.gnt("maint list --no-headers").out.split()[3] == "canceled"
    until_status(five, node, "canceled")
    say(five, node, {"status": "evacuate", "details": 2})
    second = until_status(five, node, "noted")["id"]
    assert second != first
    with rapi_of(five) as rapi:
        found = rapi.ask("GET", "/2/maintenance").json["incidents"]
        assert [each["uuid"] for each in found] == [second]
        [status] = rapi.ask("GET", "/2/maintenance/status").json["incidents"]
        assert (status["id"], status["node-name"]) == (second, node)
        path = f"/2/maintenance/incidents/{second}"
        assert rapi.ask("POST", f"{path}/cancel").status == 200
        until_status(five, node, "canceled")
        assert rapi.ask("POST", f"{path}x/cancel").status == 404
        say(five, node, FINE)
        wait_until(lambda: not incident_of(five, node), "the end", timeout_s=DEADLINE_S)
        assert rapi.ask("DELETE", path).status == 404
    five.refused(f"maint cancel {first}", "there is no incident")


@pytest.mark.parametrize("text", ["garbage", '{"status": "explode"}', "[]"])
def test_what_a_node_says_in_riddles_is_not_acted_on(five: TestCluster, text: str) -> None:
    node = five.nodes[4]
    Path(five.paths_of(node).root, "diagnosis").write_text(text)
    log = Path(five.paths.log_file(MAINTD))
    wait_until(
        lambda: f"The health of node {node} is not known" in log.read_text(),
        "the log",
        timeout_s=DEADLINE_S,
    )
    assert not incident_of(five, node)
    say(five, node, FINE)


@pytest.mark.parametrize("pause", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.shows("maintd/forging/verified")
def test_of_a_node_that_does_not_answer_nothing_is_known(
    five: TestCluster, pause: signal.Signals
) -> None:
    """A monitoring daemon that is slow or gone, or a network that is: nobody acts."""
    node = five.nodes[3]
    say(five, node, {"status": "Ok"})
    paths = five.paths_of(node)
    pid = daemon_control.running_pid(paths, "ganeti-mond")
    assert pid is not None
    os.kill(pid, pause)
    try:
        say(five, node, {"status": "evacuate", "details": pause})
        words = {signal.SIGSTOP: "gave no answer within", signal.SIGKILL: "cannot be reached"}[
            pause
        ]
        wait_until(
            lambda: words in get(five, "/1/round")["unknown"].get(node, ""),
            f"{words}: {get(five, '/1/round')}",
            timeout_s=DEADLINE_S,
        )
        text = Path(five.paths.log_file(MAINTD)).read_text()
        assert re.search(f"health of node {node} is not known: .*{words}", text)
        assert not incident_of(five, node)
    finally:
        say(five, node, FINE)
        if pause == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        else:
            daemon_control.start_daemon(paths, "ganeti-mond", hostname=node)
    wait_until(
        lambda: node not in get(five, "/1/round")["unknown"], "reports", timeout_s=DEADLINE_S
    )


@pytest.mark.shows("maintd/events/jobs")
def test_daemons_of_the_master_that_die_meanwhile_change_nothing(five: TestCluster) -> None:
    node = five.nodes[4]
    say(five, node, {"status": "evacuate", "details": "restart"})
    wait_until(lambda: incident_of(five, node), "the event", timeout_s=DEADLINE_S)
    for daemon in ("ganeti-luxid", "ganeti-wconfd"):
        pid = daemon_control.running_pid(five.paths, daemon)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert process.wait_gone(pid, DEADLINE_S)
    log = Path(five.paths.log_file(MAINTD))
    wait_until(
        lambda: "Nothing is done for now: " in log.read_text(), "the log", timeout_s=DEADLINE_S
    )
    for daemon in ("ganeti-wconfd", "ganeti-luxid"):
        daemon_control.start_daemon(five.paths, daemon, hostname=five.master)
    found = until_status(five, node, "completed")
    words = [row[1] for row in five.client().query_jobs(found["jobs"], ["id", "summary"])]
    change = f"NODE_SET_PARAMS({node})"  # drained first, offline once it is empty
    moves = [word for summary in words for word in summary if word.startswith("INSTANCE_")]
    assert sorted(word for summary in words for word in summary if word not in moves) == [
        change,
        change,
        "TAGS_SET",
    ]
    assert len(moves) == len(set(moves))
    acknowledge(five, node, found["tag"])


@pytest.mark.shows("maintd/harep/balance", "maintd/harep/load", "backend/opportunistic/rebalanced")
def test_a_skewed_cluster_is_balanced_by_rounds(five: TestCluster) -> None:
    skewed, sick = five.nodes[1], five.nodes[4]
    for row in five.gnt("instance list --no-headers -o name,pnode").lines:
        name, node = row.split()
        if node != skewed:
            five.gnt(f"instance migrate -f -n {skewed} {name}")
    assert instances_on(five, skewed) == 4
    say(five, sick, {"status": "live-repair", "command": "missing"})
    until_status(five, sick, "failed")
    info = five.gnt("cluster info").out
    for words in ("balances the cluster: False", "moves disks: False", "measured load: False"):
        assert words in info
    five.gnt("cluster modify --auto-balance-cluster=yes --auto-balance-load=yes")
    five.gnt("cluster modify --maintenance-interval=2 --auto-balance-threshold=0.2")
    wait_until(
        lambda: "no move gains enough" in str(get(five, "/1/round")["balancing"]["why"]),
        f"balance: {get(five, '/1/round')}",
        timeout_s=DEADLINE_S,
    )
    balancing = get(five, "/1/round")["balancing"]
    assert balancing["is-on"] is True
    assert "left out" not in balancing["why"]  # every node tells its load
    assert [instances_on(five, node) for node in five.nodes] == [1, 1, 1, 1, 0]
    said = five.run(["hbal", "-L", "--min-gain-limit=9", "--min-gain=0.2", "-O", sick]).out
    assert "No solution found" in said or "already well balanced" in said
    [job_id, *_] = get(five, "/1/round")["jobs"]
    [ops] = five.client().query_jobs([job_id], ["ops"])[0]
    assert ops[0]["reason"][0][:2] == ["gnt:daemon:maintd", "balancing"]
    five.gnt("cluster modify --auto-balance-cluster=no --maintenance-interval=60")
    assert "balances the cluster: False" in five.gnt("cluster info").out
    say_fine(five, sick)
    for tag in tags_of(five, sick):  # of the event that failed
        five.gnt(f"node remove-tags {sick} {tag.strip()}")
    wait_until(lambda: not incident_of(five, sick), "the end", timeout_s=DEADLINE_S)


@pytest.mark.shows("maintd/harep/harep", "maintd/harep/configured")
def test_an_instance_is_repaired_as_far_as_its_tags_allow(five: TestCluster) -> None:
    prefix, node = "ganeti:watcher:autorepair:", five.nodes[2]
    for each in five.nodes:
        lvm_programs.make_group(five.paths_of(each).root, "xenvg", {"/dev/none/sda1": 30000})
    five.gnt("cluster modify --vg-name=xenvg")
    five.gnt(
        "cluster modify --enabled-disk-templates=plain,sharedfile"
        " --ipolicy-disk-templates=plain,sharedfile"
    )
    words = f"{NEW} --no-start -t plain -n {node} plain.example.com"
    five.gnt(f"instance add {words}")
    for row in five.gnt("instance list --no-headers -o name,pnode").lines:
        name, primary = row.split()
        if primary == node and name != "plain.example.com":
            five.gnt(f"instance migrate -f -n {five.nodes[3]} {name}")
    five.gnt(f"node modify --offline=yes {node}")
    five.gnt("cluster modify --auto-repair-instances=yes --maintenance-interval=1")
    why = "plain.example.com: no tag allows repairs"
    wait_until(lambda: get(five, "/1/round")["repairs"]["why"] == why, "why", timeout_s=DEADLINE_S)
    five.gnt(f"instance add-tags plain.example.com {prefix}reinstall")

    def result() -> list[str]:
        tags = five.gnt("instance list-tags plain.example.com").lines
        return [tag for tag in tags if tag.startswith(f"{prefix}result:")]

    wait_until(result, "the end of the repair", timeout_s=DEADLINE_S)
    [tag] = result()
    kind, _uuid, _time, end, jobs = tag.removeprefix(f"{prefix}result:").split(":")
    assert (kind, end) == ("reinstall", "success")
    [[ops]] = five.client().query_jobs([int(jobs)], ["ops"])
    assert [op["OP_ID"] for op in ops] == ["OP_INSTANCE_RECREATE_DISKS", "OP_INSTANCE_REINSTALL"]
    pnode = five.gnt("instance list --no-headers -o pnode plain.example.com").out.strip()
    assert pnode in set(five.nodes) - {node}
    five.gnt("cluster modify --auto-repair-instances=no --maintenance-interval=60")
    five.gnt("instance remove -f plain.example.com")
    five.gnt(f"node modify --offline=no {node}")


@pytest.mark.shows("maintd/daemon/master", "maintd/daemon/not-master")
def test_elsewhere_it_ends_with_11(five: TestCluster) -> None:
    outcome = five.run([MAINTD, "--foreground"], node=five.nodes[1])
    assert outcome.status == 11, outcome
