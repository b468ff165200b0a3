"""Commands for Scrapy's command line."""
