"""The calls of the node daemon: `NodeCalls` has them all, its bases have them by subject.

To add one, declare it here and write a method of the same name in the class of ``node_ops`` that
serves its subject.  A call without such a method is refused as not supported.  The rules declared
here for a call hold for client and daemon alike.

3.0 answers that there is no such call to those marked as ours; names and order of arguments of all
others are 3.0's, whose daemons and clients take part in the same cluster.

Source: node_rpc.json, "calls".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.objects.hypervisors import RebootType
from ganeti.objects.model import MasterNetworkParameters
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.protocol import node_rpc as rpc
from ganeti.protocol.node_rpc_values import (
    ChainPoint,
    CompressedText,
    ConfigPatch,
    ConfigVersion,
    CopySide,
    DrainResult,
    FileDetails,
    GuestMetadata,
    NodeFacts,
    PackedText,
    QueueListing,
    SsconfPatch,
    TokenRequest,
    TransferOptions,
)
from ganeti.protocol.service import Service

Params = Mapping[str, object]
Facts = dict[str, object]
Texts = Sequence[str]
Values = Sequence[object]
Disks = Sequence[RpcDisk]


class QueueCalls(Service):
    """Copies of the job queue."""

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def jobqueue_update(self, file_name: str, content: CompressedText) -> None:
        """Write one file of the job queue.

        A job file is durable when this returns; the serial number is derived again from the job
        files if it gets lost, so for it an atomic write is enough.
        """

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def jobqueue_write(self, files: Sequence[tuple[str, PackedText]]) -> list[str | None]:
        """Write several files of the job queue, each as `jobqueue_update` does.  Ours.

        Returns:
            One value per file: null, or the reason why it cannot be written.
        """

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def jobqueue_rename(self, rename: Sequence[tuple[str, str]]) -> list[None]:
        """Rename files of the job queue, mostly into the archive; returns one null per file.

        A file that was never copied to this node, or was moved already, is passed over.
        """

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def jobqueue_set_drain_flag(self, flag: bool) -> None:
        """Mark the queue as drained, or take the mark away."""

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def jobqueue_purge(self) -> None:
        """Remove every job, archived ones too, with the serial number and the drain flag."""

    @rpc.reads(rpc.FAST_S, rpc.Place.DAEMON)
    def jobqueue_list(self) -> QueueListing:
        """Return the digests of the job files on this node.  Ours."""

    @rpc.reads(rpc.FAST_S, rpc.Place.DAEMON)
    def jobqueue_read(self, job_ids: Sequence[int]) -> dict[str, CompressedText]:
        """Return {id: content} of job files, from the queue or the archive.  Ours.

        Files that are not here are left out, and so are the ones that would make the answer too
        large.
        """


class FileCalls(Service):
    """Files that are the same on all nodes."""

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def upload_file(self, file_name: FileDetails) -> None:
        """Write one distributed file."""

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def upload_file_single(
        self,
        file_name: str,
        content: CompressedText,
        mode: int,
        uid: str,
        gid: str,
        atime: float,
        mtime: float,
    ) -> None:
        """Write one distributed file; ``uid`` and ``gid`` are names."""

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def config_patch(
        self, patch: ConfigPatch, mode: int, uid: str, gid: str, atime: float, mtime: float
    ) -> bool:
        """Make the next version of the configuration from the one that the node wrote last.  Ours.

        Returns:
            Whether it has that one; else it wants the whole file.
        """

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def config_confirm(
        self, version: ConfigVersion, digest: str, mode: int, uid: str, gid: str
    ) -> bool:
        """Tell whether the file of the configuration is this one; then patches may follow.  Ours.

        Args:
            digest: of the whole file, as of `store.config_file.digest_of`.

        Returns:
            Whether content, mode and owner are these, without a journal; else it wants the whole
            file.
        """

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def config_append(self, lines: CompressedText) -> bool:
        """Add changes to the journal of the configuration; durable when this returns.  Ours.

        Args:
            lines: records as of `config.journal`; those that the node has are passed over.

        Returns:
            Whether they belong to its configuration; else it wants the whole file.
        """

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def write_ssconf_files(self, values: Mapping[str, str]) -> None:
        """Write values of the simple configuration."""

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON, from_former=True)
    def ssconf_accept(self, serial_no: int, values: Mapping[str, str]) -> None:
        """Write values of the simple configuration, unless another master came after it.  Ours.

        Args:
            serial_no: of a configuration that the master has.
        """

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def ssconf_patch(
        self, serial_no: int, base: str, state: str, values: Mapping[str, str]
    ) -> bool:
        """As `ssconf_accept`, with the values that differ from a state.  Ours.

        Args:
            base: the name of that state; "" if these are all values.
            state: the name of the state that comes out.

        Returns:
            Whether this daemon has that state; else it wants all values.
        """

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def copies_patch(
        self,
        patch: ConfigPatch,
        mode: int,
        uid: str,
        gid: str,
        atime: float,
        mtime: float,
        simple: SsconfPatch,
    ) -> tuple[bool, bool]:
        """As `config_patch`, then `ssconf_patch`, which most changes need both.  Ours.

        Returns:
            What each of them returns; without the first nothing is written.
        """

    @rpc.changes(rpc.NORMAL_S, rpc.Place.DAEMON)
    def etc_hosts_modify(self, mode: str, name: str, ip: str | None) -> bool:
        """Add a name with its address to the hosts file, or remove a name from it.

        Args:
            mode: ``add`` or ``remove``.
        """


class MasterCalls(Service):
    """Which node is master, and its daemons and address."""

    @rpc.reads(rpc.URGENT_S, rpc.Place.DAEMON)
    def master_node_name(self) -> str:
        """Return the name of the master node as this node knows it."""

    @rpc.reads(rpc.PROMPT_S, rpc.Place.DAEMON)
    def master_facts(self) -> NodeFacts:
        """Return the copies here and the master's name, which decide about the master.  Ours."""

    @rpc.changes(rpc.PROMPT_S, rpc.Place.DAEMON)
    def master_claim(self, known_serial: int, serial_no: int, master_name: str) -> None:
        """Take note of a node that is to become master.  Ours.

        Args:
            known_serial: the serial number of the configuration that the node has now.
            serial_no: that of the configuration which makes it master.
        """

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def master_accept(self, serial_no: int, values: Mapping[str, str]) -> None:
        """Follow the new master: take over its simple configuration.  Ours."""

    @rpc.changes(rpc.FAST_S)
    def master_drain(self, timeout_s: float) -> DrainResult:
        """Let the master here become idle: no new jobs, and the running ones end.  Ours."""

    @rpc.reads(rpc.FAST_S, rpc.Place.DAEMON)
    def config_read(self) -> CompressedText | None:
        """Return the copy of the configuration on this node; None without one.  Ours."""

    @rpc.changes(rpc.FAST_S, rpc.Place.DAEMON, from_former=True)
    def config_set_aside(self) -> str | None:
        """Rename the copy of the configuration here, and forget the name of a coming master.  Ours.

        Returns:
            The path where it lies now; None where there was none.
        """

    @rpc.changes(rpc.FAST_S)
    def node_start_master_daemons(self, *, no_voting: bool) -> None:
        """Start the daemons of a master; missing programs are passed over."""

    @rpc.changes(rpc.FAST_S)
    def node_stop_master(self) -> None:
        """Stop the daemons of a master, and remove the lock files of dead processes."""

    @rpc.changes(rpc.FAST_S)
    def node_activate_master_ip(
        self, master_params: MasterNetworkParameters, *, use_external_mip_script: bool
    ) -> None:
        """Take the master's address."""

    @rpc.changes(rpc.FAST_S)
    def node_deactivate_master_ip(
        self, master_params: MasterNetworkParameters, *, use_external_mip_script: bool
    ) -> None:
        """Give the master's address up."""

    @rpc.changes(rpc.FAST_S)
    def node_change_master_netmask(
        self, old_netmask: int, netmask: int, master_ip: str, master_netdev: str
    ) -> None:
        """Change the netmask of the master's address where it is set up."""


class MachineCalls(Service):
    """The node itself: version, addresses, daemons, membership, health."""

    @rpc.reads(rpc.URGENT_S, rpc.Place.DAEMON, to_offline=True)
    def version(self) -> int:
        """Return the protocol version that this node speaks."""

    @rpc.reads(rpc.FAST_S, rpc.Place.DAEMON)
    def node_has_ip_address(self, address: str) -> bool:
        """Tell whether an address is one of this node's."""

    @rpc.reads(rpc.FAST_S)
    def get_file_info(self, file_path: str) -> tuple[bool, dict[str, int]]:
        """Return (true, {"size": bytes}) of a file, or (false, {}) when it is not there."""

    @rpc.reads(rpc.URGENT_S, rpc.Place.DAEMON)
    def get_watcher_pause(self) -> float | None:
        """Return until when the watcher pauses (seconds since the epoch), or None.

        A pause that is over is forgotten.
        """

    @rpc.changes(rpc.URGENT_S, rpc.Place.DAEMON)
    def set_watcher_pause(self, until: float | None) -> None:
        """Pause the watcher until a time (seconds since the epoch); None ends the pause."""

    @rpc.reads(rpc.DELAY_MARGIN_S, extra_s=rpc.DELAY_MARGIN_S)
    def test_delay(self, duration: float) -> None:
        """Wait so many seconds: a call that takes time, for tests."""

    @rpc.reads(rpc.NORMAL_S)
    def node_verify(self, checkdict: Params, cluster_name: str, all_hvparams: Params) -> Facts:
        """Make all checks that are asked for; returns {check: result}."""

    @rpc.reads(rpc.NORMAL_S)
    def node_verify_light(self, checkdict: Params, cluster_name: str, hvparams: Params) -> Facts:
        """Make those checks that are possible on a node that is not yet part of the cluster."""

    @rpc.reads(rpc.URGENT_S)
    def bridges_exist(self, bridges_list: Texts) -> None:
        """Check that bridges exist; the failure names the missing ones."""

    @rpc.changes(rpc.NORMAL_S)
    def node_configure_ovs(self, ovs_name: str, ovs_link: str | None) -> None:
        """Make an Open vSwitch, and connect it to an interface if one is given."""

    @rpc.changes(rpc.NORMAL_S, rpc.Place.LOOP, to_offline=True)
    def node_powercycle(self, hypervisor: str, hvparams: Params) -> str:
        """Restart this node at once, without stopping anything; returns a text for the operator."""

    @rpc.changes(rpc.URGENT_S)
    def node_ensure_daemon(self, daemon: str, *, run: bool) -> bool:
        """Make sure that a daemon runs, or that it does not."""

    @rpc.changes(rpc.NORMAL_S, stops_daemon=True)
    def node_leave_cluster(self, *, modify_ssh_setup: bool) -> None:
        """Forget the cluster: stop its daemons, remove its files."""

    @rpc.changes(rpc.FAST_S)
    def node_demote_from_mc(self) -> None:
        """Put the configuration of a node that is no candidate any more out of use."""


class KeyCalls(Service):
    """Certificates of this node, and root's SSH keys."""

    @rpc.changes(rpc.SLOW_S)
    def node_crypto_tokens(self, token_request: Sequence[TokenRequest]) -> list[tuple[str, str]]:
        """Read, make or remove the node's client certificate; returns [(kind, digest)]."""

    @rpc.changes(rpc.NORMAL_S)
    def x509_cert_create(self, validity: int) -> tuple[str, str]:
        """Make a certificate for transfers, valid so many seconds; returns its name and its PEM."""

    @rpc.changes(rpc.NORMAL_S)
    def x509_cert_remove(self, name: str) -> None:
        """Remove a certificate made by `x509_cert_create`."""

    @rpc.changes(rpc.FAST_S)
    def ssh_root_key(self, kind: str, bits: int) -> str:
        """Return root's public key; makes one if there is none.  Ours."""

    @rpc.changes(rpc.FAST_S)
    def ssh_authorize(self, add: Texts, remove: Texts) -> bool:
        """Let owners of keys log in as root, or not any more; tells whether that changed anything.

        Ours.
        """

    @rpc.changes(rpc.FAST_S)
    def ssh_next_key(self, kind: str, bits: int) -> str:
        """Make the key that root is to have next, and return its public half; the old one stays.

        Ours.
        """

    @rpc.changes(rpc.FAST_S)
    def ssh_take_key(self, kind: str, public_key: str) -> None:
        """Put the key of `ssh_next_key` in the place of root's; repeating it changes nothing.

        Ours.
        """


class AvailabilityCalls(Service):
    """High availability: its agent, and the members of etcd.  All are ours."""

    @rpc.reads(rpc.FAST_S)
    def ha_look(self, watchdog: str, as_member: bool) -> list[str]:
        """Return what keeps this node from taking part.

        Args:
            watchdog: path of the device; "" for none.
            as_member: whether it is to run a member of etcd.
        """

    @rpc.changes(rpc.NORMAL_S)
    def ha_prepare_disk(self, path: str, cluster: str, lease: str, slots: int) -> None:
        """Make a disk that all nodes reach the one for their leases.

        Args:
            cluster: its UUID.
            lease: another one each time.
            slots: for so many nodes.
        """

    @rpc.reads(rpc.FAST_S)
    def ha_check_disk(self, path: str, cluster: str, lease: str) -> str:
        """Return what keeps this node from using that disk; "" if nothing does."""

    @rpc.changes(rpc.FAST_S)
    def ha_clear_disk(self, path: str, cluster: str) -> None:
        """Let the disk be empty again."""

    @rpc.changes(rpc.NORMAL_S)
    def ha_start_member(
        self, settings: CompressedText, certificate: CompressedText, authority: CompressedText
    ) -> None:
        """Let a member of etcd run here; whatever an earlier one left is removed.

        Args:
            settings: JSON of `ganeti.store.availability.Member`.
            certificate: key and certificate of the member, as PEM.
            authority: of all members and clients, as PEM.
        """

    @rpc.changes(rpc.NORMAL_S)
    def ha_renew_member(
        self, certificate: CompressedText, authority: CompressedText, restart: bool
    ) -> None:
        """Give the member of etcd here, which keeps its data, other certificates.

        Args:
            certificate: as for `ha_start_member`; "" to keep the present one.
            restart: it reads its authority when it starts, and its certificate at any time.
        """

    @rpc.changes(rpc.NORMAL_S)
    def ha_stop_member(self) -> None:
        """End the member of etcd here, and remove its data."""

    @rpc.changes(rpc.NORMAL_S)
    def ha_start(
        self, settings: CompressedText, certificate: CompressedText, authority: CompressedText
    ) -> None:
        """Take the settings, and let the agent run.

        Args:
            settings: JSON of `ganeti.store.availability.Settings`.
            certificate: key and certificate of a client of etcd, as PEM; "" for none.
            authority: of etcd's certificates, as PEM.
        """

    @rpc.changes(rpc.NORMAL_S)
    def ha_stop(self, drbd_helper: str) -> None:
        """End the agent in order, and forget the settings.

        Args:
            drbd_helper: what DRBD runs at events from now on.
        """

    @rpc.reads(rpc.FAST_S)
    def ha_report(self) -> dict[str, object]:
        """Return the digest of the settings here, "" without any, and whether the daemons run.

        Returns:
            {"settings": SHA-256 in hex, "taken": the same of those that the agent works with,
            "agent": bool, "member": bool or null where none is to run,
            "disk": why the lease on the disk is not held, or null where there is none,
            "ends": {path of a certificate of etcd: when it ends, in seconds since the epoch}}
        """


class ScriptCalls(Service):
    """Programs of the administrator: hooks, allocators, restricted and out-of-band commands."""

    @rpc.changes(rpc.NORMAL_S)
    def hooks_runner(
        self, hpath: str, phase: str, env: Mapping[str, str]
    ) -> list[tuple[str, int, str]]:
        """Run the scripts for a hook path and phase; returns (script, HookResult, output) of each.

        A script that fails is reported, and the next one runs nevertheless.
        """

    @rpc.reads(rpc.NORMAL_S, ends_with_caller=True)
    def iallocator_runner(
        self, name: str, idata: str, default_iallocator_params: Params | None
    ) -> str:
        """Run an allocator on a request and return its output; it is ended with its caller."""

    @rpc.changes(rpc.SLOW_S)
    def restricted_command(self, cmd: str) -> str:
        """Run a command that this node's administrator has allowed, and return its output."""

    @rpc.changes(rpc.SLOW_S)
    def repair_command(self, cmd: str, inp: str | None) -> str:
        """Run an allowed command for repairs on an input, and return its output; ours."""

    @rpc.changes(rpc.NORMAL_S)
    def run_oob(self, oob_program: str, command: str, remote_node: str, timeout: float) -> object:
        """Let an out-of-band program act on another node; returns its JSON answer, if any."""


class OsCalls(Service):
    """Operating systems and their scripts."""

    @rpc.changes(rpc.URGENT_S)
    def instance_metadata_modify(self, instance: GuestMetadata) -> None:
        """Tell the metadata daemon what it may tell the guest of an instance, and start it."""

    @rpc.reads(rpc.FAST_S)
    def os_diagnose(self) -> list[list[object]]:
        """Return every OS definition on the search path with its problems."""

    @rpc.reads(rpc.FAST_S)
    def os_validate(
        self, required: bool, name: str, checks: Texts, params: Params, force_variant: bool
    ) -> bool:
        """Check an OS and its parameters on this node; false when it is missing, not required."""

    @rpc.changes(rpc.ONE_DAY_S)
    def instance_os_add(self, instance: RpcInstance, *, reinstall: bool, debug: int) -> None:
        """Run the create script of an instance's OS."""

    @rpc.changes(rpc.NORMAL_S)
    def os_package_write(
        self, instance: RpcInstance, disk: RpcDisk, *, reinstall: bool, debug: int
    ) -> None:
        """Write all that another machine needs to install an instance's OS to a disk.  Ours."""

    @rpc.reads(rpc.FAST_S)
    def os_package_answer(self, disk: RpcDisk) -> str:
        """Return what that machine has told last, "" if nothing.  Ours."""

    @rpc.changes(rpc.NORMAL_S)
    def os_package_log(self, name: str, os_name: str, disk: RpcDisk) -> tuple[str, str]:
        """Keep the output of that machine in a log file; return its path, and the end.  Ours."""

    @rpc.changes(rpc.SLOW_S)
    def instance_run_rename(self, instance: RpcInstance, old_name: str, debug: int) -> None:
        """Run the rename script of an instance's OS, after the instance was renamed."""


class InstanceCalls(Service):
    """Instances on this node."""

    @rpc.reads(rpc.URGENT_S)
    def all_instances_info(self, hypervisor_list: Texts, all_hvparams: Params) -> dict[str, Facts]:
        """Return {instance name: memory, vcpus, state, time} of all instances of hypervisors."""

    @rpc.reads(rpc.URGENT_S)
    def instance_list(self, hypervisor_list: Texts, hvparams: Params) -> list[str]:
        """Return the names of all instances of some hypervisors."""

    @rpc.reads(rpc.URGENT_S)
    def instance_info(self, instance: str, hname: str, hvparams: Params | None) -> Facts:
        """Return memory, vcpus, state and time of one instance; {} when it does not run here."""

    @rpc.reads(rpc.URGENT_S, object_body=True)
    def instance_console_info(self, instances: Mapping[str, Params]) -> dict[str, Facts]:
        """Return how to reach the console of each instance, the preferred way.

        The body is the one object {name: {instance, node, group, hvParams, beParams}}.
        """

    @rpc.reads(rpc.URGENT_S, object_body=True)
    def instance_consoles(self, instances: Mapping[str, Params]) -> dict[str, list[Facts]]:
        """Return every way to the consoles of instances; the body is as of the preferred ones.

        VNC on a socket has its path as host.
        """

    @rpc.reads(rpc.URGENT_S, object_body=True)
    def instance_guest_info(self, instances: Mapping[str, Params]) -> dict[str, Facts]:
        """Return signs of life of the guests of instances; the body is as of the consoles."""

    @rpc.reads(rpc.NORMAL_S)
    def hypervisor_validate_params(self, hvname: str, hvfull: Params) -> None:
        """Check filled hypervisor parameters against this node; the failure names the wrong one."""

    @rpc.changes(rpc.NORMAL_S)
    def instance_start(
        self, instance: RpcInstance, *, startup_paused: bool, reason: Values
    ) -> None:
        """Start an instance; one that runs already is left alone."""

    @rpc.changes(rpc.NORMAL_S, waits_by=1)
    def instance_shutdown(self, instance: RpcInstance, timeout: float, reason: Values) -> None:
        """Stop an instance, by force once ``timeout`` seconds are over; 0 asks for force at once.

        Work that an earlier job left on its disks is ended, too.
        """

    @rpc.changes(rpc.NORMAL_S, waits_by=2)
    def instance_reboot(
        self,
        instance: RpcInstance,
        reboot_type: RebootType,
        shutdown_timeout: float,
        reason: Values,
    ) -> None:
        """Reboot an instance that runs: ``soft`` inside its machine, ``hard`` with a new one."""

    @rpc.changes(rpc.NORMAL_S)
    def instance_balloon_memory(self, instance: RpcInstance, memory: int) -> None:
        """Set the memory (MiB) that a running instance may use."""

    @rpc.reads(rpc.NORMAL_S)
    def hotplug_supported(self, instance: RpcInstance) -> None:
        """Check that devices of a running instance can be added and taken away."""

    @rpc.changes(rpc.NORMAL_S)
    def hotplug_device(
        self,
        instance: RpcInstance,
        action: str,
        dev_type: str,
        device: Params,
        extra: object,
        seq: int,
    ) -> str | None:
        """Add a device to a running instance, take it away or change it; ``seq`` is its index.

        Of a disk only the size can change; it has grown before this is called.  A network interface
        that changes goes and comes back.  ``hotmod`` of a ``size`` (of ours) gives the instance
        ``vcpus`` processors and ``memory`` MiB of memory in all.

        Returns:
            The place of an added device on its bus, as the hypervisor calls it.
        """

    @rpc.reads(rpc.FAST_S)
    def instance_snapshot_supported(self, instance: RpcInstance) -> None:
        """Check that snapshots of all disks at one instant can be made.  Ours."""

    @rpc.changes(rpc.NORMAL_S)
    def instance_snapshot(
        self, instance: RpcInstance, since: str = "", point: str = "", *, quiesce: bool = False
    ) -> list[str]:
        """Keep the content of all disks at one instant; an earlier snapshot is dropped.  Ours.

        Args:
            since: the point of a chain from which on what was written is wanted.
            point: the one that this instant is, from which on it is to be recorded.
            quiesce: an agent in the guest must hold its file systems still meanwhile.

        Returns:
            The UUIDs of the disks of which it is known what was written since then.
        """

    @rpc.changes(rpc.FAST_S)
    def instance_record_since(self, instance: RpcInstance, point: str) -> None:
        """Forget what was written but for what was since one point of a chain.  Ours."""

    @rpc.changes(rpc.NORMAL_S)
    def instance_snapshot_drop(self, instance: RpcInstance) -> None:
        """Remove the snapshots; none, or no running instance, is no error.  Ours."""

    @rpc.reads(rpc.NORMAL_S)
    def kept_snapshots(self, instance: RpcInstance) -> list[list[tuple[str, float]]]:
        """Return name and time of the snapshots that each disk keeps, the oldest first.  Ours."""

    @rpc.changes(rpc.SLOW_S)
    def kept_snapshot_take(self, instance: RpcInstance, name: str, *, quiesce: bool) -> bool:
        """Keep the contents of all disks as of one instant under a name.  Ours.

        Returns:
            Whether the guest's agent held its file systems still meanwhile.
        """

    @rpc.changes(rpc.SLOW_S)
    def kept_snapshot_restore(self, instance: RpcInstance, name: str) -> None:
        """Give the disks of a stopped instance the contents of a snapshot, which stays.  Ours."""

    @rpc.changes(rpc.SLOW_S)
    def kept_snapshot_remove(self, instance: RpcInstance, name: str) -> None:
        """Remove a snapshot from the disks that have it.  Ours."""


class MigrationCalls(Service):
    """The move of a running instance."""

    @rpc.reads(rpc.NORMAL_S)
    def instance_migratable(self, instance: RpcInstance) -> None:
        """Check that an instance runs here and can be moved away."""

    @rpc.reads(rpc.NORMAL_S)
    def migration_info(self, instance: RpcInstance) -> str:
        """Describe a running instance for the node that will accept it."""

    @rpc.changes(rpc.NORMAL_S)
    def accept_instance(self, instance: RpcInstance, info: str, target: str) -> object:
        """Get ready to receive an instance; returns the target for instance_migrate.

        3.0 returns null: then the target is the address that it was asked with.
        """

    @rpc.changes(rpc.SLOW_S)
    def instance_migrate(
        self, cluster_name: str, instance: RpcInstance, target: str, *, live: bool
    ) -> None:
        """Move an instance's memory; returns once it moves, or has moved."""

    @rpc.reads(rpc.SLOW_S)
    def instance_get_migration_status(self, instance: RpcInstance) -> Facts:
        """Return how far a migration is, seen from its source; waits a moment for its end."""

    @rpc.changes(rpc.SLOW_S)
    def instance_finalize_migration_src(
        self, instance: RpcInstance, *, success: bool, live: bool
    ) -> None:
        """End a migration on its source."""

    @rpc.changes(rpc.NORMAL_S)
    def instance_finalize_migration_dst(
        self, instance: RpcInstance, info: str, *, success: bool
    ) -> bool | None:
        """End a migration on its target.

        Returns:
            Of ours: whether a guest was removed that had never been told to run.  3.0 returns null.
        """

    @rpc.reads(rpc.NORMAL_S)
    def instance_departed(self, instance: RpcInstance) -> str:
        """Return the address that an instance which does not run here may have left for.  Ours.

        It is the target that instance_migrate was given; "" if the instance has not left.
        """


class DiskCalls(Service):
    """Disks on this node."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_create(
        self,
        disk: RpcDisk,
        size: int,
        owner: str,
        *,
        on_primary: bool,
        info: str,
        exclusive_storage: bool,
    ) -> list[object] | None:
        """Create a disk for an instance; returns its logical id where creation decides it.

        When this fails, nothing of the disk is left.
        """

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_remove(self, disk: RpcDisk) -> None:
        """Remove a disk and its data; one that is gone already is no error."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_assemble(
        self, disk: RpcDisk, instance: RpcInstance, *, on_primary: bool, idx: int
    ) -> list[object]:
        """Make a disk usable on this node.

        Returns:
            On the primary node [device path, link or null, address or null], else [true, true].
        """

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_shutdown(self, disk: RpcDisk) -> None:
        """Undo `blockdev_assemble`, which opens a disk as well."""

    @rpc.reads(rpc.NORMAL_S)
    def blockdev_find(self, disk: RpcDisk) -> Facts | None:
        """Return the state of a disk; null when it does not exist."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_open(self, instance_name: str, disks: Disks, *, exclusive: bool) -> None:
        """Make the assembled disks of an instance writable here."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_close(self, instance_name: str, disks: Disks) -> None:
        """Undo `blockdev_open` for the disks of an instance, which does not run here any more."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_grow(
        self,
        disk: RpcDisk,
        amount: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive_storage: bool,
    ) -> None:
        """Add MiB to a disk; ``dryrun`` only checks that it could be done."""

    @rpc.reads(rpc.NORMAL_S)
    def blockdev_getdimensions(self, disks: Disks) -> list[tuple[int, int | None] | None]:
        """Return (bytes, spindles or null) of each disk; null for one that does not exist."""

    @rpc.reads(rpc.NORMAL_S)
    def blockdev_getmirrorstatus(self, disks: Disks) -> list[Facts]:
        """Return the state of each disk, all of which must exist."""

    @rpc.reads(rpc.NORMAL_S)
    def blockdev_getmirrorstatus_multi(self, disks: Disks) -> Values:
        """Return (true, state) or (false, message) for each disk."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_setinfo(self, disk: RpcDisk, info: str) -> None:
        """Note on a disk which instance it belongs to, where its kind has room for it."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_rename(self, devlist: Sequence[tuple[RpcDisk, list[object]]]) -> None:
        """Give disks new logical ids; when one fails, those before it have theirs."""

    @rpc.changes(rpc.SLOW_S)
    def blockdev_wipe(self, disk: RpcDisk, offset: int, size: int) -> None:
        """Write zeroes over ``size`` MiB of a disk, from ``offset`` MiB on."""

    @rpc.changes(rpc.SLOW_S)
    def blockdev_image(self, disk: RpcDisk, image: str, size: int) -> None:
        """Fill a disk of ``size`` MiB from its beginning with a file of the node, or from a URL."""

    @rpc.reads(rpc.FAST_S)
    def image_size(self, image: str) -> int | None:
        """Return the bytes of a file of the node, None without it, or of what lies at a URL."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_snapshot(self, disk: RpcDisk, snap_name: str, snap_size: int) -> list[object]:
        """Take a snapshot of a disk and return its logical id."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_addchildren(self, bdev: RpcDisk, ndevs: Disks) -> None:
        """Put new local storage under a mirrored disk that has none; its data comes from the copy.

        Args:
            ndevs: the children, which exist already: data, then metadata.
        """

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_removechildren(self, bdev: RpcDisk, ndevs: Disks) -> None:
        """Take these children, the local storage, from a mirrored disk, which goes on without."""

    @rpc.changes(rpc.NORMAL_S)
    def blockdev_pause_resume_sync(
        self, disks: Disks, pause: bool
    ) -> list[tuple[bool, str | None]]:
        """Interrupt the resynchronization of disks, or let it go on.

        Returns:
            (true, null) or (false, message) for each disk.
        """

    @rpc.changes(rpc.NORMAL_S)
    def drbd_attach_net(self, disks: Disks, multimaster: bool) -> None:
        """Connect disks with their copies, and wait until they are connected.

        Args:
            multimaster: both nodes may write, as a migration needs it.
        """

    @rpc.changes(rpc.NORMAL_S)
    def drbd_disconnect_net(self, disks: Disks) -> None:
        """Disconnect disks from their copies; they go on without."""

    @rpc.reads(rpc.SLOW_S)
    def drbd_wait_sync(self, disks: Disks) -> tuple[bool, float]:
        """Return (whether all disks are in sync, percentage of the last one); does not wait long.

        Fails if one is not connected with its copy.
        """

    @rpc.reads(rpc.NORMAL_S)
    def drbd_needs_activation(self, disks: Disks) -> list[str]:
        """Return the UUIDs of the disks that lack their device, local storage or connection."""

    @rpc.reads(rpc.NORMAL_S)
    def drbd_sides(self, disks: Disks) -> list[CopySide | None]:
        """Return this node's side of each disk; null for one that is not active.  Ours."""

    @rpc.changes(rpc.NORMAL_S)
    def drbd_outdate(self, disks: Disks) -> None:
        """Note on disks that are not connected that the other side was written alone.  Ours."""

    @rpc.changes(rpc.NORMAL_S)
    def drbd_accept(self, disks: Disks) -> None:
        """Take the data of this side for the newest from now on, whatever it lacks.  Ours."""

    @rpc.reads(rpc.URGENT_S)
    def drbd_helper(self) -> str:
        """Return the path of the usermode helper that DRBD calls on this node."""

    @rpc.reads(rpc.URGENT_S)
    def bdev_sizes(self, devices: Texts) -> dict[str, int]:
        """Return the size in MiB of block devices of this node; other files are left out."""


class StorageCalls(Service):
    """The space that disks are made of, and the machine that holds it all."""

    @rpc.reads(rpc.URGENT_S)
    def node_info(
        self,
        storage_units: Sequence[tuple[str, str, list[object]]] | None,
        hv_specs: Sequence[tuple[str, Params]] | None,
    ) -> list[object]:
        """Return [boot id, [storage info], [hypervisor info]]; null for a list not asked for.

        A storage unit that cannot be looked at has null in the place of its numbers.
        """

    @rpc.reads(rpc.URGENT_S)
    def lv_list(self, vg_name: Texts) -> dict[str, tuple[str, bool, bool]]:
        """Return {group/volume: (MiB as text, is inactive, is open)} of these volume groups.

        No names ask for all groups.
        """

    @rpc.reads(rpc.URGENT_S)
    def vg_list(self) -> dict[str, int]:
        """Return {volume group: MiB}."""

    @rpc.reads(rpc.FAST_S)
    def node_volumes(self) -> list[dict[str, str]]:
        """Return name, vg, size (MiB) and dev of each volume, one for each device that it is on."""

    @rpc.reads(rpc.NORMAL_S)
    def storage_list(
        self, su_name: str, su_args: Values, name: str | None, fields: Texts
    ) -> list[list[object]]:
        """Return the asked fields of each storage unit of a type, or of the one named.

        ``su_args`` of file storage holds the list of its directories.
        """

    @rpc.changes(rpc.NORMAL_S)
    def storage_modify(self, su_name: str, su_args: Values, name: str, changes: Params) -> None:
        """Change a storage unit: whether a physical volume may get new volumes."""

    @rpc.changes(rpc.NORMAL_S)
    def storage_execute(self, su_name: str, su_args: Values, name: str, op: str) -> None:
        """Repair a storage unit: take lost physical volumes out of a volume group."""

    @rpc.changes(rpc.FAST_S)
    def file_storage_dir_create(self, file_storage_dir: str) -> None:
        """Make a directory, below one that this node allows for file storage."""

    @rpc.changes(rpc.FAST_S)
    def file_storage_dir_remove(self, file_storage_dir: str) -> None:
        """Remove an empty directory; one that is gone already is no error."""

    @rpc.changes(rpc.FAST_S)
    def file_storage_dir_rename(self, old_file_storage_dir: str, new_file_storage_dir: str) -> None:
        """Rename a directory with all its files."""

    @rpc.reads(rpc.FAST_S)
    def extstorage_diagnose(self) -> list[list[object]]:
        """Return [name, path, usable, problem, [[parameter, description]]] of each provider."""


class ExportCalls(Service):
    """Exports of instances on this node, and the transfers that fill and read them."""

    @rpc.reads(rpc.FAST_S)
    def export_list(self) -> list[str]:
        """Return the names of the exports, one directory each, broken ones included."""

    @rpc.reads(rpc.FAST_S)
    def export_info(self, path: str) -> str:
        """Return the description of an export, the text of its INI file."""

    @rpc.changes(rpc.FAST_S)
    def export_remove(self, export: str) -> None:
        """Remove an export with all its data."""

    @rpc.reads(rpc.FAST_S)
    def export_chains(self, exports: Texts) -> list[tuple[str, list[ChainPoint]]]:
        """Return the points of some exports, or of all if none is named.  Ours.

        An export without a chain has one point, a broken one none.
        """

    @rpc.changes(rpc.FAST_S)
    def export_note(self, export: str, method: str, point: str = "", number: int = 0) -> None:
        """Note how the disks are read, for the description of an export in the making.  Ours.

        One that is to be a point of a chain has a UUID, and a number; 0 begins a chain.
        """

    @rpc.changes(rpc.NORMAL_S)
    def export_merge(self, export: str, number: int) -> str:
        """Begin to make a point the first of its chain; returns the name of the transfer.  Ours."""

    @rpc.changes(rpc.NORMAL_S)
    def finalize_export(self, instance: RpcInstance, snap_disks: Values) -> None:
        """Describe an export whose dumps are all here, and replace an older one by it."""

    @rpc.changes(rpc.NORMAL_S)
    def export_start(
        self,
        opts: TransferOptions,
        host: str,
        port: int,
        instance: RpcInstance,
        component: str,
        source: tuple[str, Values],
    ) -> str:
        """Begin to send a disk to a receiver; returns the name of the transfer."""

    @rpc.changes(rpc.NORMAL_S)
    def import_start(
        self, opts: TransferOptions, instance: RpcInstance, component: str, dest: tuple[str, Values]
    ) -> str:
        """Begin to receive a disk; returns the name of the transfer, whose status has the port."""

    @rpc.reads(rpc.FAST_S)
    def impexp_status(self, names: Texts) -> list[object]:
        """Return the state of each transfer; null for one that does not exist."""

    @rpc.changes(rpc.NORMAL_S)
    def impexp_abort(self, name: str) -> None:
        """Stop a transfer."""

    @rpc.changes(rpc.NORMAL_S)
    def impexp_cleanup(self, name: str) -> None:
        """Stop a transfer and forget it; one that is forgotten already is no error."""


class NodeCalls(
    QueueCalls,
    FileCalls,
    MasterCalls,
    MachineCalls,
    KeyCalls,
    AvailabilityCalls,
    ScriptCalls,
    OsCalls,
    InstanceCalls,
    MigrationCalls,
    DiskCalls,
    StorageCalls,
    ExportCalls,
):
    """All calls of the node daemon."""


# Calls of 3.0 that are refused as not supported, with any arguments; nobody here makes them.
_UNSERVED: Final = (
    "blockdev_convert",
    *("node_ssh_key_add", "node_ssh_key_remove", "node_ssh_keys_renew", "os_export"),
)


def _unserved(name: str) -> rpc.NodeCall:
    def refused(self: NodeCalls) -> None:
        """Refuse a call of 3.0."""

    refused.__name__ = name
    rules = rpc.Rules(rpc.NORMAL_S, changes=True, place=rpc.Place.CHILD)
    return rpc.NodeCall(name, refused, rules)


NodeCalls.calls |= {name: _unserved(name) for name in _UNSERVED}
