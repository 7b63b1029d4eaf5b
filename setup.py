"""Packaging of the Ganeti cluster manager: metadata, dependencies, entry points."""

from setuptools import find_packages, setup

GNT_COMMANDS = (
    "backup",
    "cluster",
    "debug",
    "filter",
    "group",
    "instance",
    "job",
    "network",
    "node",
    "os",
    "rapi",
    "storage",
)

DAEMONS = {
    "ganeti-confd": "ganeti.rconfd.main",
    "ganeti-luxid": "ganeti.luxid.main",
    "ganeti-mond": "ganeti.mond.main",
    "ganeti-noded": "ganeti.noded.main",
    "ganeti-rapi": "ganeti.rapid.main",
    "ganeti-wconfd": "ganeti.wconfd.main",
}

INSTALL_REQUIRES = [
    "bitarray>=2.9",
    "cryptography>=42",
    "httptools>=0.6",
    "msgspec>=0.18",
    "prometheus-client>=0.20",
    "psutil>=5.9",
    "pyasyncore; python_version >= '3.12'",
    "pycurl>=7.45.3",
    "pyinotify>=0.9.6",
    "pyOpenSSL>=24",
    "pyparsing>=3.1",
]

TEST_REQUIRES = [
    "hypothesis>=6.100",
    "import-linter>=2.0",
    "mypy>=1.10",
    "pytest>=8",
    "ruff>=0.6",
    "types-psutil",
]

setup(
    name="ganeti",
    version="3.0.2",
    description="Cluster manager for virtual machines, compatible with Ganeti 3.0",
    license="BSD-2-Clause",
    python_requires=">=3.11",
    packages=find_packages(include=["ganeti", "ganeti.*"]),
    package_data={"ganeti": ["py.typed"], "ganeti.rapid": ["ui/*"]},
    install_requires=INSTALL_REQUIRES,
    extras_require={"test": TEST_REQUIRES},
    entry_points={
        "console_scripts": [f"gnt-{name} = ganeti.cli.gnt_{name}:main" for name in GNT_COMMANDS]
        + [f"{name} = {module}:main" for name, module in DAEMONS.items()],
    },
)
