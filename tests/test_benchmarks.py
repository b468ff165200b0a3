"""The benchmarks run; what they measure at this size says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES, main


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "result.json"
    status = main([name, "--size", "tiny", "--rounds", "1", "--json", str(result)])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    found = json.loads(result.read_text())
    assert found["machine"]["cpu"]
    (report,) = found["benchmarks"]
    for table in report["tables"]:
        assert table["title"] in printed.out
        assert table["rows"]
    assert report["samples"]


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "scheduler" in capsys.readouterr().err
