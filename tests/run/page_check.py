#!/usr/bin/env python3
"""The page of `dsj plot` in a headless browser: it draws each run's curve, and its script tells the values under the pointer.

Usage: page_check.py BIN GTEST_REPORT. Skipped, loudly, where there is no Chromium (DSJ_SETUP_BROWSER=1 scripts/setup.sh)."""
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
SIZE = (960, 1600)
STEPS = 200
COLOURS = {"first": "#2563eb", "second": "#dc2626"}  # of the page's first two runs
# The pointer in the middle of the first chart; what the page then says comes back as the title.
POINTER = """<script>
const chart = document.querySelector('svg'), box = chart.getBoundingClientRect();
chart.dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + box.width / 2, clientY: box.top + 20}));
document.title = 'said: ' + chart.nextElementSibling.textContent;
</script>"""


def loss(run, step):
    return {"first": 4.0, "second": 3.0}[run] * math.exp(-step / 80) + 0.5


def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        raise Skip(f"none of {', '.join(BROWSERS)} on PATH (DSJ_SETUP_BROWSER=1 scripts/setup.sh)")
    return found


def look(folder, page, *words):
    """What the browser prints. It has no network, no profile that outlives it, and no sandbox, which root cannot have."""
    done = subprocess.run(
        [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
         f"--user-data-dir={folder}/profile", f"--window-size={SIZE[0]},{SIZE[1]}", *words, f"file://{page}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=600)
    expect(done.returncode == 0, f"the browser ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


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


def draws_each_run(bin_folder, folder):
    page, picture = made(bin_folder, folder), os.path.join(folder, "page.png")
    with open(page, "a", encoding="utf-8") as file:
        file.write("<style>.key{display:none}</style>")  # the legend has the colours, too
    look(folder, page, f"--screenshot={picture}")
    done = subprocess.run(["/usr/bin/python3", "-c", COUNT, picture], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    expect(done.returncode == 0, f"python3-pil, which comes with the browser, cannot count: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    expect(tuple(found["size"]) == SIZE, f"a picture of {found['size']}, expected {SIZE}")
    counts = found["pixels"]
    for run, colour in COLOURS.items():
        print(f"result: the curve of {run}: {counts.get(colour, 0)} pixels", flush=True)
        expect(counts.get(colour, 0) >= 200, f"{run}: {counts.get(colour, 0)} pixels of its colour, expected a curve")


def tells_values_under_the_pointer(bin_folder, folder):
    page = made(bin_folder, folder)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    expect("</body>" in text or "</html>" in text, "the page has an end")
    with open(page, "a", encoding="utf-8") as file:
        file.write(POINTER)
    said = re.search(r"<title>said: (.*?)</title>", look(folder, page, "--dump-dom"))
    expect(said, "the page's script did not run")
    print(f"result: under the pointer: {said[1]}", flush=True)
    for run in COLOURS:
        found = re.search(run + r": step (\d+), ([0-9.]+)", said[1])
        expect(found, f"nothing of {run}: {said[1]}")
        step, value = int(found[1]), float(found[2])
        expect(STEPS * 0.4 < step < STEPS * 0.6, f"step {step} is not in the middle of {STEPS}")
        expect(abs(value - loss(run, step)) < 1e-3 * value, f"{run}: {value} at step {step}, expected {loss(run, step)}")


def main():
    bin_folder, path = (os.path.abspath(argument) for argument in sys.argv[1:3])
    report = Report("Page", path)
    for case in (draws_each_run, tells_values_under_the_pointer):
        with tempfile.TemporaryDirectory(prefix="dsj-page-") as folder:
            report.run(case.__name__, lambda c=case, f=folder: c(bin_folder, f))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
