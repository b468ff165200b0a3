from __future__ import annotations

import mimetypes
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy.http import HtmlResponse, Response

from example.items import SavedPage
from example.spiders.site import SiteSpider

if TYPE_CHECKING:
    from collections.abc import Iterator


class ArchiveSpider(SiteSpider):
    """Keeps a copy of a site, level by level::

        scrapy crawl archive -a url=https://www.example.com/ -a to=copies -o copies.jsonl

    ``to`` is a folder (``archive`` by default); it gets a folder for each host. The items say
    which file holds which URL. When the budget is spent, the pages nearest to the first one have
    been saved, which is what ``breadth`` is for.
    """

    name = "archive"

    # They hold for this spider alone, whatever settings.py says.
    custom_settings = {
        "FOCUS_POLICY": "breadth",
        "FOCUS_MAX_DEPTH": 3,
        "FOCUS_MAX_PAGES": 2_000,
        "FOCUS_MAX_BYTES": 500_000_000,
        "DOWNLOAD_DELAY": 1,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        # One page may not take a tenth of the budget.
        "DOWNLOAD_MAXSIZE": 50_000_000,
    }

    def __init__(self, url: str = "", to: str = "archive", **kwargs: Any):
        super().__init__(url=url, **kwargs)
        self.folder = Path(to)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        name = file_name(response.url, response.headers.get("Content-Type"))
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # A crawl that is killed here has not finished this page: the frontier hands it out
        # again, and the next run writes the file anew.
        file.write_bytes(response.body)

        title = ""
        if isinstance(response, HtmlResponse):
            title = response.css("title::text").get(default="").strip()
            yield from response.follow_all(self.links.extract_links(response))
        depth = response.meta.get("depth", 0)
        yield SavedPage(response.url, title, depth, name.as_posix())


def file_name(url: str, content_type: bytes | None) -> Path:
    """Return where the page at ``url`` is kept, as ``host/path-digest.extension``.

    The path is there for the reader. The digest of the whole URL makes the name unique (``/a`` is
    a page and ``/a/b`` too, a query tells pages apart, and some file systems take ``A`` for
    ``a``), and nothing that a site puts in a URL leads out of the folder.
    """
    parts = urlsplit(url)
    host = re.sub(r"[^\w.-]+", "_", parts.netloc.rpartition("@")[2], flags=re.ASCII)
    path = re.sub(r"[^\w-]+", "_", parts.path, flags=re.ASCII).strip("_")[:80] or "index"
    digest = sha256(url.encode()).hexdigest()[:16]
    mime = (content_type or b"").partition(b";")[0].strip().decode("latin-1").lower()
    return Path(f"_{host}" if host.startswith(".") else host) / (
        f"{path}-{digest}{mimetypes.guess_extension(mime) or '.bin'}"
    )
