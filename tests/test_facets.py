"""Counts of facets: what is kept of them, and that it stays in bounds."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_focus import notes
from scrapy_focus.decisions.facets import PARTS, Facets, count_in, part_of
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from scrapy_focus.notes import facet_note, keep_facets, load_facets
from tests.frontier.helpers import T0, Paces, abandon

PATHS = st.sampled_from(["", "http://a.example/", "http://a.example/list", "é", "\ud800"])


@given(st.lists(st.tuples(st.sampled_from("xy"), PATHS, st.booleans())), st.integers(1, 5))
def test_runs_share_what_they_have_kept(steps: list[tuple[str, str, bool]], cap: int) -> None:
    """Against a plain count: each knows its own and, of the others', what was kept."""
    runs = {name: Facets(cap) for name in "xy"}
    known: dict[str, Counter[str]] = {name: Counter() for name in "xy"}
    own: dict[str, Counter[str]] = {name: Counter() for name in "xy"}
    kept: dict[int, bytes] = {}
    total: Counter[str] = Counter()
    for name, path, keep in steps:
        over = known[name][path] >= cap
        assert runs[name].refuse(path) is over
        if not over:
            known[name][path] += 1
            own[name][path] += 1
        if keep:
            for part in runs[name].changed:
                kept[part] = runs[name].merged(part, kept.get(part))
                runs[name].load(part, kept[part])
                mine = {path: n for path, n in own[name].items() if part_of(path) == part}
                total.update(mine)
                for counted in mine:
                    del own[name][counted]
                known[name].update(
                    {p: n - known[name][p] for p, n in total.items() if part_of(p) == part}
                )
            assert not runs[name].changed
    for path, number in total.items():
        assert count_in(path, kept[part_of(path)]) == number


def test_what_is_kept_is_bounded() -> None:
    facets = Facets(5)
    for number in range(30_000):
        facets.refuse(f"http://a.example/{number}")
    kept = [facets.merged(part, None) for part in range(PARTS)]
    assert max(map(len, kept)) == 10_000 // PARTS * 12
    for part in range(PARTS):
        assert len(facets.merged(part, b"another's" * 99_999)) == 10_000 // PARTS * 12
    # Those that were met last.
    assert count_in("http://a.example/29999", kept[part_of("http://a.example/29999")]) == 1
    assert count_in("http://a.example/0", kept[part_of("http://a.example/0")]) == 0


@given(st.binary(max_size=40))
def test_any_bytes(kept: bytes) -> None:
    facets = Facets(3)
    for part in range(PARTS):
        facets.load(part, kept)
    facets.refuse("a")
    facets.merged(part_of("a"), kept)


def test_beyond_what_an_entry_can_hold() -> None:
    full = Facets(10**12)
    kept = b""
    for _ in range(2):
        full.refuse("a")
        kept = full.merged(part_of("a"), kept or full.merged(part_of("a"), None)[:8] + b"\xff" * 4)
    assert count_in("a", kept) == 0xFFFFFFFF


def test_in_a_frontier(tmp_path: Path) -> None:
    def opened() -> SQLiteFrontier:
        return SQLiteFrontier(tmp_path / "frontier.db", "job", pace=Paces(), now=T0)

    frontier, facets = opened(), Facets(3)
    load_facets(facets, frontier)
    assert [facets.refuse("a") for _ in range(2)] == [False, False]
    keep_facets(facets, frontier)
    frontier.close("shutdown", finished=False, now=T0)
    frontier, facets = opened(), Facets(3)
    load_facets(facets, frontier)
    assert [facets.refuse("a") for _ in range(2)] == [False, True]
    # After a failure nothing is kept: what this run has counted is lost, and no more.
    with suppress(ZeroDivisionError), frontier.transaction():
        keep_facets(facets, frontier)
        raise ZeroDivisionError
    name = facet_note(part_of("a"))
    assert count_in("a", frontier.noted(name)) == 2
    abandon(frontier)


def test_what_takes_long_is_kept_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_TURN", -1.0)
    frontier = SQLiteFrontier(tmp_path / "frontier.db", "job", pace=Paces(), now=T0)
    facets = Facets(3)
    for number in range(200):
        facets.refuse(str(number))
    left = []
    while facets.changed:
        left.append(len(facets.changed))
        keep_facets(facets, frontier)
    assert left == list(range(PARTS, 0, -1))
    again = Facets(1)
    load_facets(again, frontier)
    assert all(again.refuse(str(number)) for number in range(200))
    abandon(frontier)
