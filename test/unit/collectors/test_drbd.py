"""Tests of ganeti/collectors/drbd.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import drbd
from ganeti.collectors.cluster_facts import ClusterFacts, InstanceFacts, NodeInstances
from ganeti.collectors.collector import NodeView
from ganeti.collectors.report import StatusCode
from ganeti.objects.model import AdminState
from ganeti.storage.drbd.status import parse_proc
from ganeti.system.process import CommandResult

DATA = Path(__file__).parents[2] / "data" / "drbd"
DRBD_8_4 = """\
version: 8.4.11-1 (api:1/proto:86-101)
GIT-hash: 66145a308421e9c124ec391a7848ac20203bb03c build by buildd@build, 2020-04-05 02:58:07
srcversion: FC3433D849E3B88C1E7B55C

 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:140978 nr:0 dw:9906 dr:131533 al:27 bm:8 lo:0 pe:0 ua:0 ap:0 ep:1 wo:b oos:0
 2: cs:Unconfigured
 3: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent A r-----
    ns:373888 nr:0 dw:0 dr:374088 al:0 bm:22 lo:7 pe:27 ua:7 ap:0 ep:1 wo:f oos:15358208
\t[>....................] sync'ed:  2.4% (14996/15360)M
\tfinish: 0:04:08 speed: 61,736 (61,736) K/sec
 4: cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----
    ns:0 nr:0 dw:140978 dr:9906 al:27 bm:8 lo:0 pe:0 ua:0 ap:0 ep:1 wo:b oos:0
"""
DRBD_8_3 = """\
version: 8.3.11 (api:88/proto:86-96)
srcversion: 2D876214BAAD53B31ADC1D6

 0: cs:SyncTarget ro:Secondary/Primary ds:Inconsistent/UpToDate C r-----
    ns:0 nr:460288 dw:460160 dr:0 al:0 bm:28 lo:2 pe:4 ua:1 ap:0 ep:1 wo:f oos:588416
\t[=======>............] sync'ed: 44.4% (588416/1048576)K
\tfinish: 0:00:08 speed: 65,736 (65,736) want: 61,440 K/sec
 1: cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate C r-----
    ns:0 nr:2 dw:2 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
    resync: used:0/61 hits:257793 misses:67 starving:0 dirty:0 changed:67
    act_log: used:0/127 hits:0 misses:0 starving:0 dirty:0 changed:0
"""
DRBD_8_0 = """\
version: 8.0.12 (api:86/proto:86)
GIT-hash: 5c9f89594553e32adb87d9638dce591782f947e3 build by root@node, 2008-07-17 09:52:22
 1: cs:Connected st:Secondary/Primary ds:UpToDate/UpToDate C r---
    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0
"""
DRBD_9 = """\
version: 9.1.7 (api:2/proto:110-121)
GIT-hash: bfd2450739e3e27cfd0a2eece2cde3d94ad993ae build by @buildsystem, 2022-05-25 13:52:44
Transports (api:17): tcp (9.1.7)
"""


def parse(text: str, owners: dict[int, str] | None = None) -> Any:
    """Return the data as clients get it."""
    return msgspec.to_builtins(drbd.data_of(parse_proc(text), owners or {}, {}))


def test_the_file_of_8_4() -> None:
    found = parse(DRBD_8_4, {0: "inst1"})
    assert found["versionInfo"] == {
        "version": "8.4.11-1",
        "api": "1",
        "proto": "86-101",
        "srcversion": "FC3433D849E3B88C1E7B55C",
        "gitHash": "66145a308421e9c124ec391a7848ac20203bb03c",
        "buildBy": "buildd@build, 2020-04-05 02:58:07",
    }
    connected, unconfigured, syncing, waiting = found["deviceInfos"]
    assert connected == {
        "minor": 0,
        "connectionState": "Connected",
        "localRole": "Primary",
        "remoteRole": "Secondary",
        "localState": "UpToDate",
        "remoteState": "UpToDate",
        "replicationProtocol": "C",
        "ioFlags": "r-----",
        "perfIndicators": {
            "networkSend": 140978,
            "networkReceive": 0,
            "diskWrite": 9906,
            "diskRead": 131533,
            "activityLog": 27,
            "bitMap": 8,
            "localCount": 0,
            "pending": 0,
            "unacknowledged": 0,
            "applicationPending": 0,
            "epochs": 1,
            "writeOrder": "b",
            "outOfSync": 0,
        },
        "instance": "inst1",
    }
    assert unconfigured == {"minor": 2, "connectionState": "Unconfigured"}
    assert syncing["syncStatus"] == {
        "percentage": 2.4,
        "progress": "14996/15360",
        "progressUnit": "MegaByte",
        "timeToFinish": "00:04:08",
        "speed": 61736,
        "speedUnit": "KiloByte/Second",
    }
    assert (syncing["replicationProtocol"], syncing["instance"]) == ("A", None)
    assert waiting["remoteRole"] == "Unknown"
    assert found["status"] == {
        "code": 1,
        "message": "\n3: Synchronising\n4: Trying to establish a network connection",
    }


def test_the_file_of_8_3_with_more_lines_for_a_device() -> None:
    found = parse(DRBD_8_3)
    assert found["versionInfo"]["proto"] == "86-96"
    syncing, connected = found["deviceInfos"]
    assert syncing["syncStatus"] == {
        "percentage": 44.4,
        "progress": "588416/1048576",
        "progressUnit": "KiloByte",
        "timeToFinish": "00:00:08",
        "speed": 65736,
        "want": 61440,
        "speedUnit": "KiloByte/Second",
    }
    assert "syncStatus" not in connected
    assert connected["perfIndicators"]["networkReceive"] == 2


def test_the_file_of_8_0_says_less() -> None:
    [device] = parse(DRBD_8_0)["deviceInfos"]
    assert (device["localRole"], device["remoteRole"]) == ("Secondary", "Primary")
    assert "outOfSync" not in device["perfIndicators"]


def test_a_stalled_synchronisation_has_no_end() -> None:
    text = DRBD_8_4.replace("finish: 0:04:08 speed: 61,736 (61,736) K/sec", "stalled")
    sync = parse(text)["deviceInfos"][2]["syncStatus"]
    assert sync == {"percentage": 2.4, "progress": "14996/15360", "progressUnit": "MegaByte"}


@pytest.mark.parametrize(
    ("connection", "disks", "code"),
    [
        ("Connected", "UpToDate/UpToDate", StatusCode.OK),
        ("VerifyS", "UpToDate/UpToDate", StatusCode.OK),
        ("SyncTarget", "Inconsistent/UpToDate", StatusCode.TEMPORARILY_BAD),
        ("WFConnection", "UpToDate/DUnknown", StatusCode.TEMPORARILY_BAD),
        ("StandAlone", "UpToDate/DUnknown", StatusCode.BAD),
        ("Connected", "Diskless/UpToDate", StatusCode.BAD),
        ("Connected", "UpToDate/Diskless", StatusCode.BAD),
        ("Connected", "Inconsistent/UpToDate", StatusCode.BAD),
        ("WFConnection", "Outdated/DUnknown", StatusCode.BAD),
        ("Connected", "DUnknown/UpToDate", StatusCode.UNKNOWN),
    ],
)
def test_how_a_device_is_judged(connection: str, disks: str, code: StatusCode) -> None:
    text = f"version: 8.4.0 (api:1/proto:86-100)\n 7: cs:{connection} ro:A/B ds:{disks} C r-----\n"
    status = parse(text)["status"]
    assert status["code"] == code
    assert bool(status["message"]) == (code != StatusCode.OK or connection == "VerifyS")


def test_devices_that_are_to_be_there_are_missed() -> None:
    status = parse(DRBD_8_3, {0: "inst1", 5: "inst5"})["status"]
    assert status == {
        "code": 4,  # the largest counts
        "message": "\n0: Synchronising\nThese devices are not there: 5 (inst5)",
    }
    quiet = DRBD_8_3.replace("SyncTarget", "Connected").replace("Inconsistent", "UpToDate")
    status = parse(quiet, {0: "inst1", 5: "inst5"})["status"]
    assert status == {"code": 4, "message": "These devices are not there: 5 (inst5)"}


def test_devices_of_an_instance_that_is_stopped_are_not_missed(tmp_path: Path) -> None:
    (tmp_path / "drbd").write_text("version: 8.4.11 (api:1/proto:86-101)\n")
    stopped = InstanceFacts("inst1", "u1")
    runs = InstanceFacts("inst5", "u5", AdminState.UP, disks_active=True)
    for primary, secondary, code in (
        ((stopped,), (), StatusCode.OK),
        ((), (stopped,), StatusCode.OK),
        ((stopped,), (runs,), StatusCode.BAD),
    ):
        owners = {number: one.name for number, one in enumerate((*primary, *secondary))}
        facts = ClusterFacts(drbd_owners=owners, instances=NodeInstances(primary, secondary))
        collect = drbd.Drbd(str(tmp_path / "drbd")).collect
        status = msgspec.to_builtins(collect(NodeView(Paths(), "n", facts)))["status"]
        assert status["code"] == code
        assert "inst1" not in status["message"]


def test_drbd_9_is_asked_by_its_program(tmp_path: Path) -> None:
    (tmp_path / "drbd").write_text(DRBD_9)
    asked: list[tuple[str, ...]] = []

    def run(argv: Sequence[str], **_options: object) -> CommandResult:
        asked.append(tuple(argv))
        return CommandResult(tuple(argv), 0, (DATA / "drbd9-status.json").read_bytes(), b"")

    view = NodeView(Paths(), "n", ClusterFacts(drbd_owners={0: "inst1"}), run)
    found: Any = msgspec.to_builtins(drbd.Drbd(str(tmp_path / "drbd")).collect(view))
    assert asked == [("drbdsetup", "status", "--json", "--statistics")]
    assert [device["connectionState"] for device in found["deviceInfos"]] == [
        "Connected",
        "SyncTarget",
        "WFConnection",
    ]
    assert found["status"]["message"] == (
        "\n1: Synchronising\n2: Trying to establish a network connection"
    )
    assert found["deviceInfos"][0]["instance"] == "inst1"
    assert found["deviceInfos"][1]["syncStatus"]["timeToFinish"] == "00:00:12"
    assert {sample.name for sample in drbd.Drbd.samples(found)} >= {
        "ganeti_drbd_out_of_sync_bytes",
        "ganeti_drbd_sync_progress_ratio",
    }


def test_a_split_brain_is_told_with_both_generations(tmp_path: Path) -> None:
    line = " 0: cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----\n"
    (tmp_path / "drbd").write_text(f"version: 8.4.11 (api:1/proto:86-101)\n{line}")
    log = (DATA / "dmesg-8.4-split-brain.txt").read_bytes()
    answers = {
        b"": "Not connected, and not trying to be",
        log: "generation 97B719D5F63BEE5C:.*, on the other node of 1FCC06",
    }
    for output, words in answers.items():
        result = CommandResult(("dmesg",), 0, output, b"")
        view = NodeView(Paths(), "n", run=lambda *_args, _result=result, **_options: _result)
        found: Any = msgspec.to_builtins(drbd.Drbd(str(tmp_path / "drbd")).collect(view))
        assert re.search(words, found["status"]["message"])
        assert found["status"]["code"] == StatusCode.BAD


@pytest.mark.parametrize("text", ["", "nonsense", "0: cs:Connected"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(GenericError, match="does not begin with the version"):
        parse(text)


@given(st.text(alphabet=" 0123456789:/%()[]>.,'abcdosrwnKM-\n\t", max_size=300))
def test_whatever_follows_the_version_is_survived(text: str) -> None:
    parse(DRBD_8_4.replace("wo:b", text) + text)


def test_a_node_without_drbd(tmp_path: Path) -> None:
    collect = drbd.Drbd(str(tmp_path / "drbd")).collect
    view = NodeView(Paths(), "n")
    found: Any = msgspec.to_builtins(collect(view))
    assert found["status"]["code"] == StatusCode.OK
    assert found["deviceInfos"] == []
    view = NodeView(Paths(), "n", ClusterFacts(drbd_owners={0: "inst1"}))
    found = msgspec.to_builtins(collect(view))
    assert found["status"]["code"] == StatusCode.BAD
    assert "inst1" in found["status"]["message"]
    (tmp_path / "drbd").write_text(DRBD_8_4)
    found = msgspec.to_builtins(collect(view))
    assert found["deviceInfos"][0]["instance"] == "inst1"
