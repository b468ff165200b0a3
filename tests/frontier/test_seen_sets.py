"""Every seen set keeps the same contract."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_focus.exceptions import FrontierError, SettingError
from scrapy_focus.frontier import seen
from scrapy_focus.frontier.seen import Lost, SeenSet, Stopped, build_set, look_up, path_of
from scrapy_focus.frontier.seen.filters import FilterSet

from .helpers import T0
from .seen_sets import choice, over


def keys(first: int, last: int) -> list[bytes]:
    return [b"key %d" % number for number in range(first, last)]


class Contract:
    """What holds for each of them."""

    name: str

    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> Iterator[None]:
        self.frontier = tmp_path / "frontier.db"
        self.path = path_of(self.frontier, 7)
        self.opened: list[SeenSet] = []
        yield
        self.close()

    def open(self, **options: object) -> SeenSet:
        found = build_set(choice(self.name, **options), self.path)
        self.opened.append(found)
        return found

    def close(self) -> None:
        for found in self.opened:
            found.stop()
            found.flush()
            found.close()
        self.opened = []

    def again(self) -> SeenSet:
        """What a later run finds."""
        self.close()
        found = self.open()
        found.load()
        return found

    def now_and_later(self, found: SeenSet) -> Iterator[SeenSet]:
        yield found
        yield self.again()

    def store(self, found: SeenSet, number: int, *added: bytes, **fields: object) -> None:
        rows = over(*added, **fields)
        for first in range(0, len(rows), 50):
            found.add(rows[first : first + 50])
        while found.prepare():
            pass
        found.store(number)

    def test_knows_what_was_stored(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 3000))
        self.store(found, 2, *keys(3000, 5000))
        for each in self.now_and_later(found):
            assert all(map(each.has, keys(0, 5000)))
            assert sum(map(each.has, keys(5000, 15_000))) <= 3
            assert (each.round, each.count) == (2, 5000)

    def test_empty(self) -> None:
        found = self.open()
        assert not found.has(b"")
        assert found.find(b"") is None
        with pytest.raises(Lost, match="is missing"):
            found.load()

    def test_every_key_is_a_key(self) -> None:
        """The empty one, one with zeros, one that is the beginning of another, a large one."""
        strange = [b"", b"\0", b"\0\0", b"m", b"d", b"a" * 100_000, b"\1" + bytes(8)]
        found = self.open()
        self.store(found, 1, *strange[::2])
        for each in self.now_and_later(found):
            assert [each.has(key) for key in strange] == [True, False] * 3 + [True]

    def test_copies(self) -> None:
        """A filtered request matches any copy, a copy only itself."""
        found = self.open()
        self.store(found, 1, b"one")
        self.store(found, 2, b"two", copy=2)
        self.store(found, 3, b"three", copy=-(2**63))
        for each in self.now_and_later(found):
            assert [each.has(b"one", copy) for copy in (0, 1, 2)] == [True, False, False]
            assert [each.has(b"two", copy) for copy in (0, 1, 2)] == [True, False, True]
            assert [each.has(b"three", copy) for copy in (0, 1, -(2**63))] == [True, False, True]

    def test_a_row_may_come_twice(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 100))
        self.store(found, 2, *keys(0, 100))
        assert all(map(self.again().has, keys(0, 100)))

    def test_grows_far_beyond_its_capacity(self) -> None:
        found = self.open(error=1e-3, capacity=100)
        self.store(found, 1, *keys(0, 20_000))
        for each in self.now_and_later(found):
            assert all(map(each.has, keys(0, 20_000)))
            # 20 of 20,000 are what the error allows; 50 come once in 10**8 times.
            assert sum(map(each.has, keys(20_000, 40_000))) < 50

    def test_what_is_not_stored_is_not_there_after_a_kill(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 10))
        found.add(over(*keys(10, 20)))
        assert all(map(self.again().has, keys(0, 10)))
        assert self.opened[0].round == 1

    def test_stopped(self) -> None:
        """What is being stored when the run ends leaves the set as it was before."""
        found = self.open()
        self.store(found, 1, *keys(0, 10))
        found.add(over(*keys(10, 20)))
        while found.prepare():
            pass
        found.stop()
        with pytest.raises(Stopped):
            found.store(2)
        later = self.again()
        assert later.round == 1
        assert all(map(later.has, keys(0, 10)))
        assert not list(self.frontier.parent.glob("*-new"))

    def test_is_private(self) -> None:
        before = os.umask(0)
        try:
            self.store(self.open(), 1, b"key")
        finally:
            os.umask(before)
        mode = stat.S_IMODE(self.path.stat().st_mode)
        assert not mode & 0o077

    def test_another_process_reads_it(self) -> None:
        """Nothing depends on Python's own hashes."""
        self.store(self.open(), 1, *keys(0, 200))
        self.close()
        code = (
            "import sys; from pathlib import Path\n"
            "from scrapy_focus.frontier.seen import look_up\n"
            "path, name = Path(sys.argv[1]), sys.argv[2]\n"
            "found = [look_up(path, 7, name, b'key %d' % n) for n in range(400)]\n"
            "print(sum(map(bool, found[:200])), sum(map(bool, found[200:])))"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-c", code, str(self.frontier), self.name]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert out.stdout.split() == ["200", "0"]

    def test_is_looked_at_beside_a_crawl(self) -> None:
        self.store(self.open(), 1, b"key")
        assert look_up(self.frontier, 7, self.name, b"key")
        assert look_up(self.frontier, 7, self.name, b"none") is False
        assert look_up(self.frontier, 8, self.name, b"key") is None
        assert look_up(self.frontier, 7, "later", b"key") is None

    def test_library_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        library = {"bloom": "rbloom", "cuckoo": "scf", "rocksdb": "rocksdict"}[self.name]
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(SettingError, match=rf"pip install scrapy_focus\[{self.name}\]"):
            self.open()

    def test_removed(self) -> None:
        self.store(self.open(), 1, b"key")
        self.close()
        assert seen.find_sets(self.frontier) == [(self.path, 7)]
        seen.remove(self.path)
        seen.remove(self.path)
        assert list(self.frontier.parent.iterdir()) == []


class Forgetting(Contract):
    """For those that can."""

    def test_forgets(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 1000))
        found.remove([*keys(0, 10), b"unknown"])
        for each in self.now_and_later(found):
            assert not any(map(each.has, keys(0, 10)))
            assert all(map(each.has, keys(10, 1000)))

    def test_forgets_what_is_about_to_be_stored(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 10))
        found.add(over(*keys(10, 20)))
        found.remove(keys(10, 12))
        while found.prepare():
            found.remove(keys(12, 14))
        found.store(2)
        later = self.again()
        assert not any(map(later.has, keys(10, 12)))
        assert all(map(later.has, [*keys(0, 10), *keys(14, 20)]))

    def test_forgets_what_came_twice(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 100))
        self.store(found, 2, *keys(0, 100))
        found.remove(keys(0, 100))
        assert not any(map(self.again().has, keys(0, 100)))

    def test_knows_again_what_it_forgot(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 10))
        found.remove(keys(0, 5))
        self.store(found, 2, *keys(0, 5))
        for each in self.now_and_later(found):
            assert all(map(each.has, keys(0, 10)))


class Damaged(Contract):
    """A file that is stored whole."""

    def test_any_byte(self) -> None:
        found = self.open()
        self.store(found, 1, *keys(0, 300))
        whole = self.path.read_bytes()
        rng = random.Random(1)
        for at in (0, 13, 40, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(50))):
            self.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(Lost, match="is damaged"):
                self.open().load()

    def test_torn(self) -> None:
        self.store(self.open(), 1, *keys(0, 300))
        whole = self.path.read_bytes()
        for length in (0, 1, 12, 13, 50, len(whole) // 2, len(whole) - 1):
            self.path.write_bytes(whole[:length])
            with pytest.raises(Lost, match="is damaged"):
                self.open().load()

    def test_keeps_its_size_and_error(self) -> None:
        """Other options are those of another set: it goes on as it was made."""
        self.store(self.open(error=1e-3, capacity=5000), 1, *keys(0, 300))
        later = self.open(error=1e-6, capacity=10)
        later.load()
        assert later.choice == choice(self.name, error=1e-3, capacity=5000)
        assert all(map(later.has, keys(0, 300)))

    def test_of_another_set(self) -> None:
        other = next(n for n in ("bloom", "cuckoo") if n != self.name)
        self.store(self.open(), 1, b"key")
        with pytest.raises(Lost, match=f"is of the set '{self.name}'"):
            build_set(choice(other), self.path).load()

    def test_no_call_is_large(self) -> None:
        """However many keys there are, a call copies one part of 64."""
        found = self.open()
        assert isinstance(found, FilterSet)
        self.store(found, 1, *keys(0, 3000))
        calls = 1
        while found.prepare():
            calls += 1
        assert calls == 64
        assert max(sum(map(len, dump)) for dump in found._dumps) < 1000


class TestBloom(Damaged):
    name = "bloom"


class TestCuckoo(Forgetting, Damaged):
    name = "cuckoo"


class TestRocks(Forgetting):
    name = "rocksdb"

    def test_state_and_time(self) -> None:
        found = self.open()
        self.store(found, 1, b"one", state=2, at=T0 + 5)
        for each in self.now_and_later(found):
            assert each.find(b"one") == (2, T0 + 5)
            assert each.find(b"two") is None

    def test_domains(self) -> None:
        """Its hosts and those below it, and no name that only begins or ends like it."""
        hosts = ["a.example", "www.a.example", "x.www.a.example", "ba.example", "a.example.org"]
        hosts += ["a.examples", "ab.example", "example", "a", ""]
        found = self.open()
        for number, host in enumerate(hosts, 1):
            self.store(found, number, host.encode(), b"\0" + host.encode(), host=host)
        for each in self.now_and_later(found):
            expected = {key for h in hosts[:3] for key in (h.encode(), b"\0" + h.encode())}
            assert set(each.of_domain("a.example", 100)) == expected
            assert len(each.of_domain("a.example", 4)) == 4
            each.remove(each.of_domain("www.a.example", 100))
            assert set(each.of_domain("a.example", 100)) == {b"a.example", b"\0a.example"}
            for number, host in enumerate(hosts[1:3], 20):
                self.store(each, number, host.encode(), b"\0" + host.encode(), host=host)

    def test_damaged(self) -> None:
        """Whatever is damaged, the set is lost, or what cannot be read is told: it never says that
        it does not know what it knew."""
        found = self.open()
        self.store(found, 1, *keys(0, 2000))
        found._db.flush()  # type: ignore[attr-defined]
        self.store(found, 2, *keys(2000, 2100))
        self.close()
        whole = Path(shutil.copytree(self.path, self.frontier.with_name("whole")))
        for path in sorted(whole.iterdir()):
            if path.suffix not in (".sst", ".log") and not path.name.startswith("MANIFEST"):
                continue
            content = path.read_bytes()
            if not content:
                continue
            for damaged in (b"", content[: len(content) // 2], _flipped(content)):
                shutil.rmtree(self.path)
                shutil.copytree(whole, self.path)
                (self.path / path.name).write_bytes(damaged)
                self._is_told()

    def _is_told(self) -> None:
        later = self.open()
        try:
            later.load()
            told = later.round < 2
            told = told or all(map(later.has, keys(0, 2100)))
        except (Lost, FrontierError):
            told = True
        later.close()
        assert told


def _flipped(whole: bytes) -> bytes:
    at = len(whole) // 3
    return whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
