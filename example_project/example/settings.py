"""Settings of the example project.

``scrapy startproject`` made this file, and one line turns scrapy_focus on. Everything else below
is either Scrapy's own, with its usual meaning, or a boundary that you would choose for your
project anyway. What differs from spider to spider stands in the spider's ``custom_settings``.
"""

BOT_NAME = "example"
SPIDER_MODULES = ["example.spiders"]
NEWSPIDER_MODULE = "example.spiders"

# The one line. From here on every spider of the project keeps its URLs in one frontier,
# .scrapy/frontier.db beside scrapy.cfg: what was interrupted goes on when the same command is
# run again, and two spiders on one site share that site's pace.
ADDONS = {
    "scrapy_focus.Addon": 300,
}

# Who you are, and whom to write to: replace it by an address of yours.
USER_AGENT = "example (+https://www.example.com/crawler)"

# A site's Crawl-delay is honoured too, which Scrapy alone does not do.
ROBOTSTXT_OBEY = True

# The pace for each host: at most this many requests at once, and this many seconds from one to
# the next (times 0.5 to 1.5, as Scrapy does). The frontier remembers when a host may be asked
# again, also across runs.
CONCURRENT_REQUESTS_PER_DOMAIN = 2
DOWNLOAD_DELAY = 0.5

# The order in which waiting URLs are taken: "priority" is the default, the others are "breadth",
# "depth" and "random".
FOCUS_POLICY = "priority"

# A budget for spiders that set none of their own. It holds for a job as a whole, however often
# it is interrupted; when it is spent the crawl closes and the rest of the URLs stay where they
# are, so that a larger budget goes on from there. 0 means no limit.
FOCUS_MAX_PAGES = 1_000

# Nowhere, in no spider. A pattern looks at `host/path`, without scheme and port.
FOCUS_EXCLUDED = [
    "*/login*",
    "*/logout*",
]

# INFO shows what the frontier says when it opens and closes, and no line for each page.
LOG_LEVEL = "INFO"

FEED_EXPORT_ENCODING = "utf-8"
