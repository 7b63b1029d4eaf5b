"""``gnt-rapi``: who may use the remote API."""

from __future__ import annotations

from ganeti.cli.declaration.program import Action, ArgKind, Argument, Command, Option, Program
from ganeti.cli.declaration.values import ValueType

_USER = (Argument(ArgKind.TEXT, metavar="USER"),)
_ROLE = (Argument(ArgKind.TEXT, metavar="ROLE"),)
_TOKEN = (Argument(ArgKind.TEXT, metavar="TOKEN-ID"),)
_LOCAL = Option(
    ("--local",),
    "change this node's file only; gnt-cluster redist-conf sends it later",
    action=Action.TRUE,
)


def _words(flag: str, help_text: str, metavar: str) -> Option:
    return Option((flag,), help_text, type=ValueType.LIST, metavar=metavar)


_RIGHTS = _words("--rights", "read, write, or both with a comma between", "RIGHTS")
_GRANT = (
    _RIGHTS,
    _words(
        "--resources",
        "what the rights are for: patterns such as /2/instances/*, with commas between",
        "PATTERNS",
    ),
    _words("--names", "only for instances with such names (patterns)", "PATTERNS"),
    _words("--tags", "only for instances that have one of these tags", "TAGS"),
    Option(("--add",), "keep the grants that the role has", action=Action.TRUE),
    _LOCAL,
)

PROGRAM = Program(
    "gnt-rapi",
    "manage users of the remote API",
    """The remote API knows its users by passwords or tokens.  A user has rights on everything, or
roles, whose rights may be for some resources and some instances only.  Runs on the master node;
changes go to the other master candidates, and count at once.""",
    (
        Command("list-users", "list users, rights and roles", "rapi:list_users"),
        Command(
            "set-user",
            "add a user, or change one",
            "rapi:set_user",
            _USER,
            (
                _RIGHTS,
                _words("--roles", "roles, with commas between", "ROLES"),
                Option(
                    ("--no-password",),
                    "ask for no password: keep the old one, or have none but tokens",
                    action=Action.TRUE,
                ),
                _LOCAL,
            ),
            examples=(
                ("gnt-rapi set-user --rights=read,write joe", "asks for the password"),
                ("gnt-rapi set-user --roles=webs ann < password-file", "reads it from a file"),
            ),
        ),
        Command(
            "remove-user", "remove a user and all tokens", "rapi:remove_user", _USER, (_LOCAL,)
        ),
        Command("list-roles", "list roles and what they grant", "rapi:list_roles"),
        Command(
            "set-role",
            "make a role, or replace what it grants",
            "rapi:set_role",
            _ROLE,
            _GRANT,
            examples=(
                (
                    "gnt-rapi set-role --rights=read,write --names='web*' webs",
                    "everything about instances whose names begin with web",
                ),
            ),
        ),
        Command("remove-role", "remove a role", "rapi:remove_role", _ROLE, (_LOCAL,)),
        Command("list-tokens", "list tokens, users and ends", "rapi:list_tokens"),
        Command(
            "add-token",
            "make a token for a user and print it",
            "rapi:add_token",
            _USER,
            (
                Option(
                    ("--days",),
                    "when it expires; 0: never",
                    type=ValueType.INT,
                    metavar="DAYS",
                    default=90,
                ),
                _LOCAL,
            ),
        ),
        Command("remove-token", "remove a token", "rapi:remove_token", _TOKEN, (_LOCAL,)),
    ),
)


def main() -> int:
    """Run ``gnt-rapi`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
