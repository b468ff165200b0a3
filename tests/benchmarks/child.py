"""One measurement in a process of its own: ``python -m tests.benchmarks.child TASK RESULT``.

TASK is a JSON file with the function (``module:name``) and its arguments, RESULT the file
that gets what it returns.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib import import_module
from pathlib import Path


def main(task: Path, result: Path) -> None:
    # Peers warn at each call of what Scrapy has deprecated: that is not their cost.
    warnings.simplefilter("ignore")
    call = json.loads(task.read_text(encoding="utf-8"))
    module, _, name = call["function"].partition(":")
    function = getattr(import_module(f"tests.benchmarks.{module}"), name)
    result.write_text(json.dumps(function(**call["arguments"])), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
