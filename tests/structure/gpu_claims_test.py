#!/usr/bin/env python3
"""Fails on a page that claims a speed on a GPU before one has run the engine. Usage: gpu_claims_test.py REPOSITORY.

Figures of a GPU that ran are in a page of their own (FIGURES). As long as that page does not exist
- docs/gpu.md says that nothing has run;
- a paragraph that has a figure of speed and names a GPU must say that it is not measured, or be in a page that says so of
  all that it has.
It first checks itself with planted claims.
"""
import glob
import os
import re
import sys
import tempfile

FIGURES = "docs/performance_gpu.md"
SAID = {"docs/gpu.md": "**Nothing here has run on a GPU yet.**"}
OF_THE_PAGE = "Nothing was measured, and no GPU has run this engine yet."
OF_A_PARAGRAPH = re.compile(r"not measured|no GPU has")
GPU = re.compile(r"\b(GPUs?|CUDA|[HA][12]00|L40S|RTX|4090|B200)\b", re.IGNORECASE)
SPEED = re.compile(r"\d[\d,.]* ?(k |M )?(tokens/s|tokens per second|tok/s|samples/s|[TP]FLOPS?(/s)?\b|TFLOP|% MFU|% of (its |the )?peak)"
                   r"|MFU (of|is) \d|\d ?(times|x) (as fast|faster|the speed)", re.IGNORECASE)


def claims(root):
    """What is claimed, and what is not said."""
    problems, pages = [], sorted(glob.glob("docs/**/*.md", root_dir=root, recursive=True) + glob.glob("*.md", root_dir=root))
    if os.path.exists(os.path.join(root, FIGURES)):
        return problems, pages
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            text = file.read()
        flat = " ".join(text.split())
        if SAID.get(page, "") not in flat:
            problems.append(f"{page} does not say \"{SAID[page]}\"")
        if OF_THE_PAGE in flat:
            continue
        for paragraph in re.split(r"\n\s*\n", text):
            words = " ".join(paragraph.split())
            if GPU.search(words) and SPEED.search(words) and not OF_A_PARAGRAPH.search(words):
                problems.append(f"{page}: {words[:160]}: a speed on a GPU, and {FIGURES} is not there")
    return problems, pages


def self_check():
    planted = {
        "docs/gpu.md": "# GPUs\n\nAll is well.\n",
        "docs/bad.md": "On an H100 the 7B model\ntrains at 15,000 tokens/s.\n\n7B reaches 52 % of peak on one GPU.\n\n"
                       "| 0.5B | l40s | 31k tokens/s |\n\nA GPU is 12 times faster.\n",
        "docs/good.md": "Two cores make 900 tokens/s.\n\nA GPU has 16 GB.\n\n7B: 12,000 tokens/s on an H100, not measured.\n",
        "README.md": f"**{OF_THE_PAGE}**\n\n1.5B: 59,910 tokens/s on an h100\n",
    }
    with tempfile.TemporaryDirectory(prefix="dsj-claims-") as root:
        os.mkdir(os.path.join(root, "docs"))
        for path, text in planted.items():
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found, _ = claims(root)
        open(os.path.join(root, FIGURES), "w", encoding="utf-8").close()
        later, _ = claims(root)
    of_pages = sorted(problem.split(":")[0].split(" ")[0] for problem in found)
    if of_pages != ["docs/bad.md"] * 4 + ["docs/gpu.md"] or later:
        print("the check itself is wrong: found", *found, *later, sep="\n  ")
        return False
    return True


def main():
    if not self_check():
        return 1
    problems, pages = claims(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"result: {len(pages)} pages, {len(problems)} claims of a GPU's speed without one")
    return 1 if problems or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
