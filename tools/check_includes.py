#!/usr/bin/env python3
"""Includes follow the house rules.

* An include in src/X points to X itself or to a folder further down the list in tree.py.
* Headers of third-party libraries stand in .cc files only, each library in the folders that own it.
* Own headers are included by their path from src/, and every header starts with #pragma once.
"""

import re
import sys

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# Small enough for headers (style of Result and messages).
HEADER_ALLOWED = {"fmt/core.h", "tl/expected.hpp"}
# Library -> folders of src/ whose .cc files may include it.
LIBRARIES = {
    "CLI/": ["cli"],
    "boost/asio": ["gateway"],
    "boost/beast": ["gateway"],
    "boost/system": ["gateway"],
    "boost/json": ["base"],
    "simdjson": ["base", "model"],
    "toml++": ["base"],
    "spdlog": ["base"],
    "prometheus": ["base"],
    "pcre2": ["recipe"],
    "utf8proc": ["recipe"],
    "png.h": ["recipe"],
    "turbojpeg.h": ["recipe"],
    "gif_lib.h": ["recipe"],
    "webp/": ["recipe"],
    "openssl": ["base", "pool", "gateway"],
    "liburing": ["pool"],
    "isa-l": ["pool"],
    "xxhash": ["pool"],
    "zstd.h": ["sim"],
    "rados/": ["pool"],
    "fmt/": tree.FOLDERS,
    "tl/": ["base"],
}
TEST_LIBRARIES = ("gtest/", "gmock/", "rapidcheck")
BANNED = {
    "regex": "slow to compile and to run; see recipe/ for PCRE2",
    "format": "not in g++ 12; use fmt",
    "expected": "not in g++ 12; use base/result.h",
    "source_location": "not in clang 14",
    "iostream": "use fmt, or base/log.h",
}


def is_test(path):
    name = path.rsplit("/", 1)[-1]
    return (path.startswith(("tests/", "bench/", "fuzz/", "examples/")) or "/testing/" in path or
            name.endswith("_test.cc") or name.startswith("test_"))


def check_own(path, target):
    """An include in quotes."""
    if target == "support.h" and path.startswith("tests/"):
        return None
    if target.endswith("tests/support.h") and is_test(path):
        return None
    if path.startswith("src/"):
        mine = path.split("/")[1]
        folder = target.split("/")[0]
        if "/" not in target or folder not in tree.FOLDERS:
            return f'"{target}" is not a path from src/'
        if tree.FOLDERS.index(folder) < tree.FOLDERS.index(mine):
            return f'"{target}" points up: {mine} may not depend on {folder}'
    elif ".." in target.split("/"):
        return f'"{target}" is a relative path'
    return None


def check_foreign(path, target):
    """An include in angle brackets."""
    if target in BANNED:
        return f"<{target}> is not used here: {BANNED[target]}"
    library = next((name for name in LIBRARIES if target.startswith(name)), None)
    if target.startswith(TEST_LIBRARIES):
        return None if is_test(path) else f"<{target}> outside tests"
    if library is None or is_test(path):
        return None
    if path.endswith(".h") and target not in HEADER_ALLOWED:
        return f"<{target}> in a header; keep it in a .cc file"
    folder = path.split("/")[1] if path.startswith("src/") else ""
    if folder and folder not in LIBRARIES[library] and target not in HEADER_ALLOWED:
        return f"<{target}> outside {', '.join(LIBRARIES[library])}"
    return None


def check(root=tree.ROOT):
    problems = []
    for path in tree.cxx_files(root):
        text = tree.read_text(path, root) or ""
        if path.endswith(".h") and "#pragma once" not in text:
            problems.append(f"{path}: no #pragma once")
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(2)) + 1
            judge = check_own if match.group(1) == '"' else check_foreign
            if problem := judge(path, match.group(2)):
                problems.append(f"{path}:{line}: {problem}")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report("includes", check()))
