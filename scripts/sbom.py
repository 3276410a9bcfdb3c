#!/usr/bin/env python3
"""Writes the SBOM of an image as an SPDX 2.3 document: every file with its checksums, and the package it comes from.

Usage: sbom.py TARGET ROOT SOURCES >DOCUMENT. ROOT: the image's files. SOURCES: lines "path in ROOT<TAB>source file"; files
that are not listed were created by image.sh. A copied file belongs to the Debian package that owns its source, or to the
wheel of setup.sh that contains a library of its name, or is ours. Exit 1 if a file has an unknown origin.
The same ROOT gives the same document: its date is that of the files, its name contains their checksum.
"""
import functools
import hashlib
import json
import os
import re
import subprocess
import sys

OURS = "DeepSpeedJob"
HERE = os.path.dirname(os.path.abspath(__file__))


@functools.cache
def our_version():
    with open(os.path.join(HERE, "../CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(DeepSpeedJob VERSION ([0-9.]+)", file.read())[1]


@functools.cache
def debian(path):
    """(name, version, purl) of the package that owns a file, or None."""
    # dpkg lists a library with the path from before /lib became a link to /usr/lib.
    for spelling in (path, path.removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "--search", spelling], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            package = done.stdout.split(": ")[0].split(",")[0]
            shown = subprocess.run(["dpkg-query", "--show", "-f", "${Package} ${Version} ${Architecture}", package],
                                   capture_output=True, text=True, check=True).stdout
            name, version, architecture = shown.split()
            return name, version, f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
    return None


# Wheels whose libraries do not begin with the wheel's NAME (nvidia-NAME, nvidia-NAME-cu13).
LIBRARIES = {"torch": ("torch", "c10", "gomp"), "nvidia-cuda-runtime": ("cudart",), "nvidia-cuda-cupti": ("cupti",),
             "nvidia-cuda-nvrtc": ("nvrtc",), "pyarrow": ("arrow", "parquet")}


@functools.cache
def wheels():
    """{prefix of a library's name: (name, version)}, for the wheels of setup.sh, the longest prefix first."""
    with open(os.path.join(HERE, "setup.sh"), encoding="utf-8") as file:
        text = file.read()
    torch = re.search(r"^torch_version=(\S+)", text, re.MULTILINE)[1]
    rows = {}
    for name, version in re.findall(r'^  "(\S+) (\S+) [0-9a-f]{64}"$', text, re.MULTILINE):
        for library in LIBRARIES.get(name, (re.sub("^nvidia-|-cu[0-9]+$", "", name),)):
            rows["lib" + library] = name, version.replace("$torch_version", torch)
    return dict(sorted(rows.items(), key=lambda row: -len(row[0])))


def wheel(library):
    """(name, version, purl) of the wheel that contains a library, or None."""
    for begin, (name, version) in wheels().items():
        if library.lower().startswith(begin):
            return name, version, f"pkg:pypi/{name}@{version}"
    return None


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield path


def checksums(path):
    sums = []
    for kind in ("sha1", "sha256"):
        with open(path, "rb") as file:
            sums.append({"algorithm": kind.upper(), "checksumValue": hashlib.file_digest(file, kind).hexdigest()})
    return sums


def package_of(name, version, purl=None):
    package = {"name": name, "SPDXID": "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "versionInfo": version,
               "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
               "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION"}
    if purl:
        package["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return package


def document(target, root, sources):
    """Returns the document as a dictionary, and the paths of unknown origin."""
    ours = package_of(f"{OURS}-{target}", our_version())
    packages, files, contains, unknown = {ours["SPDXID"]: ours}, [], [], []
    for number, path in enumerate(files_of(root)):
        place = os.path.relpath(path, root)
        source = sources.get(place)
        package = ours
        if source and not place.startswith("opt/dsj/"):
            origin = debian(source) or wheel(os.path.basename(source))
            if not origin:
                unknown.append(f"{place} (from {source})")
                continue
            package = package_of(*origin)
        packages.setdefault(package["SPDXID"], package)
        file = {"fileName": "./" + place, "SPDXID": f"SPDXRef-File-{number}", "checksums": checksums(path),
                "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"}
        files.append(file)
        contains.append((package["SPDXID"], "CONTAINS", file["SPDXID"]))
    described = [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])]
    described += [(ours["SPDXID"], "DEPENDS_ON", other) for other in packages if other != ours["SPDXID"]]
    total = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{OURS}-{target}",
        "documentNamespace": f"https://training.dsj.dev/spdx/{target}-{our_version()}-{total}",
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": [f"Tool: {OURS}-sbom.py"]},
        "packages": list(packages.values()), "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                          for a, kind, b in described + contains],
    }, unknown


def main():
    if len(sys.argv) != 4:
        print("\n".join(__doc__.splitlines()[2:3]), file=sys.stderr)
        return 2
    target, root, record = sys.argv[1:]
    with open(record, encoding="utf-8") as lines:
        sources = dict(line.rstrip("\n").split("\t") for line in lines)
    made, unknown = document(target, root, sources)
    for place in unknown:
        print(f"sbom: {place}: no Debian package and no wheel has it", file=sys.stderr)
    json.dump(made, sys.stdout, indent=1)
    print()
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
