"""Verify the cluster: one job for the configuration, one for each node group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import ConfigVerifyError, GenericError
from ganeti.base.paths import Paths
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.base import NamelessUnit, SimpleUnit
from ganeti.logical_units.cluster.findings import Finding, Severity, judge_dangling, softened
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import NodeGroup
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes.cluster import OpClusterVerify, OpClusterVerifyConfig, OpClusterVerifyGroup
from ganeti.opcodes.opcode import OpCode
from ganeti.system import files

CERTIFICATES: Final = ("server_pem", "client_pem", "rapi_pem", "spice_pem", "spice_ca_pem")
DAYS_ERROR: Final = 7  # SSL_CERT_EXPIRATION_ERROR
DAYS_WARN: Final = 30  # SSL_CERT_EXPIRATION_WARN
_SECONDS_PER_DAY: Final = 86400.0


class Report:
    """Tells findings to the operator as they come, and remembers whether one is an error."""

    def __init__(
        self, context: JobContext, op: OpClusterVerifyConfig | OpClusterVerifyGroup
    ) -> None:
        self._context = context
        self._with_code = op.error_codes
        self._ignored = frozenset(code.value for code in op.ignore_errors)
        self.is_well = not op.debug_simulate_errors

    def section(self, text: str) -> None:
        """Name the next part of the work."""
        self._context.feedback(f"* {text}")

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Tell findings."""
        for finding in findings:
            self.add(finding)

    def add(self, finding: Finding) -> None:
        """Tell one finding."""
        finding = softened(finding, self._ignored)
        self._context.feedback(f"  - {finding.line(with_code=self._with_code)}")
        if finding.severity is Severity.ERROR:
            self.is_well = False


class LUClusterVerify(SimpleUnit[OpClusterVerify, Sequence[NodeGroup]]):
    """Submit the jobs that verify the cluster."""

    def resolve(self) -> list[NodeGroup]:
        return lookup.groups_named(self.config, self.op.group_name)

    def execute(self, plan: Sequence[NodeGroup]) -> dict[str, object]:
        """Submit the jobs; those for groups wait for the one for the configuration."""
        op = self.op
        common: dict[str, Any] = {
            "debug_simulate_errors": op.debug_simulate_errors,
            "error_codes": op.error_codes,
            "ignore_errors": op.ignore_errors,
            "verbose": op.verbose,
            "reason": op.reason,
        }
        jobs: list[list[OpCode]] = []
        if op.group_name is None:
            jobs.append([OpClusterVerifyConfig(**common)])
        first = len(jobs)
        for number, group in enumerate(plan):
            job = OpClusterVerifyGroup(
                group_name=group.name,
                skip_checks=op.skip_checks,
                verify_clutter=op.verify_clutter,
                depends=[(-(first + number), [])] if first else None,
                **common,
            )
            jobs.append([job])
        return {"jobs": [(True, job_id) for job_id in self.context.submit_jobs(jobs)]}


class LUClusterVerifyConfig(NamelessUnit[OpClusterVerifyConfig]):
    """Verify configuration and certificates; the result tells whether all is well."""

    def execute(self, plan: None) -> bool:
        config, report = self.config, Report(self.context, self.op)
        report.section("Verifying cluster config")
        try:
            config.verify_config()
        except ConfigVerifyError as err:
            for text in err.errors or [err.message]:
                report.add(Finding(VerifyErrorCode.ECLUSTERCFG, "", text))
        report.add_all(
            judge_dangling(
                lookup.all_nodes(config),
                lookup.present(config.get_instances(None)),
                {group.uuid for group in lookup.present(config.get_node_groups(None))},
            )
        )
        report.section("Verifying cluster certificate files")
        report.add_all(certificate_findings(self.context.paths, self.context.now()))
        return report.is_well


def certificate_findings(paths: Paths, now: float) -> list[Finding]:
    """Return findings about certificates of this node that are broken or end soon."""
    from ganeti.system import certificates  # cryptography: 30 ms and its memory for every job

    found = []
    for name in CERTIFICATES:
        path = getattr(paths, name)
        pem = files.read_bytes_or_none(path, node_files.FILE_BYTES_MAX)
        if pem is None:
            if name == "server_pem":
                found.append(_certificate(f"certificate {path} is missing", Severity.ERROR))
            continue
        try:
            left_days = (certificates.facts(pem, path).not_after - now) / _SECONDS_PER_DAY
        except GenericError as err:
            found.append(_certificate(err.message, Severity.ERROR))
            continue
        if left_days <= DAYS_WARN:
            severity = Severity.ERROR if left_days <= DAYS_ERROR else Severity.WARNING
            text = (
                f"certificate {path} ends in {left_days:.1f} days"
                if left_days > 0
                else f"certificate {path} has ended {-left_days:.1f} days ago"
            )
            found.append(_certificate(text, severity))
    return found


def _certificate(text: str, severity: Severity) -> Finding:
    return Finding(VerifyErrorCode.ECLUSTERCERT, "", text, severity)


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a node's answer as a mapping; an answer of another shape says nothing."""
    return value if isinstance(value, Mapping) else {}


def as_sequence(value: object) -> Sequence[object]:
    """Return a node's answer as a sequence; an answer of another shape says nothing."""
    return value if isinstance(value, list) else ()
