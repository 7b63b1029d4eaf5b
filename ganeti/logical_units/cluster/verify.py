"""Verify the cluster: one job for the configuration, one for each node group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ganeti.base.errors import ConfigVerifyError, GenericError
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.findings import Finding, Severity, judge_dangling, softened
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes.cluster import (
    OpClusterVerify,
    OpClusterVerifyConfig,
    OpClusterVerifyGroup,
)
from ganeti.opcodes.opcode import Dependency
from ganeti.system import files

if TYPE_CHECKING:
    from ganeti.base.paths import Paths
    from ganeti.logical_units.context import JobContext

VerifyOp = TypeVar("VerifyOp", bound=OpClusterVerifyConfig | OpClusterVerifyGroup)

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
        """Say what is looked at now."""
        self._context.feedback(f"* {text}")

    def add(self, finding: Finding) -> None:
        """Tell one finding."""
        finding = softened(finding, self._ignored)
        self._context.feedback(f"  - {finding.line(with_code=self._with_code)}")
        if finding.severity is Severity.ERROR:
            self.is_well = False


class LUClusterVerify(LogicalUnit[OpClusterVerify]):
    """Submit the jobs that verify the cluster."""

    def expand_names(self) -> None:
        """Look the group up, if one is named."""
        if self.op.group_name is not None:
            self.groups = [lookup.require_group(self.config, self.op.group_name)]
        else:
            self.groups = lookup.present(self.config.get_node_groups(None))

    def exec(self) -> dict[str, object]:
        """Submit them; the groups are looked at once the configuration has been."""
        op = self.op
        jobs: list[list[OpClusterVerifyConfig | OpClusterVerifyGroup]] = []
        if op.group_name is None:
            jobs.append(
                [
                    OpClusterVerifyConfig(
                        debug_simulate_errors=op.debug_simulate_errors,
                        error_codes=op.error_codes,
                        ignore_errors=op.ignore_errors,
                        verbose=op.verbose,
                        reason=op.reason,
                    )
                ]
            )
        first = len(jobs)
        for number, group in enumerate(self.groups):
            depends: list[Dependency] | None = [(-(first + number), [])] if first else None
            jobs.append(
                [
                    OpClusterVerifyGroup(
                        group_name=group.name,
                        debug_simulate_errors=op.debug_simulate_errors,
                        error_codes=op.error_codes,
                        skip_checks=op.skip_checks,
                        ignore_errors=op.ignore_errors,
                        verbose=op.verbose,
                        verify_clutter=op.verify_clutter,
                        depends=depends,
                        reason=op.reason,
                    )
                ]
            )
        return {"jobs": [(True, job_id) for job_id in self.context.submit_jobs(jobs)]}


class LUClusterVerifyConfig(LogicalUnit[OpClusterVerifyConfig]):
    """Verify configuration and certificates; the result says whether all is well."""

    def exec(self) -> bool:
        """Look, and tell."""
        report = Report(self.context, self.op)
        report.section("Verifying cluster config")
        try:
            self.config.verify_config()
        except ConfigVerifyError as err:
            for text in err.errors or [err.message]:
                report.add(Finding(VerifyErrorCode.ECLUSTERCFG, "", text))
        config = self.config
        for finding in judge_dangling(
            lookup.present(config.get_nodes(None)),
            lookup.present(config.get_instances(None)),
            {group.uuid for group in lookup.present(config.get_node_groups(None))},
        ):
            report.add(finding)
        report.section("Verifying cluster certificate files")
        for finding in certificate_findings(self.context.paths, self.context.now()):
            report.add(finding)
        return report.is_well


def certificate_findings(paths: Paths, now: float) -> list[Finding]:
    """Say which certificates of this node are broken, or end soon."""
    from ganeti.system import certificates

    found = []
    for name in CERTIFICATES:
        path = getattr(paths, name)
        pem = files.read_bytes_or_none(path, ancillary.FILE_BYTES_MAX)
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
                else (f"certificate {path} has ended {-left_days:.1f} days ago")
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
