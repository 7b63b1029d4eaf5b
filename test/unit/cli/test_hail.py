"""The program around the allocator: options, files, and what it leaves with."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fakes.allocator_questions import Json, instance, new, node, question

from ganeti.cli.htools.hail import OPTIONS
from ganeti.cli.programs import main

NODES = {"a": node(), "b": node(), "c": node()}


class Run:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: Path
    ) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.path = str(path / "question")

    def __call__(self, content: Json | str, *words: str) -> tuple[int, str, str]:
        text = content if isinstance(content, str) else json.dumps(content)
        Path(self.path).write_text(text)
        return self.words(self.path, *words)

    def words(self, *words: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["hail", *words])
        status = main()
        said = self._capsys.readouterr()
        return status, said.out, said.err

    def answer(self, content: Json, *words: str) -> Any:
        status, out, err = self(content, *words)
        assert (status, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    return Run(monkeypatch, capsys, tmp_path)


def test_it_answers_in_json_and_leaves_with_0_whether_there_is_a_place_or_not(run: Run) -> None:
    found = run.answer(question(new(), NODES))
    assert found.keys() == {"success", "info", "result"}
    assert (found["success"], found["result"]) == (True, ["a", "b"])
    found = run.answer(question(new(memory=20000), NODES))
    assert (found["success"], found["result"]) == (False, [])


def test_options_may_stand_behind_the_file_as_the_node_daemon_puts_them(run: Run) -> None:
    one = {"a": node()}
    content = question(new(template="ext"), one)
    assert not run.answer(content)["success"]
    assert run.answer(content, "--no-capacity-checks")["success"]
    assert run.answer(question(new(), NODES), "--restrict-allocation-to=b,c")["result"] == [
        "b",
        "c",
    ]
    cpus = question(new(template="plain"), {"a": node(total_cpus=0)})
    assert run.answer(cpus, "--ignore-soft-errors")["success"]


def test_the_number_of_instances_can_be_left_out_of_the_score(run: Run) -> None:
    nodes = {"a": node(free_memory=9990), "b": node(free_memory=9000)}
    instances = {f"i{number}": instance(["a"], "ext", 2, vcpus=1) for number in range(5)}
    instances["j"] = instance(["b"], "ext", 1000, vcpus=5)
    content = question(new(template="ext", memory=100), nodes, instances)
    assert run.answer(content)["result"] == ["b"]
    assert run.answer(content, "--ignore-dynu")["result"] == ["a"]


def test_memory_of_kvm_nodes_can_be_set_down(run: Run) -> None:
    content = question(new(template="plain", memory=7000), NODES, enabled_hypervisors=["kvm"])
    assert run.answer(content)["success"]
    assert not run.answer(content, "--static-kvm-node-memory=4096")["success"]


def test_it_reads_the_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps(question(new(), NODES)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    status, out, _ = run.words("-")
    assert (status, json.loads(out)["result"]) == (0, ["a", "b"])


def test_the_cluster_can_be_saved_read_and_made_up(run: Run, tmp_path: Path) -> None:
    target = str(tmp_path / "saved")
    content = question(new(template="plain", memory=3000), NODES)
    status, out, err = run(content, "-S", target)
    assert (status, json.loads(out)["result"]) == (0, ["a"])
    assert err.splitlines() == [
        f"The cluster state {when} iallocator run has been written to file '{target}.{ending}'"
        for when, ending in (("before", "pre-ialloc"), ("after", "post-ialloc"))
    ]
    assert run.answer(content, f"--text-data={target}.pre-ialloc")["result"] == ["a"]
    there = run(content, "-t", f"{target}.post-ialloc")
    assert (there[0], there[2]) == (1, "hail: there is an instance 'new' already\n")
    nics = [{"mac": "auto", "mode": "bridged", "link": "br0"}]
    wish = question(new(disk=2000, nics=nics), NODES)
    made_up = run.answer(wish, "--simulate=p,4,100g,8g,4,2")
    assert made_up["result"] == ["node-01-001", "node-01-002"]


def test_it_explains_a_place_to_people_and_in_the_answer(run: Run) -> None:
    nodes = {"a": node(), "b": node(free_memory=1)}
    status, out, err = run(question(new(template="plain"), nodes), "--explain")
    said = json.loads(out)
    assert (status, said["result"]) == (0, ["a"])
    assert said["explanation"] == err.splitlines()
    assert err.splitlines()[-1].startswith("node b: refused as primary node memory (1 MiB free")
    assert "explanation" not in run.answer(question(new(template="plain"), nodes))


def test_it_says_more_when_asked(run: Run) -> None:
    status, _, err = run(question(new(), NODES), "-v")
    assert status == 0
    assert err.startswith("allocate, 3 nodes, 0 instances\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no question to an allocator: invalid JSON"),
        ("{", "no question to an allocator: invalid JSON"),
        ("[]", "no question to an allocator"),
        ("{}", "missing required field `cluster_name`"),
        (json.dumps(question({"type": "juggle"}, NODES)), "juggle"),
        (json.dumps(question({"type": "relocate"}, NODES)), "missing required field `name`"),
        (json.dumps(question(new(memory="much"), NODES)), "$.request.memory"),
        (
            json.dumps(question(new(), {**NODES, "bad": node(total_memory="much")})),
            "node 'bad': invalid JSON: Expected `int`, got `str` - at `$.total_memory`",
        ),
        (
            json.dumps(question(new(), NODES, {"i": instance(["a", "a"])})),
            "instance 'i': node 'a' is both primary and secondary node",
        ),
        (
            json.dumps(question(new(), NODES, {"i": instance(["a", "zz"])})),
            "instance 'i' is on unknown node 'zz'",
        ),
        (json.dumps(question(new(), NODES, version=3)), "version 3"),
        (json.dumps(question(new(memory=-3), NODES)), "memory is -3"),
        (
            json.dumps(question(new(), {"a": {}})),
            "node 'a': invalid JSON: Object missing required field `primary_ip`",
        ),
        ('{"x":' * 100000, "nested too deeply"),
    ],
)
def test_a_bad_question_is_one_message_and_exit_status_1(
    run: Run, content: str, message: str
) -> None:
    status, out, err = run(content)
    assert (status, out) == (1, "")
    assert err.startswith("hail: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("/does/not/exist",), 1, "/does/not/exist: No such file or directory"),
        ((), 1, "FILE is missing"),
        (("/dev/null", "--nonsense"), 2, "no such option: --nonsense"),
    ],
)
def test_a_bad_command_line_says_what_is_wrong(
    run: Run, words: tuple[str, ...], status: int, message: str
) -> None:
    found, out, err = run.words(*words)
    assert (found, out) == (status, "")
    assert message in err


def test_a_source_beside_the_question_that_makes_no_sense_is_refused(run: Run) -> None:
    content = question(new(), NODES)
    status, _, err = run(content, "-t", "x", "--simulate=y")
    assert (status, err) == (1, "hail: only one of --text-data and --simulate can be given\n")
    status, _, err = run(content, "--static-kvm-node-memory=-1")
    assert (status, err) == (1, "hail: --static-kvm-node-memory: memory cannot be negative\n")


def test_files_beside_the_question_are_named_in_errors(run: Run, tmp_path: Path) -> None:
    content = question(new(), NODES)
    nowhere = str(tmp_path / "no" / "where")
    assert run(content, "-t", nowhere)[2] == f"hail: {nowhere}: No such file or directory\n"
    assert f"{nowhere}.pre-ialloc: No such file" in run(content, "-S", nowhere)[2]
    assert "sections of lines" in run(content, "-t", "/dev/null")[2]
    status, _, err = run(content, "--simulate", "x")
    assert (status, err.startswith("hail: cannot make up a group from 'x'")) == (1, True)


def test_help_version_and_completion(run: Run) -> None:
    status, text, _ = run.words("--help")
    assert status == 0
    assert text.startswith("usage: hail [options] FILE\n")
    assert all(option.long in text for option in OPTIONS)
    assert run.words("--version")[1].startswith("hail (ganeti) ")
    lines = run.words("--help-completion")[1].splitlines()
    assert lines[-1] == "file 1 1"
    assert len(lines) == len(OPTIONS) + 2


def test_nodes_are_printed_before_and_afterwards(run: Run) -> None:
    content = question(new(template="plain"), NODES)
    _, out, err = run(content, "-pname,pcnt")
    assert '"success":true' in out.replace(" ", "")
    before, after = (part.split() for part in err.split("Final cluster status:"))
    assert before[:3] == ["Initial", "cluster", "status:"]
    assert sum(int(word) for word in after if word.isdigit()) == 1 + sum(
        int(word) for word in before if word.isdigit()
    )


BUSY, IDLE = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def monitoring(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """Monitoring daemons of nodes; gives their reports by address, to be filled in."""
    reports: dict[str, object] = {}

    class Daemon(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = self.connection.getsockname()[0]
            known = address in reports and self.path == "/1/report/all"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(reports.get(address, [])).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing of what was asked."""

    with ThreadingHTTPServer(("0.0.0.0", 0), Daemon) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr("ganeti.clients.snapshots.MOND_PORT", server.server_port)
        try:
            yield reports
        finally:
            server.shutdown()
            thread.join()


def _cpu_load(load: float) -> list[Json]:
    return [{"name": "cpu-avg-load", "data": {"cpus": [load], "cpu_total": load}}]


def _two_nodes() -> Json:
    """A question with two nodes that differ in nothing but the load that is measured."""
    nodes = {"a": node(primary_ip=BUSY), "b": node(primary_ip=IDLE)}
    there = {"i": instance(["a"], "plain"), "j": instance(["b"], "plain")}
    return question(new(template="plain"), nodes, there)


def test_the_load_that_monitoring_daemons_measure_decides(
    run: Run, monitoring: dict[str, object]
) -> None:
    monitoring |= {BUSY: _cpu_load(7.0), IDLE: _cpu_load(0.1)}
    content = _two_nodes()
    assert run.answer(content)["result"] == ["a"]
    assert run.answer(content, "--mond=no")["result"] == ["a"]
    assert run.answer(content, "--mond")["result"] == ["b"]
    assert run.answer(content, "--mond", "--ignore-dynu")["result"] == ["a"]


def test_the_load_of_xen_domains_counts_on_demand(run: Run, monitoring: dict[str, object]) -> None:
    xen = {"a": {"i": 0.1}, "b": {"j": 7.0}}
    for address, name in ((BUSY, "a"), (IDLE, "b")):
        of_domains = {"name": "xen-cpu-avg-load", "data": xen[name]}
        monitoring[address] = [*_cpu_load(7.0 if name == "a" else 0.1), of_domains]
    assert run.answer(_two_nodes(), "--mond")["result"] == ["b"]
    assert run.answer(_two_nodes(), "--mond", "--mond-xen")["result"] == ["a"]


def test_a_node_that_tells_no_load_makes_a_warning_and_the_answer_does_without(
    run: Run, monitoring: dict[str, object]
) -> None:
    monitoring[BUSY] = _cpu_load(7.0)
    status, out, err = run(_two_nodes(), "--mond")
    assert (status, json.loads(out)["result"]) == (0, ["a"])
    assert err == "not every node tells cpu-avg-load; none of it is used\n"


def test_a_job_does_not_wait_for_what_it_does_not_need() -> None:
    """Arrays, a client of anything, and other sources than a question take longer than hail."""
    idle = "numpy", "pycurl", "ganeti.clients", "ganeti.protocol.luxi"
    words = f"import sys, ganeti.cli.htools.hail; sys.exit(str(set({idle}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", words], check=False, capture_output=True)
    assert done.stderr.decode() == "set()\n"
