"""What may be fetched, when, and in which order.

The modules of this room take plain values and give plain values. They know neither
Scrapy nor the database, and the time is always an argument: each rule can be tested
without a crawl.
"""
