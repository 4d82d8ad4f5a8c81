"""The page in a browser, as the product tests it."""

from tests.server.page.conftest import address, browser, corpus, ids, open_tab, page, serving, videos

__all__ = ["address", "browser", "corpus", "ids", "open_tab", "page", "serving", "videos"]
