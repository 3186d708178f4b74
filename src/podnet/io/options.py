"""Options in YAML. A file may come from anywhere: what could take all memory or end the process is refused first."""

from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C version, if available, is ten times faster
MOST_BYTES = 10_000_000
LARGEST = 10**30
LONGEST = 10_000  # characters of a number; one of so many in base 60, 1:59:59..., takes no time to read
SPELT = frozenset("0123456789_:.+-")  # of a number
DEEPEST = 10  # levels of lists in lists; many more end the process without an error
OPENING, CLOSING = (yaml.SequenceStartEvent, yaml.MappingStartEvent), (yaml.SequenceEndEvent, yaml.MappingEndEvent)


def read_options(path: Path) -> dict[Any, Any]:
    """The options of a file, one "name: value" per line; ValueError with the reason if it has none or does harm."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    data = path.read_bytes()
    try:
        _require_plain(data)
        loaded = yaml.load(data, Loader=LOADER)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    if not isinstance(loaded, dict):
        raise ValueError("it must contain options, one 'name: value' per line")
    _require_ordinary(loaded)
    return loaded


def _require_ordinary(value: Any) -> None:
    """Refuse numbers so large that Python does not print them."""
    if isinstance(value, dict | list | tuple | set):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _require_ordinary(item)
    elif isinstance(value, int) and abs(value) >= LARGEST:
        raise ValueError("a number is too large")


def _require_plain(data: bytes) -> None:
    """Refuse aliases, by which a few lines can stand for billions of values, and endless nesting."""
    depth = 0
    for event in yaml.parse(data, Loader=LOADER):
        depth += isinstance(event, OPENING) - isinstance(event, CLOSING)
        if depth > DEEPEST:
            raise ValueError(f"it has more than {DEEPEST} levels")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST and SPELT.issuperset(event.value):
            raise ValueError(f"a number has more than {LONGEST:,} characters")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"it has an alias, *{event.anchor}: write the value out")
