#!/usr/bin/env python3
"""The tree speaks of the project alone: no paths of one machine, no marks of unfinished work, no
references to trackers that a reader cannot see. Each folder of src/ has a README of at most a page."""

import os
import re
import sys

import tree

FORBIDDEN = [
    (re.compile(r"(?<![\w.])/(work|root|home)/\w"), "a path of one machine"),
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "a mark of unfinished work"),
    (re.compile(r"\b(placeholder|not implemented|unimplemented)\b"), "a mark of unfinished work"),
    (re.compile(r"\bsteering repo", re.IGNORECASE), "a repository that readers do not have"),
    (re.compile(r"\bissue (#?\d+|[A-Z]\b)"), "a tracker that readers do not have"),
    (re.compile(r"\b(a|in a) later issue\b", re.IGNORECASE), "a tracker that readers do not have"),
    (re.compile(r"\b(as an AI|AI[- ]generated|language model wrote)\b", re.IGNORECASE),
     "talk about the author"),
    (re.compile(r"[ \t]+$", re.MULTILINE), "white space at the end of a line"),
]
# The words stand here and in its test; tokenizers and corpora are data; locks are generated.
SKIPPED = ("tools/check_words.py", "tools/checks_test.py", "models/", "fuzz/corpus/", "LICENSE")
README_LINES_MAX = 80


def check(root=tree.ROOT):
    problems = []
    for path in tree.files(root):
        if path.startswith(SKIPPED) or path.endswith("package-lock.json"):
            continue
        text = tree.read_text(path, root)
        if text is None:
            continue
        for pattern, why in FORBIDDEN:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f'{path}:{line}: "{match.group(0).strip()}" is {why}')
    return problems + check_readmes(root)


def check_readmes(root):
    problems = []
    for folder in tree.FOLDERS:
        if not os.path.isdir(os.path.join(root, "src", folder)):
            continue
        path = f"src/{folder}/README.md"
        if not os.path.isfile(os.path.join(root, path)):
            problems.append(f"{path}: missing")
        elif (count := tree.read_text(path, root).count("\n")) > README_LINES_MAX:
            problems.append(f"{path}: {count} lines, at most a page ({README_LINES_MAX})")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report("words", check()))
