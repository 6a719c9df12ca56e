#!/usr/bin/env python3
"""Tests that a document names as proof of what it says exist: `Suite.Name` in docs/pool_complaints.md is a
TEST, TEST_F or TEST_P of that suite."""

import re
import sys

import tree

DOCUMENTS = ("docs/pool_complaints.md",)
NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
DEFINED = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def check(root=tree.ROOT):
    defined = set()
    for path in tree.cxx_files(root):
        if path.startswith(("src/", "tests/")):
            defined.update(".".join(names) for names in DEFINED.findall(tree.read_text(path, root)))
    problems = []
    for path in tree.files(root):
        if path not in DOCUMENTS:
            continue
        text = tree.read_text(path, root)
        for match in NAMED.finditer(text):
            if match.group(1) not in defined:
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{path}:{line}: there is no test {match.group(1)}")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report("named tests", check()))
