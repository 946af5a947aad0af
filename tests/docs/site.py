#!/usr/bin/env python3
"""Checks the built site.

  site.py links SITE          every link and anchor of every page resolves, and no page loads anything from another host
  site.py browser SITE OUT    opens the site in headless Chromium: follows the tutorial from page to page, searches, and
                              writes screenshots at the widths of a phone and a desktop to OUT. A page must not print an
                              error to the console, request another host, or be wider than the screen

Ends with 77 if there is no site or no Chromium.
"""
import base64
import functools
import html.parser
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
PAGES = ("", "install/", "how-to/slurm/", "concepts/pipeline/", "reference/command-line/", "reference/benchmarks/", "dev/architecture/")
PATIENCE = 30  # seconds, for one page


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values.get("id"), values.get("name") if tag == "a" else None}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag in ("img", "script", "source") and values.get("src"):
            self.loads.append(values["src"])
        elif tag == "link" and values.get("href") and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(values["href"])


def broken_links(site):
    pages = {path: Page(path.read_text(encoding="utf-8", errors="replace")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in page.links + page.loads:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{name} loads {link} from another host"
                continue
            target = path
            if parts.path:
                base = site if parts.path.startswith("/") else path.parent
                target = pathlib.Path(os.path.normpath(base / urllib.parse.unquote(parts.path).lstrip("/")))
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{name}: the link {link} leads nowhere"
            elif parts.fragment and target in pages and name.parts[0] != "api":  # Doxygen's own anchors are not all there
                anchors = pages[target].anchors
                if parts.fragment not in anchors and urllib.parse.unquote(parts.fragment) not in anchors:
                    yield f"{name}: the link {link}: no such anchor"


class DevToolsError(Exception):
    """An answer of the browser that is an error."""


class Browser:
    """Headless Chromium with one tab, by the DevTools protocol over a pair of pipes."""

    def __init__(self, program, profile):
        to_browser, self.out = os.pipe()
        self.input, from_browser = os.pipe()
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", "--disable-background-networking", "--disable-component-update",
                   f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *command], pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()

    def receive(self):
        while b"\0" not in self.rest:
            read = os.read(self.input, 1 << 20)
            if not read:
                raise SystemExit(f"Chromium ended with {self.process.wait()}")
            self.rest += read
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise DevToolsError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        """What the page answers: None also where the browser leaves the page before it can answer."""
        try:
            answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        except DevToolsError as error:
            if "navigated" in str(error) or "context was destroyed" in str(error):
                return None
            raise
        if "exceptionDetails" in answer:
            raise SystemExit(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def wait_for(self, expression, what):
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            if time.monotonic() > end:
                return [f"{what}: not within {PATIENCE} s"]
            time.sleep(0.05)
        return []

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        return self.wait_for(f"document.readyState == 'complete' && location.href.startsWith({json.dumps(url)})", f"loading {url}")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def problems(self, home):
        """What the page printed to the console, and what it requested from other hosts."""
        for event in self.events:
            parameters = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                yield "exception: " + parameters["exceptionDetails"]["text"]
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
                yield "console: " + " ".join(str(a.get("value", a.get("description"))) for a in parameters["args"])
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                yield "console: " + parameters["entry"]["text"] + " " + parameters["entry"].get("url", "")
            elif event["method"] == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith((home, "data:", "blob:", "about:")):
                    yield "request to another host: " + url


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def visit(browser, home, out):
    def look(name, label, width):
        found = browser.wait_for("[...document.querySelectorAll('.diagram')].every(d => d.querySelector('svg'))", "diagrams")
        found += browser.problems(home)
        wide = browser.value("document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"the page is {wide} px wide")
        browser.screenshot(out / f"{name}-{label}.png")
        return [f"{name}, {label}: {problem}" for problem in found]

    for label, (width, height) in WIDTHS.items():
        browser.resize(width, height)
        for page in PAGES:
            yield from browser.open(home + page) + look(page.strip("/").replace("/", "-") or "index", label, width)

        # The tutorial: from its first page to its last, by the link at the foot of the page
        yield from browser.open(home + "tutorial/1-your-first-job/")
        for number in range(1, 7):
            title = browser.value("document.querySelector('h1')?.textContent") or ""
            address = browser.value("location.pathname")
            if not address.startswith(f"/tutorial/{number}-"):
                yield f"tutorial, {label}: page {number} has the address {address} and the title {title}"
                break
            yield from look(f"tutorial-{number}", label, width)
            if number < 6:
                browser.events.clear()
                browser.value("document.querySelector('a.md-footer__link--next').click()")
                yield from browser.wait_for(f"document.readyState == 'complete' && location.pathname != {json.dumps(address)}",
                                            f"tutorial, {label}: the page after {address}")

    yield from browser.open(home + "?q=checkpoint")
    yield from browser.wait_for("document.querySelectorAll('.md-search-result__item').length > 2", "search: results for 'checkpoint'")
    yield from look("search", "desktop", WIDTHS["desktop"][0])
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    yield from browser.open(home + "concepts/pipeline/")
    yield from browser.wait_for("document.body.dataset.mdColorScheme == 'slate'", "dark mode: the scheme of the system")
    yield from look("dark", "desktop", WIDTHS["desktop"][0])


def in_browser(site, out):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        print("SKIP: there is no Chromium (Debian: apt-get install chromium)")
        return 77
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.png"):
        old.unlink()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="tutti-chromium-", ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            return list(visit(browser, f"http://127.0.0.1:{server.server_port}/", out))
        finally:
            browser.close()
            server.shutdown()


def main(check, site, out=""):
    site = pathlib.Path(site).resolve()
    if not (site / "index.html").exists():
        print(f"SKIP: there is no site in {site}: scripts/docs builds it")
        return 77
    found = in_browser(site, pathlib.Path(out)) if check == "browser" else list(broken_links(site))
    if found == 77:
        return 77
    print("\n".join(found) or "the site is in order")
    return 1 if found else 0


if __name__ == "__main__":
    if (len(sys.argv), *sys.argv[1:2]) not in ((3, "links"), (4, "browser")):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
