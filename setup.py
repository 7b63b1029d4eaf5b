"""Packaging of the Ganeti cluster manager: metadata, dependencies, entry points, other files."""

import os
import runpy
from glob import glob

from setuptools import find_packages, setup

from distutils.command.install_data import install_data  # isort: skip - setuptools brings it

GNT_COMMANDS = (
    "backup",
    "cluster",
    "debug",
    "filter",
    "group",
    "instance",
    "job",
    "maint",
    "network",
    "node",
    "os",
    "rapi",
    "storage",
)

_TABLES = runpy.run_path("ganeti/base/daemons.py")
DAEMONS = [daemon.name for daemon in _TABLES["DAEMONS"]]
PERIODIC = [*_TABLES["PERIODIC"]]

INSTALL_REQUIRES = [
    "bitarray>=2.9",
    "cryptography>=42",
    "httptools>=0.6",
    "msgspec>=0.18",
    "numpy>=1.24",
    "prometheus-client>=0.20",
    "psutil>=5.9",
    "pyasyncore; python_version >= '3.12'",
    "pycurl>=7.45.3",
    "pyinotify>=0.9.6",
    "pyparsing>=3.1",
    "PyYAML>=6.0",
]

TEST_REQUIRES = [
    "hypothesis>=6.100",
    "import-linter>=2.0",
    "mypy>=1.10",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.6",
    "setuptools>=65,<90",
    "types-psutil",
    "types-PyYAML",
]

# The bound that hbal --plan tells; newer versions write into the output of the program.
PLAN_REQUIRES = ["highspy>=1.11,<1.15"]

# The tools for placement are in "bin", as those of 3.0, and not among the others.
PLACEMENT = ("harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze")

# The book: HTML of the pages below "doc".
DOCS_REQUIRES = ["furo>=2024.8", "myst-parser>=4", "sphinx>=8"]

COMPLETION = "share/bash-completion/completions"


class InstallData(install_data):
    """Installs the files beside the package; the completion under the name of each command."""

    def run(self) -> None:
        """Copy the files."""
        super().run()
        for name in GNT_COMMANDS:
            target = os.path.join(self.install_dir, COMPLETION, f"gnt-{name}")
            self.mkpath(os.path.dirname(target))
            self.outfiles.append(self.copy_file("doc/examples/bash_completion", target)[0])


def files_in(directory: str) -> list[str]:
    """Return the files of a directory."""
    return sorted(path for path in glob(f"{directory}/*") if os.path.isfile(path))


def tree(top: str, target: str) -> list[tuple[str, list[str]]]:
    """Return where each directory below one goes, and its files."""
    found = [(path, files_in(path)) for path, _, _ in os.walk(top)]
    return [(path.replace(top, target, 1), files) for path, files in found if files]


NOT_INSTALLED = {"tools/demo", "tools/make-docs", "tools/launcher"}  # they need a checkout
NOT_INSTALLED |= {f"tools/{name}" for name in PLACEMENT}
EXAMPLES = (
    *("cloud-image", "ganeti.cron", "ganeti.logrotate", "node-diagnose", "oob-helper"),
    "run-install",
)
DATA_FILES = [
    ("share/man/man1", sorted(glob("man/*.1"))),
    ("share/man/man7", sorted(glob("man/*.7"))),
    ("share/man/man8", sorted(glob("man/*.8"))),
    ("lib/systemd/system", files_in("systemd")),
    ("lib/ganeti/tools", sorted({*files_in("tools")} - NOT_INSTALLED)),
    ("lib/ganeti/iallocators", files_in("tools/iallocators")),
    ("share/ganeti", [f"doc/examples/{name}" for name in EXAMPLES]),
    *tree("doc/examples/os", "share/ganeti/os"),
    *tree("doc/examples/monitoring", "share/ganeti/monitoring"),
    *tree("doc/examples/extstorage", "share/ganeti/extstorage"),
]

setup(
    name="ganeti",
    version="3.0.2",
    description="Cluster manager for virtual machines, compatible with Ganeti 3.0",
    license="BSD-2-Clause",
    python_requires=">=3.11",
    packages=find_packages(include=["ganeti", "ganeti.*"]),
    package_data={"ganeti": ["py.typed"], "ganeti.rapid": ["ui/*", "ui/lib/**/*"]},
    data_files=DATA_FILES,
    cmdclass={"install_data": InstallData},
    install_requires=INSTALL_REQUIRES,
    extras_require={
        "test": [*TEST_REQUIRES, *PLAN_REQUIRES],
        "plan": PLAN_REQUIRES,
        "docs": DOCS_REQUIRES,
    },
    entry_points={
        "console_scripts": [f"gnt-{name} = ganeti.cli.programs:main" for name in GNT_COMMANDS]
        + [f"{name} = ganeti.cli.programs:main" for name in PLACEMENT]
        + [f"{name} = ganeti.daemon.main:main" for name in [*DAEMONS, *PERIODIC]]
    },
)
