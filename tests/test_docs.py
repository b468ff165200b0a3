"""The documentation has every setting, stat, meta key, command and close reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_focus.settings import DEFAULTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def _strings() -> Iterator[str]:
    """Every string constant of the package; the holes of f-strings are ``<…>``."""
    for path in (ROOT / "scrapy_focus").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        inside = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "<>"
                    for part in node.values
                )
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in documentation | inside
            ):
                yield node.value


def _documented(kind: str, page: str) -> set[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return set(re.findall(rf"^\.\. {kind}:: (\S+)$", text, re.MULTILINE))


def _used(pattern: str) -> set[str]:
    return {text for text in _strings() if re.fullmatch(pattern, text)}


def test_every_setting_is_documented_with_its_default() -> None:
    text = (DOCS / "settings.rst").read_text(encoding="utf-8")
    assert _documented("setting", "settings.rst") == set(DEFAULTS)
    for name, default in DEFAULTS.items():
        section = text.split(f".. setting:: {name}\n", 1)[1].split(".. setting::", 1)[0]
        shown = f'"{default}"' if isinstance(default, str) else str(default)
        assert re.search(rf"^Default: ``{re.escape(shown)}``", section, re.MULTILINE), name


def test_no_setting_is_read_that_is_not_known() -> None:
    assert _used(r"FOCUS_[A-Z_]+") <= set(DEFAULTS)


def test_every_stat_is_documented() -> None:
    used = _used(r"(focus|scheduler|dupefilter)/[a-z_/<>]+")
    assert used
    documented = {re.sub(r"<\w+>", "<>", name) for name in _documented("stat", "stats.rst")}
    # "focus/<>" stands for names that are made of names of counts.
    missing = {name for name in used - {"focus/<>"} if name not in documented}
    missing -= {name for name in missing if re.sub(r"[a-z_]+$", "<>", name) in documented}
    assert not missing


def test_every_meta_key_is_documented() -> None:
    used = _used(r"focus_(score|not_before|key|[a-z]+)") - _reasons()
    assert used <= _documented("reqmeta", "meta.rst")
    assert used


def _reasons() -> set[str]:
    text = (DOCS / "reasons.rst").read_text(encoding="utf-8")
    return set(re.findall(r"^   \* - ``(focus_\w+)``$", text, re.MULTILINE))


@pytest.mark.parametrize("reason", sorted(_used(r"focus_(max|out|held|un|frontier)\w*")))
def test_every_close_reason_is_documented(reason: str) -> None:
    assert reason in _reasons()


def test_the_command_is_documented() -> None:
    text = (DOCS / "command.rst").read_text(encoding="utf-8")
    source = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "scrapy_focus/commands").glob("*.py")
    )
    options = set(re.findall(r"[\"'](--[a-z][a-z-]+)[\"']", source))
    assert {"--job", "--state", "--json"} <= options
    assert not {option for option in options if option not in text}
    for verb in ("stats", "urls"):
        assert f"scrapy frontier {verb}" in text
