#!/usr/bin/env python3
"""Each check of the tree finds what it is for, and leaves the rest alone."""

import os
import tempfile
import unittest

import check_includes
import check_named_tests
import check_size
import check_words


class Tree:
    """A small tree in a temporary folder."""

    def __init__(self, **texts):
        self.folder = tempfile.TemporaryDirectory()
        for name, text in texts.items():
            path = os.path.join(self.folder.name, name.replace("__", "/").replace("_DOT_", "."))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def problems(self, check):
        with self.folder:
            return check(self.folder.name)


class Includes(unittest.TestCase):
    def test_down_is_fine_and_up_is_not(self):
        tree = Tree(src__model__a_DOT_cc='#include "base/result.h"\n#include "kernels/ops.h"\n',
                    src__model__b_DOT_cc='\n#include "engine/core.h"\n')
        self.assertEqual(tree.problems(check_includes.check),
                         ['src/model/b.cc:2: "engine/core.h" points up: model may not depend on '
                          'engine'])

    def test_third_party_headers_stay_in_their_folder_and_out_of_headers(self):
        tree = Tree(src__cli__a_DOT_h="#pragma once\n#include <CLI/CLI.hpp>\n",
                    src__base__b_DOT_cc="#include <CLI/CLI.hpp>\n",
                    src__cli__c_DOT_cc="#include <CLI/CLI.hpp>\n#include <vector>\n",
                    src__base__d_DOT_h="#pragma once\n#include <fmt/core.h>\n")
        problems = tree.problems(check_includes.check)
        self.assertEqual(len(problems), 2)
        self.assertIn("src/base/b.cc:1: <CLI/CLI.hpp> outside cli", problems)
        self.assertIn("in a header", problems[1])

    def test_banned_headers_and_missing_pragma(self):
        tree = Tree(src__base__a_DOT_h="#include <regex>\n")
        problems = tree.problems(check_includes.check)
        self.assertEqual(problems[0], "src/base/a.h: no #pragma once")
        self.assertIn("<regex> is not used here", problems[1])


class Sizes(unittest.TestCase):
    def body(self, lines, note=""):
        return f"{note}int f(int a,\n      int b) {{\n" + "    a += b;\n" * lines + "}\n"

    def test_long_functions_need_a_reason(self):
        tree = Tree(src__base__a_DOT_cc=self.body(80), src__base__b_DOT_cc=self.body(60),
                    src__base__c_DOT_cc=self.body(80, "// Long function: one table.\n"))
        problems = tree.problems(check_size.check)
        self.assertEqual(problems, ["src/base/a.cc:1: a function of 83 lines, at most 70"])

    def test_long_files_need_a_reason(self):
        lines = "int a;\n" * 900
        tree = Tree(src__base__a_DOT_h=lines,
                    src__base__b_DOT_h="// Long file: generated table.\n" + lines)
        self.assertEqual(len(tree.problems(check_size.check)), 1)

    def test_types_and_namespaces_may_be_long(self):
        text = "namespace a {\nclass B : public C<D()> {\n" + "    int x;\n" * 90 + "};\n}\n"
        self.assertEqual(Tree(src__base__a_DOT_h=text).problems(check_size.check), [])


class Words(unittest.TestCase):
    def test_machine_paths_and_marks(self):
        tree = Tree(docs__a_DOT_md="see /home/someone\n", docs__b_DOT_md="fine: network/home/x\n",
                    docs__c_DOT_md="// TODO later\n", docs__d_DOT_md="blank \n")
        problems = tree.problems(check_words.check)
        self.assertEqual([p.split(":")[0] for p in problems],
                         ["docs/a.md", "docs/c.md", "docs/d.md"])

    def test_folders_need_a_short_readme(self):
        tree = Tree(src__base__a_DOT_cc="", src__model__README_DOT_md="line\n" * 200)
        problems = tree.problems(check_words.check)
        self.assertEqual(problems, ["src/model/README.md: 200 lines, at most a page (80)",
                                    "src/base/README.md: missing"])


class NamedTests(unittest.TestCase):
    def test_a_test_that_is_named_exists(self):
        tree = Tree(docs__pool_complaints_DOT_md="`Slot.IsEmpty`\n`Slot.IsFull`, `Slot` `a.b`\n",
                    src__pool__a_DOT_cc="TEST_P(Slot, IsEmpty) {}\n")
        self.assertEqual(tree.problems(check_named_tests.check),
                         ["docs/pool_complaints.md:2: there is no test Slot.IsFull"])


if __name__ == "__main__":
    unittest.main()
