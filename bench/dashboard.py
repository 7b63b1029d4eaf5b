#!/usr/bin/env python3
"""Measures the dashboard in Chromium: how soon a page can be used, and its longest task.

    bench/dashboard.py [--instances 1000 5000]

The lists are made up in the page's memory, as those that RapiD sends; the server's part is measured
by bench/rapi.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test")
)

from cluster.conftest import make_cluster
from fakes.browser import Browser, open_browser
from fakes.dashboard import DESK, many, show
from fakes.rapi import rapi_of
from report import row

NODES = 100
PAGES = {
    "overview": "main .card",
    "instances": "tbody tr:nth-child(30)",
    "nodes": "tbody tr:nth-child(30)",
    "map": "svg a.dot",
    "instance/vm0001.example.com": "main .facts",
}
LONG = (
    "window.tasks = []; new PerformanceObserver((list) => window.tasks.push("
    "...list.getEntries().map((each) => each.duration)))"
    ".observe({type: 'longtask', buffered: true});"
)


def usable_s(page: Browser, css: str) -> float:
    """Return how long after the start of its loading a page shows what it is for."""
    page.wait_for(css)
    shown = page.script("return performance.now()")
    return float(shown) / 1000


def longest_ms(page: Browser) -> float:
    page.script(LONG)
    time.sleep(6)  # one round of questions more
    return float(page.script("return Math.max(0, ...window.tasks)"))


def measure(page: Browser, instances: int) -> None:
    lists = many(NODES, instances)
    for view, css in PAGES.items():
        show(page, lists, view)
        usable = usable_s(page, css)
        longest = longest_ms(page)
        row(
            f"{instances} instances, {view.partition('/')[0]}",
            f"{usable:.2f} s",
            f"{longest:.0f} ms",
        )
    show(page, lists, "instances")
    page.wait_for(PAGES["instances"])
    page.script(LONG)
    begun = time.monotonic()
    page.type("#search", "vm0777")
    page.wait(lambda: page.count("tbody tr") == 1, "one row is found")
    found = time.monotonic() - begun
    longest = float(page.script("return Math.max(0, ...window.tasks)"))
    row(f"{instances} instances, a search", f"{found:.2f} s", f"{longest:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, nargs="+", default=[1000, 5000])
    wanted = parser.parse_args().instances
    with (
        contextlib.contextmanager(make_cluster)(1) as cluster,
        rapi_of(cluster) as rapi,
        open_browser() as page,
    ):
        page.resize(*DESK)
        page.go(f"https://{rapi.address}:{rapi.port}/ui/")
        page.wait_for("main .card")
        for count in wanted:
            measure(page, count)


if __name__ == "__main__":
    main()
