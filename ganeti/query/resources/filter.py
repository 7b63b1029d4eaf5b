"""The fields of job filters.

Source: query_fields.json, "filter".
"""

from __future__ import annotations

from typing import Final

from ganeti.objects.model import FilterRule
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.fields import FieldSpec, Resource, field_table

_DOCS: Final = {
    "uuid": ("UUID", "UUID of the filter"),
    "watermark": ("Watermark", "Last job when the filter was made"),
    "priority": ("Priority", "Filters are tried from small to large"),
    "predicates": ("Predicates", "Which jobs the filter is about"),
    "action": ("Action", "What happens to these jobs"),
    "reason_trail": ("ReasonTrail", "Who made the filter and why"),
}


def _field(name: str, title: str, doc: str) -> FieldSpec[FilterRule]:
    return FieldSpec(name, title, FieldKind.OTHER, doc, lambda rule, _context: getattr(rule, name))


RESOURCE: Final[Resource[FilterRule]] = Resource(
    name=QueryResource.FILTER,
    fields=field_table(_field(name, title, doc) for name, (title, doc) in _DOCS.items()),
    items=lambda context: context.filters,
    name_field="uuid",
    sort_key=lambda rule, _context: (rule.priority, rule.watermark, rule.uuid),
)
