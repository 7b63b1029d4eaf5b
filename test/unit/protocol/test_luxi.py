import pytest

from ganeti.base.errors import ProtocolError
from ganeti.protocol.luxi import LuxiCalls, as_job_id, is_kill

ANSWERED_BY_NOTHING = {"DeleteFilter", "CancelRepair", "RemoveRepair"}


def test_the_table_has_every_method() -> None:
    # growth, consoles, maintenance, high availability and metrics are ours
    assert len(LuxiCalls.calls) == 25 + 8


def test_all_types_can_be_described() -> None:
    for call in LuxiCalls.calls.values():
        assert all(argument.describe() for argument in call.arguments)
        assert call.answers_nothing is (call.name in ANSWERED_BY_NOTHING)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("SubmitJob", [[{"OP_ID": "OP_TEST_DELAY"}]]),
        ("SubmitManyJobs", [[[{"OP_ID": "OP_TEST_DELAY"}], []]]),
        ("WaitForJobChange", ["12", ["status"], None, None, 10]),
        ("WaitForJobChange", [12, ["status"], ["queued"], 3, 10.5]),
        ("QueryJobs", [None, []]),
        ("QueryJobs", [[1, "2"], ["id"]]),
        ("QueryJobs", [None, ["id"], 100, 7]),
        ("Query", ["node", ["name"], ["=", "name", "x"]]),
        ("SetWatcherPause", [1700000000]),
        ("SetWatcherPause", [None]),
        ("ReplaceFilter", [None, 0, [["jobid", ["=", "id", 1]]], ["RATE_LIMIT", 2], []]),
        ("QueryTags", ["cluster", None]),
    ],
)
def test_good_arguments_pass(name: str, args: list[object]) -> None:
    assert len(LuxiCalls.calls[name].read(args)) == len(LuxiCalls.calls[name].names)


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("SubmitJob", [], "SubmitJob: takes 1 arguments (opcodes), got 0"),
        ("SubmitJob", [[], []], "takes 1 arguments"),
        ("SubmitJob", [["x"]], "SubmitJob: wrong argument opcodes"),
        ("ArchiveJob", [-5], "wrong argument job_id"),
        ("ArchiveJob", ["-5"], "wrong argument job_id"),
        ("ArchiveJob", [1.5], "wrong argument job_id"),
        ("ArchiveJob", [2**63], "wrong argument job_id"),
        ("ArchiveJob", [True], "wrong argument job_id"),
        ("SetDrainFlag", [1], "argument flag"),
        ("QueryJobs", [None, [], -1], "argument limit"),
        ("ReplaceFilter", [None, -1, [], "PAUSE", []], "argument priority"),
        ("QueryClusterInfo", [1], "takes 0 arguments (none)"),
    ],
)
def test_bad_arguments_are_named(name: str, args: list[object], text: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        LuxiCalls.calls[name].read(args)
    assert text in refused.value.message


def test_the_optional_argument() -> None:
    call = LuxiCalls.calls["CancelJob"]
    assert call.read([5]) == [5, False]
    assert call.read([5, None]) == [5, None]
    assert call.read([5, [True]]) == [5, [True]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, False), (False, False), (True, True), ([], False), ([True], True), ([False], False)],
)
def test_kill_comes_in_several_forms(value: bool | list[bool] | None, expected: bool) -> None:
    assert is_kill(value) is expected


def test_job_ids_come_as_numbers_or_text() -> None:
    assert as_job_id("12") == as_job_id(12) == 12
