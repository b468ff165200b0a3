"""A crawl frontier for Scrapy, kept in a database."""

from scrapy_focus.addon import Addon
from scrapy_focus.candidate import Candidate
from scrapy_focus.decisions.chain import Plugin, Policy
from scrapy_focus.dupefilter import DupeFilter
from scrapy_focus.exceptions import Drop
from scrapy_focus.scheduler import Scheduler

__version__ = "0.1.0"

__all__ = ["Addon", "Candidate", "Drop", "DupeFilter", "Plugin", "Policy", "Scheduler"]
