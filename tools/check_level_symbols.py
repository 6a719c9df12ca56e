#!/usr/bin/env python3
"""Checks the objects of one instruction-set level of the x86 kernels: check_level_symbols.py NM LEVEL OBJECT...

A symbol that they define outside the namespace of their level would carry that level's instructions
under a name that other objects may define too, and the linker could choose it for a program that
runs on a lesser CPU. Local symbols are nobody else's.
"""

import subprocess
import sys


def strays(nm, level, objects):
    """Lines of nm about symbols that others could see and that are not the level's own."""
    listing = subprocess.run([nm, "-C", "--defined-only", *objects], check=True,
                             capture_output=True, text=True).stdout
    for line in listing.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) < 3:  # the name of an object, or an empty line
            continue
        _, kind, name = fields
        visible = kind.isupper() or kind in "uvw"
        if visible and f"fathom::x86::{level}::" not in name:
            yield line


def main():
    nm, level, *objects = sys.argv[1:]
    if not objects:
        sys.exit("no objects given")
    found = list(strays(nm, level, objects))
    for line in found:
        print(f"{level}: outside fathom::x86::{level}: {line}")
    print(f"{level}: {len(objects)} objects, {len(found)} stray symbols")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
