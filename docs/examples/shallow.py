from urllib.parse import urlsplit

from scrapy_focus import Drop, Plugin


class ShallowFirst(Plugin):
    def enter(self, candidate, request):
        if "sessionid=" in candidate.url:
            raise Drop("session")
        candidate.score = 1 / (2 + urlsplit(candidate.url).path.count("/"))
