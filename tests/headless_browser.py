"""A page as a reader sees it, in headless Chromium where there is one."""

import json
import shutil
import subprocess
from html import unescape

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Run in the page, before anything else.
WATCH = """
<script>
window.seen = [];
window.addEventListener("error", event => window.seen.push(String(event.message)));
window.addEventListener("unhandledrejection", event => window.seen.push(String(event.reason)));
window.addEventListener("load", async () => {
  const room = node => {
    const box = node.getBoundingClientRect();
    return [Math.round(box.width), Math.round(box.height)];
  };
  const report = await %s;
  report.errors = window.seen;
  report.requests = performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !name.startsWith("data:"));
  document.title = JSON.stringify(report);
  parent.postMessage(document.title, "*");
});
</script>
"""
# A window cannot be as narrow as a phone, but a frame in it can.
PHONE = """<!doctype html><html><head><title></title></head><body>
<script>addEventListener("message", event => { document.title = event.data; });</script>
<iframe src="%s" width="390" height="800" style="border:0"></iframe></body></html>
"""


def looked_at(html, look, folder, *, phone=False, dark=False):
    """What JavaScript sees in a page: an object of its own, `errors` and `requests`.

    `look` is an expression, possibly a promise; in it, `room(node)` is the width and height of a node,
    as it is shown. phone: show it as narrow as on a phone; dark: the reader prefers dark pages.
    """
    page = folder / "watched.html"
    page.write_text(watched(html, look), encoding="utf-8")
    if phone:
        frame = folder / "phone.html"
        frame.write_text(PHONE % page.name, encoding="utf-8")
        page = frame
    return opened(page.as_uri(), folder, dark=dark)


def watched(html, look):
    """A page that writes what JavaScript sees in it into its title."""
    return html.replace("<head>", f"<head>{WATCH % look}", 1)


def opened(address, folder, *, dark=False):
    """What the watched page at an address has written into its title."""
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    run = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,900"),
            *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000"),
            *(("--force-dark-mode", "--blink-settings=preferredColorScheme=0") if dark else ()),
            *("--dump-dom", address),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "<title>" not in run.stdout:
        pytest.skip(f"the browser does not run here: {run.stderr[-300:]}")
    title = run.stdout[run.stdout.index("<title>") + 7 : run.stdout.index("</title>")]
    return json.loads(unescape(title))
