from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import scrapy
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor
from scrapy.utils.url import add_http_if_no_scheme

from example.items import Page

if TYPE_CHECKING:
    from collections.abc import Iterator


class SiteSpider(scrapy.Spider):
    """Crawls any site, and yields the address and the title of each page::

        scrapy crawl site -a url=https://www.example.com/ -O pages.jsonl

    The scope is the host of ``url`` with its subdomains. Each ``url`` is a job of its own, with a
    budget of its own: a crawl that you interrupt goes on when you give the same command again,
    and leaves the crawls of other sites alone.
    """

    name = "site"

    # A budget is for the whole job. To go beyond it, run the same command with a larger one:
    # -s FOCUS_MAX_PAGES=2000.
    custom_settings = {
        "FOCUS_MAX_PAGES": 500,
        "FOCUS_MAX_DEPTH": 10,
    }

    # Web pages only: pages link to mail and to files as well.
    links = LinkExtractor(allow=r"^https?:")

    def __init__(self, url: str = "", **kwargs: Any):
        super().__init__(**kwargs)
        url = add_http_if_no_scheme(url)
        host = urlsplit(url).hostname
        if not host:
            raise ValueError(f"Say which site: scrapy crawl {self.name} -a url=https://…")
        self.start_urls = [url]
        # FOCUS_DOMAINS is the spider's allowed_domains unless you set it. Without the "www."
        # the site may redirect from one form of its name to the other.
        self.allowed_domains = [host.removeprefix("www.")]

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        if not isinstance(response, HtmlResponse):
            return
        title = response.css("title::text").get(default="").strip()
        yield Page(response.url, title, response.meta.get("depth", 0))
        # Every link: what is in scope, new and affordable is the frontier's business.
        yield from response.follow_all(self.links.extract_links(response))
