"""Look up things by full or short name without going through all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def name_matches(wanted: str, name: str) -> bool:
    """Tell whether a name is the wanted one or begins with it: node1 for node1.example.com."""
    return name == wanted or name.startswith(f"{wanted}.")


def prefixes(name: str) -> Iterator[str]:
    """Give every short form of a name, and the name itself last."""
    end = name.find(".")
    while end >= 0:
        yield name[:end]
        end = name.find(".", end + 1)
    yield name


class NameIndex:
    """Keys by every full or short name."""

    def __init__(self, names: Iterable[tuple[str, str]] = (), *, short: bool = True) -> None:
        self._short = short
        self._keys: dict[str, list[str]] = {}
        for key, name in names:
            self.add(key, name)

    def _forms(self, name: str) -> Iterable[str]:
        return prefixes(name) if self._short else (name,)

    def add(self, key: str, name: str) -> None:
        """Add a key under its name."""
        for form in self._forms(name):
            self._keys.setdefault(form, []).append(key)

    def remove(self, key: str, name: str) -> None:
        """Take out a key that was added under that name."""
        for form in self._forms(name):
            keys = self._keys[form]
            keys.remove(key)
            if not keys:
                del self._keys[form]

    def matching(self, wanted: str) -> Sequence[str]:
        """Return the keys of all that have this full or short name."""
        return self._keys.get(wanted, ())
