"""The files of the project and the order of its folders: what every check of the tree starts from."""

import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Folders of src/ from the top down; an include may only point to the same folder or one further down.
FOLDERS = [
    "cli", "gateway", "recipe", "cluster", "transfer", "pool", "engine", "grammar", "model",
    "kernels", "sim", "policy", "base",
]


def files(root=ROOT, suffixes=()):
    """Paths relative to root: what git tracks or would track, else everything outside build/."""
    try:
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout.decode().split("\0")
        paths = [path for path in listed if path]
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, children, names in os.walk(root):
            children[:] = [c for c in children if c not in ("build", ".git", "node_modules")]
            paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    kept = (path for path in paths if not suffixes or path.endswith(tuple(suffixes)))
    return sorted(path for path in set(kept) if os.path.isfile(os.path.join(root, path)))


def cxx_files(root=ROOT):
    return files(root, (".h", ".cc"))


def read_text(path, root=ROOT):
    """The file's text, or None when it is binary."""
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def report(what, problems):
    """Prints the problems, one a line, and returns the exit status."""
    for problem in problems:
        print(problem)
    print(f"{what}: {'clean' if not problems else f'{len(problems)} problems'}")
    return 1 if problems else 0
