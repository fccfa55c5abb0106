"""The fixtures of all browser tests: one browser and one server for the whole session, whichever files ask for them."""

from browser.browsing import address, browser, folder, known, page  # noqa: F401 - pytest finds them here
