#!/usr/bin/env python3
"""The page of `dsj plot` in a headless browser: what it draws, what its controls change, what its accessibility tree says.

Usage: page_check.py BIN GTEST_REPORT. Skipped, loudly, where there is no Chromium (DSJ_SETUP_BROWSER=1 scripts/setup.sh)."""
import base64
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, Skip, expect  # noqa: E402

# By the system's Python, for which python3-pil is: {colour: pixels} of a picture, and its size.
COUNT = """
import json, sys
from PIL import Image
image = Image.open(sys.argv[1])
colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
print(json.dumps({"size": image.size, "pixels": {"#%02x%02x%02x" % colour: count for count, colour in colours}}))
"""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = (960, 1600), (360, 800)
STEPS = 200
COLOURS = {"first": "#2563eb", "second": "#dc2626"}  # of the page's first two runs
DARK = "#111827"


def loss(run, step):
    return {"first": 4.0, "second": 3.0}[run] * math.exp(-step / 80) + 0.5 + (0.1 if step % 2 else -0.1)


class Browser:
    """One page, steered by the DevTools protocol over pipes. It has no network, no profile that outlives it, and no sandbox,
    which root cannot have."""

    def __init__(self, folder, page):
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if not found:
            raise Skip(f"none of {', '.join(BROWSERS)} on PATH (DSJ_SETUP_BROWSER=1 scripts/setup.sh)")
        there, self.out = os.pipe()
        self.into, back = os.pipe()
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{there} 4>&{back}', "sh", found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--force-color-profile=srgb", f"--user-data-dir={folder}/profile", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(there, back), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(there)
        os.close(back)
        self.folder, self.number, self.ahead, self.session = folder, 0, b"", None
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.size(*WIDE)
        self.ask("Page.enable")
        self.ask("Page.navigate", url=f"file://{page}")
        while self.run("document.readyState + ' ' + location.href").split(":")[0] != "complete file":
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.ahead:
                more = os.read(self.into, 1 << 16)
                expect(more, "the browser ended")
                self.ahead += more
            text, self.ahead = self.ahead.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.number:
                expect("error" not in answer, f"{method}: {answer.get('error')}")
                return answer["result"]

    def run(self, script):
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        expect("exceptionDetails" not in done, f"{script}: {done}")
        return done["result"].get("value")

    def size(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def pixels(self):
        """{colour: pixels} of what is seen."""
        picture = os.path.join(self.folder, "page.png")
        with open(picture, "wb") as file:
            file.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
        done = subprocess.run(["/usr/bin/python3", "-c", COUNT, picture], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"python3-pil, which comes with the browser, cannot count: {done.stderr[-2000:]}")
        return json.loads(done.stdout)["pixels"]

    def mouse(self, kind, x, y, count=1):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=0 if kind == "mouseReleased" else 1, clickCount=count)

    def set(self, control, value):
        self.run(f"{{const c = document.getElementById('{control}'); typeof {json.dumps(value)} === 'boolean' ? c.checked = {json.dumps(value)}"
                 f" : c.value = {json.dumps(value)}; c.dispatchEvent(new Event('input')); c.dispatchEvent(new Event('change'));}}")

    def ticks(self, axis):
        return self.run(f"[...document.querySelectorAll('figure[data-chart=loss] .tick-{axis}')].map(t => t.textContent)")

    def box(self):
        return self.run("{const b = document.querySelector('figure[data-chart=loss] svg').getBoundingClientRect(); [b.left, b.top, b.width, b.height]}")


def made(bin_folder, folder):
    """The page of two runs."""
    for run in COLOURS:
        os.makedirs(os.path.join(folder, run))
        with open(os.path.join(folder, run, "metrics.jsonl"), "w", encoding="utf-8") as out:
            for step in range(1, STEPS + 1):
                out.write(json.dumps({"step": step, "loss": loss(run, step), "lr": 1e-3, "grad_norm": 1.0}) + "\n")
    page = os.path.join(folder, "plot.html")
    done = subprocess.run([os.path.join(bin_folder, "dsj"), "plot", *(os.path.join(folder, run) for run in COLOURS), "--page", page],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    expect(done.returncode == 0, f"dsj plot ended with {done.returncode}: {done.stdout}")
    return page


def draws_each_run(browser):
    browser.run("document.querySelectorAll('.key').forEach(key => key.remove())")  # the legend has the colours, too
    counts = browser.pixels()
    for run, colour in COLOURS.items():
        print(f"result: the curve of {run}: {counts.get(colour, 0)} pixels", flush=True)
        expect(counts.get(colour, 0) >= 200, f"{run}: {counts.get(colour, 0)} pixels of its colour, expected a curve")
    browser.run("document.querySelector('input[data-run=\"0\"]').click()")
    counts = browser.pixels()
    expect(counts.get(COLOURS["first"], 0) < 50 <= counts.get(COLOURS["second"], 0), f"the first run is hidden: {counts}")


def is_dark_where_the_system_is(browser):
    light = browser.pixels()
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = browser.pixels()
    expect(max(light, key=light.get) == "#ffffff" and max(dark, key=dark.get) == DARK, (max(light, key=light.get), max(dark, key=dark.get)))
    expect(dark.get(COLOURS["first"], 0) >= 200, "the curve is seen")


def ticks_are_round(browser):
    for axis, least in (("y", 3), ("x", 3)):
        ticks = [float(tick) for tick in browser.ticks(axis)]
        print(f"result: ticks of {axis}: {ticks}", flush=True)
        expect(least <= len(ticks) <= 9, ticks)
        steps = {round(b - a, 9) for a, b in zip(ticks, ticks[1:])}
        expect(len(steps) == 1, ticks)
        lead = steps.pop()
        lead /= 10 ** math.floor(math.log10(lead) + 1e-9)
        expect(any(abs(lead - times) < 1e-6 for times in (1, 2, 5)), ticks)
    browser.set("log", True)
    ticks = [float(tick) for tick in browser.ticks("y")]
    low, high = min(loss(run, step) for run in COLOURS for step in range(1, STEPS + 1)), max(loss(run, step) for run in COLOURS for step in range(1, STEPS + 1))
    expect(ticks == [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5) if low <= tick <= high], f"of a logarithmic scale from {low} to {high}: {ticks}")


def says_values_under_the_pointer(browser):
    left, top, width, _ = browser.box()
    browser.mouse("mouseMoved", left + width / 2, top + 40)
    said = browser.run("document.querySelector('figure[data-chart=loss] .value').textContent")
    print(f"result: under the pointer: {said}", flush=True)
    for run in COLOURS:
        found = re.search(run + r": step (\d+), ([0-9.]+)", said)
        expect(found, f"nothing of {run}: {said}")
        step, value = int(found[1]), float(found[2])
        expect(STEPS * 0.4 < step < STEPS * 0.6, f"step {step} is not in the middle of {STEPS}")
        expect(abs(value - loss(run, step)) < 1e-3 * value, f"{run}: {value} at step {step}, expected {loss(run, step)}")


def zooms(browser):
    left, top, width, _ = browser.box()
    browser.mouse("mouseMoved", left + width * 0.3, top + 60)
    browser.mouse("mousePressed", left + width * 0.3, top + 60)
    browser.mouse("mouseMoved", left + width * 0.6, top + 60)
    browser.mouse("mouseReleased", left + width * 0.6, top + 60)
    ticks = [float(tick) for tick in browser.ticks("x")]
    expect(30 < ticks[0] and ticks[-1] < 130 and len(ticks) >= 3, ticks)
    expect(browser.run("decodeURIComponent(location.hash)").startswith('#{"log":false'), "the address keeps what is shown")
    browser.run("document.getElementById('whole').click()")
    expect(float(browser.ticks("x")[-1]) == STEPS, browser.ticks("x"))


def smooths_as_tensorboard(browser):
    browser.set("smoothing", "0.9")
    said = browser.run("point(document.querySelector('figure[data-chart=loss]'), 120); document.querySelector('figure[data-chart=loss] .value').textContent")
    for run in COLOURS:
        mean = weight = 0.0
        for step in range(1, 121):
            mean, weight = 0.9 * mean + 0.1 * loss(run, step), 0.9 * weight + 0.1
        found = re.search(run + r": step 120, ([0-9.]+)", said)
        expect(found and abs(float(found[1]) - mean / weight) < 1e-6, f"{run}: {said}, expected {mean / weight}")
    expect(browser.run("document.querySelectorAll('figure[data-chart=loss] polyline.raw').length") == 2, "the raw values stay, pale")


def fits_a_phone(browser):
    browser.size(*PHONE)
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    widest = browser.run("document.documentElement.scrollWidth")
    expect(widest <= PHONE[0], f"{widest} pixels wide on a screen of {PHONE[0]}")
    size = browser.run("{const t = document.querySelector('.tick-y'); t.getBoundingClientRect().height}")
    expect(size >= 10, f"the labels are {size} pixels high")


def can_be_heard(browser):
    """What a screen reader gets, and the keys."""
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    by_role = {}
    for node in nodes:
        if not node.get("ignored"):
            by_role.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    images = by_role.get("image", by_role.get("img", []))
    expect(any(name.startswith("loss, steps 1 to 200: first ends at ") and "second ends at " in name for name in images), by_role)
    expect({"first, 200 steps", "second, 200 steps", "logarithmic"} <= {name.strip() for name in by_role["checkbox"]}, by_role)
    expect(any("smoothing" in name for name in by_role["slider"]), by_role)
    expect("whole run" in by_role["button"], by_role)
    browser.run("document.querySelector('figure[data-chart=loss] svg').focus()")
    for _ in range(3):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    said = browser.run("document.querySelector('figure[data-chart=loss] .value').textContent")
    expect(re.search(r"first: step 9, ", said), f"one step and two strides of 4 from the left: {said}")


def main():
    bin_folder, path = (os.path.abspath(argument) for argument in sys.argv[1:3])
    report = Report("Page", path)
    for case in (draws_each_run, is_dark_where_the_system_is, ticks_are_round, says_values_under_the_pointer, zooms, smooths_as_tensorboard,
                 fits_a_phone, can_be_heard):
        def looked(case=case):
            with tempfile.TemporaryDirectory(prefix="dsj-page-", ignore_cleanup_errors=True) as folder:
                with Browser(folder, made(bin_folder, folder)) as browser:
                    case(browser)
        report.run(case.__name__, looked)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
