"""What goes over LuxiD's socket byte by byte, as other programs that speak LUXI send and expect it.

A client of Ganeti 3.0 puts its version into each request and accepts an answer without one; it may
send job ids as text, and several requests before it reads.  Answers are compared as they stand.

Source: luxi.json, "transport", "errors", "methods".
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence

import pytest
from fakes.luxid_node import LuxidNode, delay, is_final, wait_status

from ganeti.protocol.luxi import LuxiCalls

ETX = b"\x03"
# WConfD's answer is passed on: test_luxid_filters, and the tests of the maintenance daemon
NOT_SPOKEN = {"ReplaceFilter", "CancelRepair", "RemoveRepair"}

# Job 1 has ended well and job 2 in error; `*` stands for any text.
CONVERSATION: Sequence[tuple[str, str]] = (
    # Reading of jobs.
    ('"QueryJobs",[[1,2],["id","status"]]', '[[1,"success"],[2,"error"]]'),
    ('"QueryJobs",[["2","99"],["status","id"]]', '[["error",2],[null,99]]'),
    ('"QueryJobs",[[],["id"]]', "[[1],[2]]"),
    ('"QueryJobs",[[],["id"],1]', "[[2]]"),
    ('"QueryJobs",[null,["id"],5,"2"]', "[[1]]"),
    ('"QueryJobs",[null,["summary","ops"]]', '[[["TEST_DELAY(0.0)"],[{*}]],*]'),
    (
        '"QueryJobs",[null,["id","nonsense"]]',
        '!["OpPrereqError",["unknown job fields: nonsense","wrong_input"]]',
    ),
    ('"WaitForJobChange",[1,["status"],null,null,5]', '[["success"],[]]'),
    ('"WaitForJobChange",["1",["status"],["success"],7,5]', '[["success"],[]]'),
    ('"WaitForJobChange",[99,["status"],null,null,5]', '!["JobLost",["Job 99 not found"]]'),
    (
        '"OpenConsole",["nowhere","serial"]',
        '!["OpPrereqError",["there is no instance \'nowhere\'","unknown_entity"]]',
    ),
    ('"QueryGrowth",[1]', '[{"begins":*,"created":0,"removed":0,"memory":0,"disk":0,"unknown":0}]'),
    ('"QueryGrowth",[0]', '!["OpPrereqError",["weeks: 0 is not between 1 and 52","wrong_input"]]'),
    # Questions.
    ('"QueryMaintenance",[]', "null"),
    ('"QueryAvailability",[]', "null"),
    ('"QueryMetrics",[]', r'"# HELP ganeti_luxid_jobs *"'),
    (
        '"QueryMaintenanceStatus",[]',
        '!["OpPrereqError",["maintenance is switched off; *","wrong_state"]]',
    ),
    (
        '"Query",["job",["id","nonsense"],["=","id",1]]',
        (
            '{"fields":[{"name":"id","title":"ID","kind":"number","doc":"*"},'
            '{"name":"nonsense","title":"<unknown>","kind":"unknown","doc":"*"}],'
            '"data":[[[0,1],[1,null]]]}'
        ),
    ),
    (
        '"Query",["node",["name"],["|",["=","name","node1"],["=","name","node1"]]]',
        (
            '{"fields":[{"name":"name","title":"Node","kind":"text","doc":"*"}],'
            '"data":[[[0,"node1.example.com"]]]}'
        ),
    ),
    (
        '"Query",["node",["name"],["|",["=","name","node1"],["=","name","nowhere"]]]',
        (
            "![\"OpPrereqError\",[\"node 'nowhere' is not known; see 'gnt-node list'\","
            '"unknown_entity"]]'
        ),
    ),
    ('"Query",["os",["name"],null]', '!["OpPrereqError",["*OP_QUERY)","wrong_input"]]'),
    ('"Query",["thing",["name"],null]', '!["OpPrereqError",["*\'thing\'*","wrong_input"]]'),
    ('"Query",["node",["name"],["~","name"]]', '!["ParameterError",["not a filter: *"]]'),
    (
        '"QueryFields",["lock",["mode"]]',
        '{"fields":[{"name":"mode","title":"Mode","kind":"other","doc":"*"}]}',
    ),
    ('"QueryFields",["group",null]', '{"fields":[{"name":"alloc_policy",*]}'),
    ('"QueryNodes",[["node1"],["name","offline"],false]', '[["node1.example.com",false]]'),
    ('"QueryNodes",[["nowhere"],["name"],false]', "[]"),
    (
        '"QueryNodes",[[],["name"],true]',
        '!["OpPrereqError",["queries cannot take locks","wrong_input"]]',
    ),
    ('"QueryInstances",[["inst1"],["name","pnode"],false]', '[["inst1","*"]]'),
    (
        '"QueryInstances",[[],["name","nonsense"],false]',
        '!["OpPrereqError",["unknown fields of instance: nonsense","wrong_input"]]',
    ),
    ('"QueryGroups",[[],["name"],false]', '[["default"]]'),
    ('"QueryNetworks",[[],["name"],false]', '[["net1"]]'),
    ('"QueryFilters",[null,["priority"]]', "[[*]]"),
    ('"QueryFilters",[["nowhere"],["uuid"]]', "[]"),
    ('"QueryExports",[["node1.example.com"],false]', '[["node1.example.com",null]]'),
    ('"QueryTags",["cluster",""]', "[]"),
    (
        '"QueryTags",["node","nowhere"]',
        '!["OpPrereqError",["node \'nowhere\' not found","unknown_entity"]]',
    ),
    ('"QueryClusterInfo",[]', '{"software_version":"*","protocol_version":3000000,*}'),
    (
        '"QueryConfigValues",[["master_node","nonsense","drain_flag"]]',
        '["node1.example.com",null,false]',
    ),
    # Changes.
    ('"CancelJob",[1]', '[false,"Job 1 has ended already, in success"]'),
    ('"CancelJob",[1,[true]]', '[false,"Job 1 has ended already, in success"]'),
    ('"CancelJob",[99,false]', '!["JobLost",["Job 99 not found"]]'),
    ('"ChangeJobPriority",[1,-5]', '[false,"Job 1 is finished"]'),
    ('"ChangeJobPriority",[1,21]', '!["OpPrereqError",["priority 21 *","wrong_input"]]'),
    ('"SetDrainFlag",[true]', "true"),
    (
        '"SubmitJob",[[{"OP_ID":"OP_TEST_DELAY","duration":0}]]',
        '!["GenericError",["Queue drained"]]',
    ),
    ('"SubmitJobToDrainedQueue",[[{"OP_ID":"OP_TEST_DELAY","duration":0}]]', "3"),
    ('"SetDrainFlag",[false]', "true"),
    ('"SubmitJob",[[{"OP_ID":"OP_TEST_DELAY","duration":0}]]', "4"),
    (
        '"SubmitManyJobs",[[[{"OP_ID":"OP_TEST_DELAY","duration":0}],[{"OP_ID":"OP_NONSENSE"}]]]',
        '!["OpCodeUnknown",["job 2 of 2: *OP_NONSENSE*"]]',
    ),
    ('"SubmitManyJobs",[[[{"OP_ID":"OP_TEST_DELAY","duration":0}]]]', "[[true,5]]"),
    (
        '"SubmitManyJobs",[[[{"OP_ID":"OP_TEST_JQUEUE","depends":[[-7,[]]]}]]]',
        '[[false,"relative dependency -7: *"]]',
    ),
    ('"SubmitJob",[[{"OP_ID":"OP_NONSENSE"}]]', '!["OpCodeUnknown",["*OP_NONSENSE*"]]'),
    ('"ArchiveJob",["1"]', "true"),
    ('"ArchiveJob",[1]', "false"),
    ('"QueryJobs",[[1],["status","archived"]]', '[["success",true]]'),
    ('"AutoArchiveJobs",[1000000,5]', "[0,0]"),
    ('"PickupJob",[1]', '!["GenericError",["*"]]'),
    ('"SetWatcherPause",[4000000000.5]', "4000000000.5"),
    ('"QueryConfigValues",[["watcher_pause"]]', "[4000000000.5]"),
    ('"SetWatcherPause",[null]', "null"),
    (
        '"DeleteFilter",["nowhere"]',
        '!["OpPrereqError",["job filter \'nowhere\' not found","unknown_entity"]]',
    ),
)


@pytest.fixture(scope="module")
def node() -> Iterator[LuxidNode]:
    """A node where two jobs have ended."""
    with LuxidNode() as started:
        with started.start() as client:
            failing = {"OP_ID": "OP_TEST_JQUEUE", "log_messages": [], "fail": True}
            for opcode in (delay(), failing):
                wait_status(client, client.submit_job([opcode]), is_final)
        yield started
        assert started.stop() == 0, started.log()


def converse(node: LuxidNode, data: bytes) -> list[bytes]:
    """Send all at once; return the answers until LuxiD has answered everything, or hangs up."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(node.paths.query_socket)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answers = b""
        while chunk := sock.recv(65536):
            answers += chunk
    assert not answers or answers.endswith(ETX)
    return answers.split(ETX)[:-1]


def request(call: str) -> bytes:
    method, args = call.split(",", 1)
    return f'{{"method":{method},"args":{args},"version":3000000}}'.encode() + ETX


def expected(result: str) -> re.Pattern[str]:
    """Return what an answer must be like; `!` in front stands for a failure."""
    success = "false" if result.startswith("!") else "true"
    whole = f'{{"success":{success},"result":{result.removeprefix("!")}}}'
    return re.compile(re.escape(whole).replace(r"\*", ".*"), re.DOTALL)


@pytest.mark.shows(
    "backend/masterd/luxi",
    "backend/masterd/luxi-both",
    "2.12/luxid/only-server",
    "2.0/master/luxi",
    "2.0/luxi/two-classes",
    "2.0/luxi/other-clients",
)
def test_a_conversation(node: LuxidNode) -> None:
    requests = [request(call) for call, _ in CONVERSATION]
    answers = converse(node, b"".join(requests))  # sent at once, answered in order
    assert len(answers) == len(requests)
    for (call, result), answer in zip(CONVERSATION, answers, strict=True):
        assert expected(result).fullmatch(answer.decode()), f"{call}: {answer.decode()}"


@pytest.mark.shows("backend/masterd/luxi-both", "2.12/luxid/only-server", "2.0/luxi/two-classes")
def test_the_conversation_has_every_method() -> None:
    spoken = {json.loads(call.split(",", 1)[0]) for call, _ in CONVERSATION}
    assert spoken == LuxiCalls.calls.keys() - NOT_SPOKEN


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (b'{"method":"Nonsense","args":[]}', "unknown method 'Nonsense'"),
        (b'{"method":"ArchiveJob","args":[]}', "ArchiveJob: takes 1 arguments*"),
        (b'{"method":"ArchiveJob","args":[-1]}', "*argument job_id*"),
        (b'{"args":[]}', "cannot understand the request: *"),
        (b"\xff", "cannot understand the request: *"),
    ],
)
def test_after_what_is_no_request_it_hangs_up(node: LuxidNode, first: bytes, text: str) -> None:
    (answer,) = converse(node, first + ETX + request('"QueryClusterInfo",[]'))
    assert expected(f'!"{text}"').fullmatch(answer.decode()), answer


@pytest.mark.shows("2.0/luxi/other-clients")
def test_the_version_of_a_request_does_not_matter(node: LuxidNode) -> None:
    requests = [
        b'{"method":"QueryConfigValues","args":[["drain_flag"]]%s}' % version
        for version in (b"", b',"version":2160000', b',"version":null')
    ]
    answers = converse(node, b"".join(each + ETX for each in requests))
    assert answers == [b'{"success":true,"result":[false]}'] * 3
