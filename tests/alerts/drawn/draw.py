"""The dashboard as pictures, drawn by Grafana's own components (``draw.jsx``) without Grafana.

::

    .venv/bin/pytest -s tests/alerts/story.py tests/alerts/drawn/draw.py     # a lab run that is scraped, then pictures
    .venv/bin/pytest -s tests/alerts/drawn/draw.py                           # pictures of the last one

Needs root, chromium, chromium-driver, prometheus, npm, pngquant, arping, nft, and what `make cluster` builds. All that
it makes is in ``dist/drawn``. pytest runs it only when it is named.
"""

import json
import shutil
import subprocess
import threading
import time
import urllib.parse
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from chromium import chromium
from playing import ROOT
from prometheus import prometheus
from story import HOME, SCRAPES, WHEN

HERE, PUBLIC = Path(__file__).parent, HOME / "public"
WIDTH = 1400
SETTLES = 2.0
"""Seconds, once everything is asked and laid out: charts are drawn when they know their size."""
NPM = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
ESBUILD = (
    *("node_modules/.bin/esbuild", "draw.jsx", "--bundle", "--format=esm", "--splitting", "--outdir=public"),
    *("--jsx=automatic", "--minify", '--define:process.env.NODE_ENV="production"', "--loader:.ttf=empty"),
    "--log-level=error",
)
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="draw.css">
<div id="root"></div><script type="module" src="draw.js"></script>"""
FROM_PACKAGES = {
    "/public/build/img/": "@grafana/ui/dist/public/img/",
    "/public/fonts/inter/Inter-Regular.woff2": "@fontsource/inter/files/inter-latin-400-normal.woff2",
    "/public/fonts/inter/Inter-Medium.woff2": "@fontsource/inter/files/inter-latin-500-normal.woff2",
}


class Files(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        for asked, there in FROM_PACKAGES.items():
            if path.startswith(asked):
                return str(HOME / "node_modules" / (there + path.removeprefix(asked)))
        return super().translate_path(path)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def served():
    """Its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=PUBLIC)) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            serving.join()


def build():
    PUBLIC.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "draw.jsx"):
        shutil.copy(HERE / name, HOME)
    for command in (NPM, ESBUILD):
        subprocess.run(command, cwd=HOME, check=True)
    (PUBLIC / "index.html").write_text(PAGE)
    shutil.copy(ROOT / "manifests" / "dashboard" / "grafana.json", PUBLIC)


def test_every_panel_is_drawn_and_has_something_to_show(tmp_path):
    build()
    begun, ended = json.loads(WHEN.read_text())
    with prometheus(HOME, {}) as asked, served() as page, chromium(tmp_path) as browser:
        given = {"prometheus": asked.url, "from": begun, "to": ended, "scrapes": SCRAPES, "width": WIDTH}
        for theme in ("dark", "light"):
            browser.look(width=WIDTH, height=1000, theme=theme)
            browser.open(f"{page}?{urllib.parse.urlencode({**given, 'theme': theme})}")
            while not (drawn := browser.run("return window.drawn")):
                time.sleep(0.2)
            assert "error" not in drawn, drawn["error"]
            browser.look(width=WIDTH, height=drawn["height"], theme=theme)
            time.sleep(SETTLES)
            (picture := HOME / f"dashboard-{theme}.png").write_bytes(browser.picture())
            subprocess.run(["pngquant", "--force", "--strip", "--speed=1", "--ext=.png", picture], check=True)
            assert browser.console() == []
    print(*drawn["told"], sep="\n")  # noqa: T201
    assert [title for title, numbers in drawn["told"] if not any(numbers)] == []
