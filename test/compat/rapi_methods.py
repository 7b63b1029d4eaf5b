"""Goes through the methods of Debian's remote API client; run by Debian's Python, not by ours.

    rapi_methods.py HOST PORT USER PASSWORD NODE OTHER_NODE

Prints one JSON object: what each method answered.  An exception ends it with a traceback.
"""

import json
import sys

from ganeti.rapi import client as rapi

INSTANCE = "compat.example.com"
FAST = {"period": 0.1, "retries": 600}


class Script:
    """Calls methods and keeps what they answer."""

    def __init__(self, client, node, other):
        self.client = client
        self.node = node
        self.other = other
        self.answers = {}

    def ask(self, name, *args, **kwargs):
        """Call a method that answers at once."""
        answer = getattr(self.client, name)(*args, **kwargs)
        self.answers[name] = answer
        return answer

    def job(self, name, *args, **kwargs):
        """Call a method that answers a job id, and wait for the job."""
        job_id = self.ask(name, *args, **kwargs)
        assert isinstance(job_id, int), (name, job_id)
        done = self.client.WaitForJobCompletion(job_id, **FAST)
        status = self.client.GetJobStatus(job_id)
        assert done, (name, status["status"], status["opresult"])
        return status

    def submitted(self, name, *args, **kwargs):
        """Call a method whose job may not succeed on this cluster; it must be accepted, and end."""
        job_id = self.ask(name, *args, **kwargs)
        assert isinstance(job_id, int), (name, job_id)
        self.client.WaitForJobCompletion(job_id, **FAST)
        status = self.client.GetJobStatus(job_id)["status"]
        assert status in rapi.JOB_STATUS_FINALIZED, (name, status)

    def refused(self, status, name, *args, **kwargs):
        """Call a method that must be refused with this HTTP status."""
        try:
            getattr(self.client, name)(*args, **kwargs)
        except rapi.GanetiApiError as err:
            found = err.code
        else:
            found = 200
        assert found == status, (name, found)

    def reading(self):
        self.ask("GetVersion")
        self.ask("GetFeatures")
        self.ask("GetInfo")
        self.ask("GetOperatingSystems")
        for what in ("Nodes", "Groups", "Networks", "Instances", "Filters", "Jobs"):
            self.ask(f"Get{what}", bulk=True)
            self.ask(f"Get{what}")
        self.ask("GetNode", self.node)
        self.ask("GetNodeRole", self.node)
        self.ask("GetGroup", "default")
        self.ask("GetClusterTags")
        self.ask("GetNodeTags", self.node)
        self.ask("GetGroupTags", "default")
        self.ask("QueryFields", "node", ["name", "role"])
        self.ask("Query", "node", ["name", "role"])
        self.ask("Query", "node", ["name"], qfilter=["=", "name", self.other])
        self.refused(404, "GetInstance", "nothing.example.com")

    def filters(self):
        predicate = [["jobid", [">", "id", 1000000]]]
        uuid = self.ask("AddFilter", 10, predicate, "PAUSE", [["test", "why", 1]])
        self.ask("GetFilter", uuid)
        self.ask("ReplaceFilter", uuid, 20, predicate, "CONTINUE", [])
        self.ask("DeleteFilter", uuid)

    def tags(self):
        for kind, args in (
            ("Cluster", ()),
            ("Node", (self.node,)),
            ("Group", ("default",)),
            ("Instance", (INSTANCE,)),
        ):
            self.job(f"Add{kind}Tags", *args, ["one", "two"], reason="for a test")
            assert sorted(self.ask(f"Get{kind}Tags", *args)) == ["one", "two"]
            self.job(f"Delete{kind}Tags", *args, ["one", "two"])

    def instances(self):
        self.job(
            "CreateInstance",
            "create",
            INSTANCE,
            "file",
            [{"size": 8}],
            [],
            reason="a test",
            **self.settings(),
        )
        self.ask("GetInstance", INSTANCE)
        self.ask("GetInstances", bulk=True)
        self.job("GetInstanceInfo", INSTANCE, static=True)
        self.ask("GetInstanceConsole", INSTANCE)
        self.job("RebootInstance", INSTANCE, reboot_type="hard")
        self.job("ModifyInstance", INSTANCE, beparams={"vcpus": 2})
        self.job("ShutdownInstance", INSTANCE, timeout=1)
        self.refused(503, "GetInstanceConsole", INSTANCE)
        self.job("ActivateInstanceDisks", INSTANCE)
        self.job("DeactivateInstanceDisks", INSTANCE)
        self.job("StartupInstance", INSTANCE)
        self.job("ReinstallInstance", INSTANCE, os="test", no_startup=True)
        self.tags()
        self.job("ShutdownInstance", INSTANCE, timeout=1)
        self.job("RenameInstance", INSTANCE, "other.example.com", ip_check=False, name_check=False)
        self.job("RenameInstance", "other.example.com", INSTANCE, ip_check=False, name_check=False)
        for name, args, kwargs in (
            ("FailoverInstance", (), {}),
            ("MigrateInstance", (), {"mode": "live"}),
            ("GrowInstanceDisk", (0, 1), {}),
            ("RecreateInstanceDisks", (), {"disks": [0]}),
            ("ReplaceInstanceDisks", (), {"disks": [0], "mode": rapi.REPLACE_DISK_AUTO}),
            ("ExportInstance", ("local", self.node), {}),
            ("PrepareExport", ("local",), {}),
        ):
            self.submitted(name, INSTANCE, *args, **kwargs)
        allocation = self.client.InstanceAllocation(
            "create", "many.example.com", "diskless", [], []
        )
        self.submitted("InstancesMultiAlloc", [allocation], dry_run=True)
        self.job("DeleteInstance", INSTANCE)

    def move_as_between_clusters(self):
        """Send a disk as to another cluster, which is the same one here; names tell them apart."""
        moved = "moved.example.com"
        disks = [{"size": 8}]
        self.job("CreateInstance", "create", INSTANCE, "file", disks, [], **self.settings())
        ready = self.job("PrepareExport", INSTANCE, "remote")["opresult"][0]
        receiving = self.ask(
            "CreateInstance",
            "remote-import",
            moved,
            "file",
            disks,
            [],
            source_instance_name=INSTANCE,
            source_handshake=ready["handshake"],
            source_x509_ca=ready["x509_ca"],
            **self.settings(),
        )
        awaited = self.remote_import_of(receiving)
        self.job(
            "ExportInstance",
            INSTANCE,
            "remote",
            awaited["disks"],
            shutdown=True,
            remove_instance=True,
            x509_key_name=ready["x509_key_name"],
            destination_x509_ca=awaited["x509_ca"],
        )
        assert self.client.WaitForJobCompletion(receiving, **FAST)
        assert self.ask("GetInstances") == [moved]
        self.job("DeleteInstance", moved)

    def settings(self):
        return {
            "pnode": self.node,
            "os": "test",
            "hypervisor": "fake",
            "ip_check": False,
            "name_check": False,
        }

    def remote_import_of(self, job_id):
        """Wait for the entry of a job's log that says where disks are waited for."""
        info, serial = None, None
        while info is None or info[0] not in rapi.JOB_STATUS_FINALIZED:
            change = self.ask("WaitForJobChange", job_id, ["status"], info, serial)
            if change is None:
                continue
            info = change["job_info"]
            for number, _time, kind, message in change["log_entries"] or []:
                serial = number
                if kind == "remote-import":
                    return message
        raise AssertionError(self.client.GetJobStatus(job_id)["opresult"])

    def nodes_and_groups(self):
        self.job("SetNodeRole", self.other, "drained")
        self.job("SetNodeRole", self.other, "master-candidate", force=True)
        self.job("ModifyNode", self.other, drained=False)
        self.submitted("EvacuateNode", self.other, remote_node=self.node, mode="primary-only")
        self.submitted("MigrateNode", self.other, mode="live")
        self.submitted("GetNodeStorageUnits", self.node, "file", "name")
        self.submitted("ModifyNodeStorageUnits", self.node, "lvm-pv", "x", allocatable=True)
        self.submitted("RepairNodeStorageUnits", self.node, "lvm-vg", "x")
        self.job("CreateGroup", "compat")
        self.job("ModifyGroup", "compat", alloc_policy="last_resort")
        self.job("AssignGroupNodes", "compat", [self.other])
        self.job("AssignGroupNodes", "default", [self.other])
        self.job("RenameGroup", "compat", "compat2")
        self.job("DeleteGroup", "compat2")

    def networks(self):
        self.submitted("CreateNetwork", "net", "192.0.2.0/24", gateway="192.0.2.1", tags=[])
        self.submitted("ConnectNetwork", "net", "default", "bridged", "br0")
        self.submitted("AddNetworkTags", "net", ["one"])
        self.submitted("DeleteNetworkTags", "net", ["one"])
        self.submitted("ModifyNetwork", "net", gateway="192.0.2.2")
        self.submitted("DisconnectNetwork", "net", "default")
        if "net" in self.ask("GetNetworks"):
            self.ask("GetNetwork", "net")
            self.ask("GetNetworkTags", "net")
        self.submitted("DeleteNetwork", "net")

    def cluster_and_jobs(self):
        self.job("ModifyCluster", candidate_pool_size=5)
        self.job("RedistributeConfig")
        self.refused(403, "ModifyCluster", compression_tools=["evil"])
        job_id = self.ask("RedistributeConfig", reason="to wait for")
        seen = self.ask("WaitForJobChange", job_id, ["status"], None, None)
        assert seen["job_info"], seen
        self.client.WaitForJobCompletion(job_id, **FAST)
        done, _ = self.ask("CancelJob", job_id)
        assert done is False

    def run(self):
        self.reading()
        self.filters()
        self.cluster_and_jobs()
        self.instances()
        self.move_as_between_clusters()
        self.nodes_and_groups()
        self.networks()


def main():
    host, port, user, password, node, other = sys.argv[1:]

    def configure(curl, _logger):
        curl.setopt(rapi.pycurl.SSL_VERIFYPEER, False)
        curl.setopt(rapi.pycurl.SSL_VERIFYHOST, 0)

    client = rapi.GanetiRapiClient(
        host, port=int(port), username=user, password=password, curl_config_fn=configure
    )
    script = Script(client, node, other)
    script.run()
    json.dump(script.answers, sys.stdout)


if __name__ == "__main__":
    main()
