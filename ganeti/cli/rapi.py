"""``gnt-rapi``: users, roles and tokens of the remote API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, NotMasterError, OpPrereqError
from ganeti.cli.command import ArgKind, Context, Options, command, opt
from ganeti.cli.run.jobs import changes, encode, format_entry, make_opcode, results_of
from ganeti.cli.run.report import Facts, format_report
from ganeti.cli.run.secret import ask_secret
from ganeti.cli.run.table import format_time
from ganeti.opcodes.cluster import OpClusterRedistConf
from ganeti.protocol.rapi.users import Grant, text_of
from ganeti.store import ssconf
from ganeti.store.rapi_access import RapiAccess, describe_grant
from ganeti.system import clock
from ganeti.system.environment import own_hostname

_DAY_S: Final = 86400
_DAYS_MAX: Final = 36500
_PARTS: Final = ("rights", "resources", "names", "tags")


def list_users(context: Context, _options: Options, _args: list[str]) -> None:
    """List users, rights and roles."""
    _show(
        context,
        {
            name: Facts(
                [
                    ("password", str(user.scheme)),
                    ("rights", ",".join(sorted(user.rights))),
                    ("roles", ",".join(user.roles)),
                ]
            )
            for name, user in RapiAccess(context.paths).users().items()
        },
    )


def _show(context: Context, facts: Mapping[str, Facts]) -> None:
    context.terminal.write_lines(format_report(Facts(sorted(facts.items()))))


def set_user(context: Context, options: Options, args: list[str]) -> None:
    """Add a user, or change one."""
    [name] = args
    access = _access(context)
    access.check_user(name, options.roles)  # before the question
    password = None if options.no_password else _read_password(context, name)
    access.set_user(name, password, options.rights, options.roles)
    _distribute(context, options)


def _read_password(context: Context, name: str) -> str:
    terminal = context.terminal
    password = ask_secret(terminal, f"Password for {name}: ")
    if not password:
        raise OpPrereqError("an empty password is not possible; --no-password asks for none")
    if terminal.is_interactive and ask_secret(terminal, "Again: ") != password:
        raise OpPrereqError("the two are not the same; nothing was changed")
    return as_sent(password)


def as_sent(password: str) -> str:
    """Return a password as the server reads it, also where it is no UTF-8."""
    return text_of(password.encode("utf-8", "surrogateescape"))


def remove_user(context: Context, options: Options, args: list[str]) -> None:
    """Remove a user and all tokens."""
    _access(context).remove_user(args[0])
    _distribute(context, options)


def list_roles(context: Context, _options: Options, _args: list[str]) -> None:
    """List roles and their rights."""
    roles = RapiAccess(context.paths).roles()
    _show(context, {name: Facts(map(_grant, enumerate(all_, 1))) for name, all_ in roles.items()})


def _grant(numbered: tuple[int, Grant]) -> tuple[str, Facts]:
    number, grant = numbered
    return f"grant {number}", Facts(describe_grant(grant).items())


def set_role(context: Context, options: Options, args: list[str]) -> None:
    """Make a role, or replace its rights."""
    given = {key: _patterns(options, key) for key in _PARTS if options.get(key) is not None}
    _access(context).set_role(args[0], [Grant(**given)], keeps=options.add)
    _distribute(context, options)


def _patterns(options: Options, key: str) -> tuple[str, ...]:
    """Return the words of an option that limits a grant.

    Raises:
        OpPrereqError: there are none: the grant would be as if nothing had been said.
    """
    words = tuple(options.get(key))
    if not words or not all(word.strip() for word in words):
        raise OpPrereqError(f"--{key} needs words with commas between; leave it out for no limit")
    return words


def remove_role(context: Context, options: Options, args: list[str]) -> None:
    """Remove a role."""
    _access(context).remove_role(args[0])
    _distribute(context, options)


def list_tokens(context: Context, _options: Options, _args: list[str]) -> None:
    """List tokens, users and ends."""
    tokens = RapiAccess(context.paths).tokens().values()
    _show(
        context,
        {each.id: Facts([("user", each.user), ("expires", _end(each.expires))]) for each in tokens},
    )


def _end(expires: int) -> str:
    if not expires:
        return "never"
    return f"{format_time(expires)} (over)" if expires <= clock.now() else format_time(expires)


def add_token(context: Context, options: Options, args: list[str]) -> None:
    """Make a token for a user and print it."""
    [name] = args
    access = _access(context)
    if not 0 <= options.days <= _DAYS_MAX:
        raise OpPrereqError(f"--days takes 0 to {_DAYS_MAX}")
    expires = int(clock.now()) + options.days * _DAY_S if options.days else 0
    context.write(access.add_token(name, expires))
    _distribute(context, options)


def remove_token(context: Context, options: Options, args: list[str]) -> None:
    """Remove a token."""
    access = _access(context)
    if args[0] not in access.tokens():
        raise OpPrereqError(f"there is no token {args[0]!r}", ErrorCode.NOENT)
    access.remove_token(args[0])
    _distribute(context, options)


def _access(context: Context) -> RapiAccess:
    """Return the files, to be changed.

    Raises:
        NotMasterError: another node has the files in force.
    """
    master = ssconf.master_node(context.paths)
    if master != own_hostname():
        raise NotMasterError(f"this is not the master node, run this on {master}", master)
    return RapiAccess(context.paths)


def _distribute(context: Context, options: Options) -> None:
    """Send the files to the other candidates, unless that is to be done later."""
    if options.local:
        return
    opcode = make_opcode(OpClusterRedistConf)
    job_id = context.client.submit_job([encode(context, options, opcode)])
    for change in changes(context, job_id):
        for entry in change.log_entries:  # the output is for tokens
            context.terminal.error("\n".join(format_entry(entry)))
    results_of(context, job_id)


_USER = opt.Argument(ArgKind.TEXT, metavar="USER")
_RIGHTS = opt.commas("--rights=RIGHTS", "read, write, or both with a comma between")
_LOCAL = opt.flag("--local", "change this node's file only; gnt-cluster redist-conf sends it later")
_ROLE = opt.Argument(ArgKind.TEXT, metavar="ROLE")
_TOKEN = opt.Argument(ArgKind.TEXT, metavar="TOKEN-ID")
COMMANDS: Final = (
    command(list_users),
    command(
        set_user,
        _USER,
        _RIGHTS,
        opt.commas("--roles=ROLES", "roles, with commas between"),
        opt.flag("--no-password", "ask for no password: keep the old one, or have none but tokens"),
        _LOCAL,
        examples="""
gnt-rapi set-user --rights=read,write joe  # asks for the password
gnt-rapi set-user --roles=webs ann < password-file  # reads it from a file""",
    ),
    command(remove_user, _USER, _LOCAL),
    command(list_roles),
    command(
        set_role,
        _ROLE,
        _RIGHTS,
        opt.commas(
            "--resources=PATTERNS",
            "resources of the rights: patterns such as /2/instances/*, with commas between",
        ),
        opt.commas("--names=PATTERNS", "only for instances with such names (patterns)"),
        opt.commas("--tags=TAGS", "only for instances that have one of these tags"),
        opt.flag("--add", "keep the grants that the role has"),
        _LOCAL,
        examples="""
gnt-rapi set-role --rights=read,write --names='web*' webs \
 # everything about instances whose names begin with web""",
    ),
    command(remove_role, _ROLE, _LOCAL),
    command(list_tokens),
    command(
        add_token, _USER, opt.number("--days", "when it expires; 0: never", default=90), _LOCAL
    ),
    command(remove_token, _TOKEN, _LOCAL),
)
