# RUN: np=1 timeout=150 tags=fast
"""The page of a plan in a browser without a window (Debian's package chromium; skipped without it): at
the width of a telephone and of a desk, in light and dark, nothing runs over, nothing is loaded, the
console stays silent, words stand out from what is behind them, and pointer, finger and keys show the
values of the layouts.  With ECH_SHOTS=FOLDER pictures are left there."""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from page import ASKED, NOT_FITTING, expect, failures, plan, policy_hash, read

LEAST_CONTRAST = 4.5  # Web Content Accessibility Guidelines 2.2, 1.4.3

# Runs behind the page's own script and sends what it found to the page around it.
PROBE = """
const all = (q, r) => [...(r || document).querySelectorAll(q)];
const found = {inner: innerWidth, scroll: document.documentElement.scrollWidth};
const in_box = e => e.closest('.wide, .code, svg');
found.over = all('main *').filter(e => {
  const r = e.getBoundingClientRect();
  return r.width > 0 && !in_box(e) && (r.right > innerWidth + 0.5 || r.left < -0.5);
}).map(e => e.tagName + '.' + e.className).slice(0, 5);
const rgb = c => (c.match(/[0-9.]+/g) || []).map(Number);
const light = c => c.slice(0, 3).map(v => v / 255).map(
  v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce(
  (sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c;
  }
  return [255, 255, 255];
};
const has_words = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
for (const d of all('details')) d.open = true;
const words = all('main *').filter(e => has_words(e) && !e.closest('svg') && e.offsetParent);
const contrasts = words.map(e => {
  const a = light(rgb(getComputedStyle(e).color)), b = light(behind(e));
  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + '.' + e.className];
}).sort((a, b) => a[0] - b[0]);
found.contrast = contrasts[0];
found.dark = light(behind(document.body)) < 0.2;
found.small = words.filter(e => parseFloat(getComputedStyle(e).fontSize) < 11).map(
  e => e.className).filter(c => !/^(n|name)$/.test(c)).slice(0, 3);
found.open_scroll = document.documentElement.scrollWidth;
found.loaded = performance.getEntriesByType('resource').map(e => e.name);
found.unpolicied = document.title.includes('not allowed');
const points = all('.pt').reverse();
const said = document.getElementById('said');
const shown = () => said.textContent;
const label = i => points[i].getAttribute('aria-label');
if (points.length) {
  const last = points.length - 1;
  const key = k => document.activeElement.dispatchEvent(
    new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true}));
  found.at_first = shown() === label(0) && label(0).startsWith('The winner: ');
  points[last].dispatchEvent(new PointerEvent('pointerenter', {pointerType: 'mouse'}));
  found.hover = shown() === label(last);
  points[1 % points.length].dispatchEvent(new PointerEvent('pointerenter', {pointerType: 'touch'}));
  points[1 % points.length].dispatchEvent(new MouseEvent('click', {bubbles: true}));
  found.touch = shown() === label(1 % points.length);
  points[0].focus();
  found.focus = shown() === label(0);
  key('ArrowRight');
  found.arrow = document.activeElement === points[1 % points.length] &&
    shown() === label(1 % points.length);
  key('End');
  found.end = document.activeElement === points[last];
  key('ArrowRight');
  found.round = document.activeElement === points[0] && shown() === label(0);
  found.stops = points.filter(p => p.tabIndex === 0).length;
  found.finger = Math.min(...points.map(
    p => p.querySelector('.hit').getBoundingClientRect().width));
}
found.buttons = all('button').every(b => !b.hidden);
parent.postMessage(JSON.stringify(found), '*');
"""

REFUSED = "document.title = 'not allowed';"

# A window has a least width, a frame has none.
FRAME = """<!doctype html><body style="margin:0"><pre id="found"></pre><script>
addEventListener('message', e => { document.getElementById('found').textContent = e.data; });
</script><iframe src="%s" style="border:0;width:%dpx;height:%dpx"></iframe></body>
"""


def browse(browser, path, *options):
    run = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu",
                          "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                          "--enable-logging=stderr", f"--user-data-dir={path}.profile",
                          *options, f"file://{path}"],
                         text=True, capture_output=True, timeout=50)
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    return run.stdout, console


def framed(folder, name, text, width, height=800):
    inside = os.path.join(folder, f"{name}.html")
    outside = os.path.join(folder, f"frame-{name}.html")
    with open(inside, "w", encoding="utf-8") as f:
        f.write(text)
    with open(outside, "w", encoding="utf-8") as f:
        f.write(FRAME % (os.path.basename(inside), width, height))
    return outside


def scheme(dark):
    return ["--blink-settings=preferredColorScheme=0"] if dark else []


def look(browser, folder, name, text, width, dark=False):
    """The page's policy is told of the probe alone: another script behind it must not run."""
    where = f"{name} at {width}{' dark' if dark else ''}"
    probed = text.replace("script-src ", f"script-src '{policy_hash(PROBE)}' ").replace(
        "</body>", f"<script>{REFUSED}</script><script>{PROBE}</script></body>")
    outside = framed(folder, f"{name}-{width}-{dark}", probed, width)
    dom, console = browse(browser, outside, "--window-size=1400,900", "--dump-dom", *scheme(dark))
    refused = [line for line in console if "Content Security Policy" in line]
    expect(f"{where}: console, but for the refused script", (len(refused), len(console)), (1, 1))
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)
    if not match or not match.group(1):
        failures.append(f"{where}: the page has no result: {console}")
        return
    found = json.loads(html.unescape(match.group(1)))
    judge(where, found, width, dark)


def judge(where, found, width, dark):
    expect(f"{where}: width", found["inner"], width)
    expect(f"{where}: nothing runs over", (found["scroll"] <= width, found["over"]), (True, []))
    expect(f"{where}: nor when all is open", found["open_scroll"] <= width, True)
    expect(f"{where}: nothing is loaded", found["loaded"], [])
    expect(f"{where}: no script that the policy does not name", found["unpolicied"], False)
    expect(f"{where}: no words too small to read", found["small"], [])
    expect(f"{where}: is dark", found["dark"], dark)
    expect(f"{where}: buttons are there", found["buttons"], True)
    if found["contrast"][0] < LEAST_CONTRAST:
        failures.append(f"{where}: contrast {found['contrast']}")
    if "hover" in found:
        for key in ("at_first", "hover", "touch", "focus", "arrow", "end", "round"):
            expect(f"{where}: {key} shows the layout", found[key], True)
        expect(f"{where}: one stop of the tab key for all points", found["stops"], 1)
        expect(f"{where}: room for a finger", found["finger"] >= 24, True)


def shoot(browser, folder, name, text, width, dark=False):
    to = os.path.join(os.environ.get("ECH_SHOTS", folder),
                      f"{name}-{width}{'-dark' if dark else ''}.png")
    outside = framed(folder, f"shot-{name}-{width}-{dark}", text, width, 4200)
    _, console = browse(browser, outside, f"--window-size={max(width, 600)},4200",
                        f"--screenshot={to}", *scheme(dark))
    expect(f"{to}: console", console, [])
    with open(to, "rb") as f:
        expect(f"{to}: a picture", f.read(8), b"\x89PNG\r\n\x1a\n")


def main():
    browser = shutil.which("chromium")
    if not browser:
        print("skipped: no chromium (Debian's package of that name)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        text, _ = plan(ASKED, os.path.join(folder, "page.html"))
        expect("points", len(list(read(text)[0].all("g", "pt"))) > 5, True)
        none, _ = plan(NOT_FITTING, os.path.join(folder, "none.html"), want=3)
        look(browser, folder, "page", text, 360)
        look(browser, folder, "page", text, 1280, dark=True)
        look(browser, folder, "none", none, 360, dark=True)
        if "ECH_SHOTS" in os.environ:
            for dark in (False, True):
                for width in (360, 1280):
                    shoot(browser, folder, "plan", text, width, dark)
                    shoot(browser, folder, "none", none, width, dark)
        else:
            shoot(browser, folder, "plan", text, 1280)
    print("\n".join(failures) or "all as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
