#!/usr/bin/env python3
"""Fails on references to files, headings and sections that do not exist. Usage: references_test.py REPOSITORY.

It checks
- relative links in pages: the file must exist, and so must the heading behind a #;
- paths in every text file that begin with a folder of the repository and end with a file extension or a slash
  (docs/plan.md, tests/run/): they must exist. NAME, X, *, {a,b} and {name} in them are placeholders;
- modules in a page's `code` (`engine/zero/flat/flat`): a folder, or a file without its extension, must exist;
- file names without such a folder in comments (flat.h, ../README.md): the path of some file must end like this;
- section numbers after the name of a page ("models.md 3.2"): the page must have a heading with this number.
It first checks itself with planted references.
"""
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

# Names of files that are not in the repository, and why they may be named.
ELSEWHERE = {
    "finetune.py": "an example: the script of a torchrun line",
    "finetune.sh": "an example: a script with a torchrun line",
    "train.py": "an example: the script of a torchrun line",
    "script.py": "stands for any script",
    "deepspeed_strategy.py": "a file of ROLL",
    "dpo.py": "a script of TRL, as are the next four",
    "kto.py": "", "orpo.py": "", "reward.py": "", "grpo.py": "",
    "run_dpo.py": "a script of the alignment handbook",
    "swift/cli/sft.py": "a script of ms-swift",
    "pissa_init.py": "a script of LLaMA-Factory",
    "swift/cli/*.py": "its scripts",
    "golden/README.md": "in DSJ_SHARED_DIR",
    "validatepod.volcano.sh": "a webhook of Volcano",
    "queues.scheduling.volcano.sh": "a resource of Volcano",
}
TEXT = (".h", ".cc", ".c", ".py", ".sh", ".cmake", ".md", ".yaml", ".txt")
NAMED = (".h", ".cc", ".c", ".py", ".sh", ".cmake", ".md", ".yaml", ".yml", ".json", ".txt", ".tpl", "/")  # ends of paths
BARE = (".h", ".cc", ".py", ".sh", ".cmake", ".md")  # ends of names without a folder
PATH = re.compile(r"(?<![\w./$}{*<>~@-])((?:\.\.?/)*[\w*{}.,-]+(?:/[\w*{}.,-]+)*/?)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s[^)]*)?\)")
SECTION = re.compile(r"([\w./-]+\.md),? (?:section )?(\d+(?:\.\d+)*)\b(?!\s*(?:%|files|pages))")
URL = re.compile(r"\w+://\S+")
INCLUDE = re.compile(r'^\s*#\s*include\b.*$', re.MULTILINE)
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(?:NAME|VERB|FILE|KIND|[A-Z])(?![A-Za-z])|\{\w*\}")
SPAN = re.compile(r"`([^`\s]+)`")


def files_of(root):
    """Paths, relative to the root, of files that git tracks or does not ignore; of all files if git does not answer."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        found = done.stdout.decode().split("\0")
        return sorted({path for path in found if path and os.path.isfile(os.path.join(root, path))})
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "build", "out"))]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def alternatives(path):
    """{a,b} spelled out; other placeholders as *."""
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", path)
    if braces:
        for choice in braces[1].split(","):
            yield from alternatives(path[:braces.start()] + choice + path[braces.end():])
    else:
        yield PLACEHOLDER.sub("*", path)


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    seen, out = {}, set()
    for heading in re.findall(r"^#{1,6} (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        out.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
    return out


def comments(path, text):
    """The text for people: the whole of a page, comments and docstrings of code."""
    if path.endswith(".md"):
        return text
    if path.endswith((".h", ".cc", ".c")):
        return "\n".join(re.findall(r"//.*$", text, re.MULTILINE))
    found = re.findall(r"(?:^|\s)#.*$", text, re.MULTILINE)
    if path.endswith(".py"):
        found += re.findall(r'^\s*"""(.*?)"""', text, re.DOTALL | re.MULTILINE)
    return "\n".join(found)


class References:
    def __init__(self, root):
        self.root, self.files = root, files_of(root)
        self.folders = {folder for path in self.files for folder in parents(path)}
        self.tops = {folder for folder in self.folders if "/" not in folder}
        self.text, self.problems, self.seen = {}, [], 0
        for path in self.files:
            if path.endswith(TEXT) or os.path.basename(path) in ("Makefile", "Dockerfile"):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    self.text[path] = file.read()

    def known(self, path):
        """Whether a path from the root is a file or a folder of the repository."""
        for one in alternatives(path):
            one = os.path.normpath(one)
            if one not in self.folders and one not in self.text and not fnmatch.filter(self.files, one):
                return False
        return True

    def known_end(self, name):
        """Whether some file's path ends like this."""
        return all(fnmatch.filter(self.files, one) or fnmatch.filter(self.files, "*/" + one) for one in alternatives(name))

    def links(self, page, text):
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
        for target in LINK.findall(prose):
            if re.match(r"\w+:", target):
                continue
            self.seen += 1
            file, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
            if path not in self.files and path not in self.folders:
                self.problems.append(f"{page}: links to {target}: there is no {path}")
            elif anchor and anchor not in anchors(self.text.get(path, "")):
                self.problems.append(f"{page}: links to {target}: {path} has no heading #{anchor}")

    def paths(self, page, text):
        for token in PATH.findall(URL.sub("", INCLUDE.sub("", text))):
            token = token.rstrip(".,")
            if token.split("/")[0] not in self.tops or "/" not in token[:-1] or not token.endswith(NAMED):
                continue
            self.seen += 1
            if not self.known(token) and not self.known(os.path.join(os.path.dirname(page), token)):
                self.problems.append(f"{page}: names {token}, which is not there")

    def modules(self, page, text):
        for token in SPAN.findall(text):
            if token.split("/")[0] in self.tops and re.fullmatch(r"\w+(?:/\w+)+", token):
                self.seen += 1
                if not self.known(token) and not fnmatch.filter(self.files, token + ".*"):
                    self.problems.append(f"{page}: names {token}, and there is no such folder or module")

    def names(self, page, text):
        for token in PATH.findall(URL.sub("", comments(page, text))):
            token = token.rstrip(".,")
            relative = token.startswith(("./", "../"))
            if not token.endswith(BARE) or token in ELSEWHERE or token.startswith("../shared/"):
                continue
            if "/" in token and token.split("/")[0] in self.tops or token.startswith(".") and not relative:
                continue
            self.seen += 1
            if not (self.known(os.path.join(os.path.dirname(page), token)) if relative else self.known_end(token)):
                self.problems.append(f"{page}: names {token}, and no file ends like this")

    def sections(self, page, text):
        for name, number in SECTION.findall(text):
            pages = [path for path in self.files if path == name or path.endswith("/" + name)]
            self.seen += 1
            if not any(re.search(rf"^#+ {re.escape(number)}[. ]", self.text[path], re.MULTILINE) for path in pages):
                self.problems.append(f"{page}: names section {number} of {name}, which is not there")

    def check(self):
        for page, text in self.text.items():
            if page == "tests/structure/references_test.py":  # with planted pages
                continue
            if page.endswith(".md"):
                self.links(page, text)
                text = LINK.sub("", text)
                self.modules(page, text)
            self.paths(page, text)
            self.names(page, text)
            self.sections(page, text)
        return self


def parents(path):
    while path := os.path.dirname(path):
        yield path


def self_check():
    """Finds every planted dangling reference, and reports no good one."""
    planted = {
        "docs/good.md": "# Good\n\n## A heading, twice\n\n[here](#a-heading-twice) [there](other.md#one) "
                        "docs/other.md tests/run/ `tests/run/good`\n",
        "docs/other.md": "# One\n\n`docs/{good,other}.md` docs/NAME.md https://example.org/docs/none.md [x](https://example.org/y.md)\n",
        "docs/bad.md": "[a](none.md) [b](other.md#two) docs/none_too.md tests/gone/ other.md 3.2 `tests/run/lost`\n",
        "tests/run/good.cc": "// good.h, docs/good.md, run/good.h.\n#include \"docs/none.h\"\nint x;  // ../../docs/bad.md\n",
        "tests/run/good.h": "// See good.cc, and keys_*.md.\n",
        "docs/keys_one.md": "",
        "tests/run/bad.cc": "// See gone.h and docs/gone.md, run/lost.cc.\nconst char* path = \"tests/run/gone.json\";\n",
    }
    wanted = {("docs/bad.md", word) for word in ("none.md", "#two", "docs/none_too.md", "tests/gone/", "3.2", "tests/run/lost")}
    wanted |= {("tests/run/bad.cc", word) for word in ("gone.h", "docs/gone.md", "lost.cc", "tests/run/gone.json")}
    with tempfile.TemporaryDirectory(prefix="dsj-references-") as root:
        for path, text in planted.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = References(root).check().problems
    missed = [one for one in wanted if not any(text.startswith(one[0] + ":") and one[1] in text for text in found)]
    if missed or len(found) != len(wanted):
        print("the check itself is wrong: missed", missed, "found", *found, sep="\n  ")
        return False
    return True


def main():
    if not self_check():
        return 1
    references = References(sys.argv[1]).check()
    for problem in references.problems:
        print(problem)
    print(f"{references.seen} references, {len(references.problems)} dangling")
    return 1 if references.problems or references.seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
