from scrapy_focus import Policy


class Alphabet(Policy):
    ties = "age"

    def rank(self, candidate):
        return ord(candidate.host[:1] or "~")
