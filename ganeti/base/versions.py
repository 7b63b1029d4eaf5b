"""Versions of every interface that others connect to.

Source: constants.json, "versions".
"""

from typing import Final

RELEASE_VERSION: Final = "3.0.2"
VCS_VERSION: Final = "3.0.2"
CONFIG_VERSION: Final = 3000000
PROTOCOL_VERSION: Final = CONFIG_VERSION
LUXI_VERSION: Final = CONFIG_VERSION
EXPORT_VERSION: Final = 0
HOOKS_VERSION: Final = 2
JOB_QUEUE_VERSION: Final = 1
OS_API_VERSIONS: Final = (10, 15, 20)
