"""(f) A whole crawl on loopback: 3,001 pages of ten links, 32 at once.

A spider that follows every link, with each scheduler; the crawl has a process of its own,
and so has the web server. Seconds are those from ``spider_opened`` to ``spider_closed``, CPU
is the process's from the start of its reactor to its end, and for scrapy-redis the server's
besides.
"""

from __future__ import annotations

from functools import partial

from tests.benchmarks.bench import Bench, MeasurementError, Sample, at, middle, ratio
from tests.benchmarks.crawling import crawl
from tests.benchmarks.machine import allow_many_files
from tests.benchmarks.peers import MEMORY, OURS, REDIS, peers_of, settings_of
from tests.benchmarks.redis_server import server_seconds
from tests.benchmarks.server import PAGES, Server
from tests.benchmarks.tables import Check, Report, Table


def run(bench: Bench) -> Report:
    pages = bench.pick(31, 501, PAGES)
    with Server("web", pages=pages) as server:
        cases = {
            name: partial(
                bench.measure,
                "crawl:measure",
                peer=name,
                redis_port=bench.redis.port if bench.redis else None,
                port=server.port,
                pages=pages,
            )
            for name in peers_of(bench)
        }
        samples = bench.alternate(cases)
    table = Table(
        f"A whole crawl, {pages:,} pages of ten links, 32 at once",
        ("scheduler", "seconds", "against memory", "CPU seconds", "against memory", "resident MB"),
    )
    memory = samples[MEMORY]
    for name, found in samples.items():
        row: list[str | float | None] = [name]
        for part in ("seconds", "cpu"):
            row.append(middle(found, at(part)))
            row.append(ratio(found, memory, at(part)))
        table.rows.append([*row, middle(found, lambda s: s["resident"] / 1e6)])
    what = f"whole crawl, {pages:,} pages of ten links, against the memory scheduler"
    checks = [
        Check(what, ratio(samples[OURS], memory, at("seconds")), 1.05),
        Check(f"{what}, CPU", ratio(samples[OURS], memory, at("cpu")), 1.05),
    ]
    return Report("crawl", [table], checks, samples=samples)


def measure(peer: str, redis_port: int | None, port: int, pages: int) -> Sample:
    allow_many_files()
    settings = {
        **settings_of(peer, redis_port),
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
    }
    redis = redis_port if peer == REDIS else None
    used = server_seconds(redis)
    result = crawl(settings, [f"http://127.0.0.1:{port}/0"])
    result["cpu"] += server_seconds(redis) - used
    if result["pages"] != pages or result["errors"]:
        raise MeasurementError(f"{peer} has fetched {result['pages']} of {pages} pages")
    return result
