# The spiders of this project; `scrapy list` names them.
