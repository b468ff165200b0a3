"""What makes URLs the same for a job, and how a crawl would take them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.misc import build_from_crawler

from scrapy_focus.commands.text import masked, shown
from scrapy_focus.components import load
from scrapy_focus.dupefilter import DupeFilter
from scrapy_focus.settings import read_settings

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_focus.decisions.canonical import Forms
    from scrapy_focus.settings import FocusSettings


class Anyone(Spider):
    """A spider without settings, for a command that names none."""

    name = "anyone"


def crawler_of(settings: Settings, spider: str | None) -> Crawler:
    """A crawler that is not started, with the settings that the spider has.

    :raises scrapy.exceptions.UsageError: if there is no such spider
    """
    if spider is None:
        return Crawler(Anyone, settings)
    try:
        return Crawler(get_spider_loader(settings).load(spider), settings)
    except KeyError:
        raise UsageError(f"there is no spider {shown(spider)!r}", print_help=False) from None


def settings_of(crawler: Crawler) -> FocusSettings:
    """What a crawl would go by; ``allowed_domains`` is the one of the class.

    :raises scrapy_focus.exceptions.SettingError: on a setting that cannot be used
    """
    spider: Any = crawler.spidercls
    return read_settings(crawler.settings, spider, {})


def identity_of(crawler: Crawler, forms: Forms) -> DupeFilter:
    """What a crawl asks for the key of a request.

    :raises scrapy_focus.exceptions.SettingError: on a fingerprinter that cannot be used
    """
    name = "REQUEST_FINGERPRINTER_CLASS"
    fingerprinter = build_from_crawler(load(name, crawler.settings[name]), crawler)
    identity = DupeFilter(fingerprinter)
    identity.forms = forms
    return identity


def request_of(url: str) -> Request:
    """The request that a spider would make of a URL.

    :raises scrapy.exceptions.UsageError: if it can make none
    """
    try:
        return Request(url)
    except ValueError as error:
        raise UsageError(shown(str(error)), print_help=False) from error


def keys(identity: DupeFilter, urls: Iterable[str], *, as_json: bool) -> Iterator[str]:
    """The lines of ``scrapy frontier key``."""
    requests = [request_of(url) for url in urls]
    for number, request in enumerate(requests):
        form = identity.forms.of(request.url)
        steps = [(rule.name, url) for rule, url in form.steps(request.url)]
        key = identity.fingerprint(request).hex()
        if as_json:
            changes = [{"rule": name, "url": masked(url)} for name, url in steps]
            document = {"url": masked(request.url), "key": key, "rules": changes}
            yield json.dumps(document)
            continue
        if number:
            yield ""
        yield shown(request.url)
        width = max((len(name) for name in form.names), default=0)
        for name, url in steps:
            yield f"  {name:<{width}}  {shown(url)}"
        yield f"  {'key':<{width}}  {key}"
