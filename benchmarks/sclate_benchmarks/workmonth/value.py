"""`value.py FILE KEY JSON`: the JSON file has exactly this value at the dotted key. Exit 0 yes, 1 no, 2 usage.

Shipped into grader sandboxes as `scripts/check_value.py`: standard library only, Python 3.9 or later.
"""

from __future__ import annotations

import json
import sys
from typing import Sequence  # noqa: UP035 - Python 3.9 in sandboxes


def main(argv: Sequence[str]) -> int:
    if len(argv) != 3:
        print("usage: value FILE KEY JSON", file=sys.stderr)
        return 2
    path, key, wanted = argv
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
        for part in key.split("."):
            value = value[part]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        print(f"FAIL: {path}: {key}: {error!r}")
        return 1
    if value != json.loads(wanted):
        print(f"FAIL: {path}: {key} is {value!r}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
