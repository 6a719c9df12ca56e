#!/usr/bin/env python3
"""clang-format 14 would change nothing. With --fix it changes what it must."""

import shutil
import subprocess
import sys

import tree

VERSION = "14"


def formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path is None:
            continue
        text = subprocess.run([path, "--version"], check=True, capture_output=True).stdout.decode()
        if f"version {VERSION}." in text:
            return path
    sys.exit(f"clang-format {VERSION} is not installed; ./dev deps installs it")


def main():
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    # Relative names from the root: the style file is found, and messages name what git names.
    done = subprocess.run([formatter(), *mode, *tree.cxx_files()], cwd=tree.ROOT)
    return tree.report("format", [] if done.returncode == 0 else ["run ./dev fmt"])


if __name__ == "__main__":
    sys.exit(main())
