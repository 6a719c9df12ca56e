#!/usr/bin/env python3
"""Files stay under 800 lines and functions under 70, or say why they do not.

The reason is a comment: `// Long file: REASON` anywhere in the file, `// Long function: REASON` within
the function or in the five lines above it. The formatter fixes the layout, so a function is found by
its indentation: a line that ends in `{` and the `}` at the same depth.
"""

import re
import sys

import tree

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
NOT_FUNCTIONS = re.compile(
    r"^\s*(namespace|class|struct|enum|union|extern|inline namespace|typedef|if|for|while|switch|"
    r"do|else|\}|case)\b|[=(,]\s*\{$|^\s*[{}]")

LAMBDA = re.compile(r"[=(,]\s*\[[^\]]*\]\s*[({]|^\s*\[")


def functions(lines):
    """(first, last) line numbers from 0 of everything that looks like a function."""
    for opening, line in enumerate(lines):
        if not line.endswith("{"):
            continue
        first = _first_line(lines, opening)
        indent = len(lines[first]) - len(lines[first].lstrip(" "))
        declaration = " ".join(lines[first:opening + 1])
        if indent > 4 or ")" not in declaration or NOT_FUNCTIONS.search(declaration):
            continue
        if LAMBDA.search(declaration.replace("operator[]", "operator")):
            continue
        close = " " * indent + "}"
        for last in range(opening + 1, len(lines)):
            if lines[last].startswith(close):
                yield first, last
                break


def _first_line(lines, last):
    """Where the declaration that ends on this line begins, when it is broken over several."""
    first = last
    while first > 0 and lines[first - 1].strip() and lines[first - 1].rstrip()[-1] not in ";{}:/>":
        if lines[first - 1].lstrip().startswith(("//", "#")):
            break
        first -= 1
    return first


def check(root=tree.ROOT):
    problems = []
    for path in tree.files(root, (".h", ".cc", ".py", ".ts", ".tsx")):
        lines = (tree.read_text(path, root) or "").split("\n")
        if len(lines) > FILE_LINES_MAX and not any("// Long file:" in line for line in lines):
            problems.append(f"{path}: {len(lines)} lines, at most {FILE_LINES_MAX}")
        if not path.endswith((".h", ".cc")):
            continue
        for first, last in functions(lines):
            count = last - first + 1
            near = lines[max(0, first - 5):last]
            if count > FUNCTION_LINES_MAX and not any("// Long function:" in x for x in near):
                problems.append(f"{path}:{first + 1}: a function of {count} lines, at most "
                                f"{FUNCTION_LINES_MAX}")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report("sizes", check()))
