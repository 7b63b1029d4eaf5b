import pytest

from ganeti.protocol.envelope import RequestError
from ganeti.protocol.luxi import LUXI_METHODS, check_args, find_method, is_kill, job_id


def test_the_table_has_every_method() -> None:
    assert len(LUXI_METHODS) == 25
    assert all(name == method.name for name, method in LUXI_METHODS.items())


def test_unknown_methods_break_the_rules() -> None:
    with pytest.raises(RequestError, match="unknown method 'Nonsense'"):
        find_method("Nonsense")


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
    assert len(check_args(find_method(name), args)) == len(LUXI_METHODS[name].args)


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("SubmitJob", [], "SubmitJob takes 1 arguments (job), 0 were given"),
        ("SubmitJob", [[], []], "takes 1 arguments"),
        ("SubmitJob", [["x"]], "argument job of SubmitJob"),
        ("ArchiveJob", [-5], "argument job"),
        ("ArchiveJob", ["-5"], "argument job"),
        ("ArchiveJob", [1.5], "argument job"),
        ("ArchiveJob", [2**63], "argument job"),
        ("ArchiveJob", [True], "argument job"),
        ("SetDrainFlag", [1], "argument flag"),
        ("QueryJobs", [None, [], -1], "argument limit"),
        ("ReplaceFilter", [None, -1, [], "PAUSE", []], "argument priority"),
        ("QueryClusterInfo", [1], "takes 0 arguments (none)"),
    ],
)
def test_bad_arguments_are_named(name: str, args: list[object], text: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_args(find_method(name), args)
    assert text in refused.value.message


def test_the_optional_argument() -> None:
    method = find_method("CancelJob")
    assert check_args(method, [5]) == [5, None]
    assert check_args(method, [5, [True]]) == [5, [True]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, False), (False, False), (True, True), ([], False), ([True], True), ([False], False)],
)
def test_kill_comes_in_several_forms(value: bool | list[bool] | None, expected: bool) -> None:
    assert is_kill(value) is expected


def test_job_ids_come_as_numbers_or_text() -> None:
    assert job_id("12") == job_id(12) == 12
