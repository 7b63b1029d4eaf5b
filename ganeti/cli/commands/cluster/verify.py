"""``gnt-cluster`` verify and verify-config."""

from __future__ import annotations

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode, results_of_all, submitted_jobs


def verify(context: Context, options: Options, _args: list[str]) -> int:
    """Check the whole cluster; the exit status tells whether all is well."""
    opcode = make_opcode(
        "OP_CLUSTER_VERIFY",
        verbose=options.verbose,
        error_codes=options.error_codes,
        debug_simulate_errors=options.debug_simulate_errors,
        skip_checks=["nplusone_mem"] if options.no_nplus1_mem else [],
        ignore_errors=list(options.ignore_errors),
        group_name=options.node_group,
        verify_clutter=options.verify_ssh_clutter,
    )
    [result] = execute(context, options, opcode)
    failures, results = results_of_all(context, submitted_jobs(result))
    is_well = not failures and all(each for results_of_job in results for each in results_of_job)
    return EXIT_SUCCESS if is_well else EXIT_FAILURE


def verify_config(context: Context, options: Options, _args: list[str]) -> int:
    """Check the configuration alone; the exit status tells whether all is well."""
    opcode = make_opcode(
        "OP_CLUSTER_VERIFY_CONFIG",
        verbose=options.verbose,
        error_codes=options.error_codes,
        debug_simulate_errors=options.debug_simulate_errors,
        ignore_errors=list(options.ignore_errors),
    )
    [is_well] = execute(context, options, opcode)
    if not is_well:
        context.terminal.error("The configuration has errors; see above.")
        return EXIT_FAILURE
    context.write("The configuration has no errors.")
    return EXIT_SUCCESS
