"""How many requests a daemon has answered and how long that took, as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ganeti.transport.http_message import HttpResponse

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Tally:
    """Requests by their labels, whose values come from tables of the daemon and are few.

    Args:
        name: that of both metrics without the last words, such as ``ganeti_noded_calls``.
    """

    def __init__(self, name: str, what: str, labels: tuple[str, ...]) -> None:
        self._name = name
        self._what = what
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}
        self._seconds: dict[tuple[str, ...], float] = {}

    def add(self, values: tuple[str, ...], seconds: float) -> None:
        """Count one request."""
        assert len(values) == len(self._labels), values
        self._counts[values] = self._counts.get(values, 0) + 1
        self._seconds[values] = self._seconds.get(values, 0.0) + seconds

    def answer(self, gauges: Mapping[str, tuple[str, int]]) -> HttpResponse:
        """Return the page: both metrics, and {name: (help, value)} of others."""
        lines = [
            *self._family("total", f"{self._what}.", self._counts),
            *self._family("seconds_total", f"{self._what}: their time.", self._seconds),
        ]
        for name, (text, value) in gauges.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value}"]
        body = "".join(f"{line}\n" for line in lines).encode()
        return HttpResponse(body=body, content_type=CONTENT_TYPE)

    def _family(
        self, word: str, text: str, values: Mapping[tuple[str, ...], float]
    ) -> Iterator[str]:
        name = f"{self._name}_{word}"
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} counter"
        for labels, value in sorted(values.items()):
            pairs = zip(self._labels, labels, strict=True)
            words = ",".join(f'{key}="{each}"' for key, each in pairs)
            yield f"{name}{{{words}}} {value:.15g}"
