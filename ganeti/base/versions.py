"""Versions of every interface that others connect to.

Source: constants.json, "versions".
"""

from typing import Final

RELEASE_VERSION: Final = "3.0.2"
VCS_VERSION: Final = "3.0.2"
CONFIG_MAJOR: Final = 3
CONFIG_MINOR: Final = 0
CONFIG_VERSION: Final = 3000000
PROTOCOL_VERSION: Final = CONFIG_VERSION
LUXI_VERSION: Final = CONFIG_VERSION
RAPI_VERSION: Final = 2
EXPORT_VERSION: Final = 0
HOOKS_VERSION: Final = 2
IALLOCATOR_VERSION: Final = 2
JOB_QUEUE_VERSION: Final = 1
CONFD_PROTOCOL_VERSION: Final = 1
MOND_LATEST_API_VERSION: Final = 1
OS_API_VERSIONS: Final = (10, 15, 20)
