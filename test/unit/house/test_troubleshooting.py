"""The messages of doc/troubleshooting.md are those of the program."""

from __future__ import annotations

import re

from fakes import pages

PAGE = (pages.CHECKOUT / "doc/troubleshooting.md").read_text("utf-8")
# Messages that are one word each, or a status: looked for by the same way.
_SPAN = re.compile(r"`([^`]+)`")


def messages() -> list[str]:
    """Return the spans of the first cells, which are texts of the program."""
    cells = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| ")]
    return [span for cell in cells for span in _SPAN.findall(cell)]


def test_every_message_is_one_of_the_program() -> None:
    sources = [
        path.read_text("utf-8") for path in sorted((pages.CHECKOUT / "ganeti").rglob("*.py"))
    ]
    # Texts that go on in the next line are one text.
    whole = "\n".join(re.sub(r'"\s*\n\s*f?"', "", source) for source in sources)
    whole = re.sub(r"\{[^{}]*\}", "...", whole)
    wanted = [part.strip() for text in messages() for part in text.split("...") if part.strip()]
    assert len(wanted) > 20
    assert [part for part in wanted if part not in whole] == []
