"""scripts/check-rooms fails on what a room may not use, however it is written: in a tree of its own."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "check-rooms"
ROOMS = """
room core/base:
  core/base/*
room core/wire: core/base
  core/wire/*
room preload/base: core/wire
  preload/*
"""
LOW, HIGH = "core/base/low.cc", "preload/high.cc"


class CheckRooms(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="sdp-rooms-")
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name).resolve()
        self.write("scripts/rooms", ROOMS)
        shutil.copy(CHECK, self.root / "scripts/check-rooms")
        self.write("preload/high.h", "")
        self.write("core/base/low.h", "")
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def check(self, *words):
        """(status, output)."""
        subprocess.run(["git", "add", "-A"], cwd=self.root, check=True)
        command = [sys.executable, "-B", "scripts/check-rooms", *words]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def assert_found(self, said, *words):
        status, output = self.check(*words)
        self.assertEqual(status, 1, output)
        self.assertIn(said, output)

    def assert_fine(self, *words):
        status, output = self.check(*words)
        self.assertEqual(status, 0, output)

    def test_what_is_allowed(self):
        self.write(HIGH, '#include "core/base/low.h"\n#include "high.h"\n#include <string.h>\n')
        self.assert_fine()

    def test_an_include_however_it_is_written(self):
        lines = (
            '#include "preload/high.h"',
            '#include "../../preload/high.h"',
            '#include "../../core/wire/../../preload/high.h"',
            "#include <preload/high.h>",
            '# include "preload/high.h"',
            '  #include "preload/high.h"',
            '\t#\tinclude\t"preload/high.h"',
            '#include"preload/high.h"',
            '/* why */ #include "preload/high.h"',
            '#/* why */include /* why */ "preload/high.h"',
            '#inc\\\nlude "preload/high.h"',
            'const char* kAll = "/*";\n#include "preload/high.h"\nconst char* kEnd = "*/";',
            '#include_next "preload/high.h"',
            '#import "preload/high.h"',
        )
        for number, line in enumerate(lines):
            self.write(f"core/base/low{number}.cc", f"int before;\n{line}\nint behind;\n")
        _, output = self.check()
        for number, line in enumerate(lines):
            with self.subTest(line):
                self.assertIn(f"core/base/low{number}.cc includes preload/high.h", output)

    def test_a_name_from_a_macro(self):
        self.write(LOW, '#define HIGH "preload/high.h"\n#include HIGH\n')
        self.assert_found(f"{LOW} includes HIGH, which is not a file's name")

    def test_what_is_no_part_of_the_product(self):
        self.write("test/support/helper.h", "")
        self.write(LOW, '#include "test/support/helper.h"\n')
        self.assert_found(f"{LOW} includes test/support/helper.h, which is no part of the product")

    def test_an_include_that_is_a_comment(self):
        self.write(LOW, '// #include "preload/high.h"\n/*\n#include "preload/high.h"\n*/\n')
        self.assert_fine()

    def test_a_new_folder_belongs_to_no_room(self):
        self.write("preload/newroom/file.cc", "")
        self.assert_found("preload/newroom/file.cc belongs to no room")

    def test_a_source_of_another_language(self):
        self.write("core/base/low.c", '#include "preload/high.h"\n')
        self.assert_found("core/base/low.c includes preload/high.h")

    def build(self, **sources):
        """Objects of a low and a high file for each name, as in a build tree; then what the check says."""
        commands = []
        self.write(".gitignore", "build\n")
        (self.root / "build").mkdir()
        for name, texts in sources.items():
            for folder, text in zip(("core/base", "preload"), texts, strict=True):
                path, written = f"{folder}/{name}.cc", f"{folder.replace('/', '-')}-{name}.o"
                self.write(path, text)
                subprocess.run(["c++", "-c", path, "-o", f"build/{written}"], cwd=self.root, check=True)
                commands.append({"file": str(self.root / path), "command": f"c++ -o {written} -c {path}"})
        self.write("build/compile_commands.json", json.dumps(commands))
        return self.check("--build", "build")

    def test_symbols_that_are_declared_by_hand(self):
        sources = {
            "function": ("namespace sdp { void F(); void UseF() { F(); } }", "namespace sdp { void F() {} }"),
            "inlined": (
                "namespace sdp { void I(); void UseI() { I(); } }",
                "namespace sdp { inline void I() {} void OwnI() { I(); } }",
            ),
            "templated": (
                "namespace sdp { template <class T> void T1(); void UseT() { T1<int>(); } }",
                "namespace sdp { template <class T> void T1() {} template void T1<int>(); }",
            ),
            "c_function": (
                'extern "C" void c_f(); namespace sdp { void UseC() { c_f(); } }',
                'extern "C" void c_f() {}',
            ),
            "c_variable": (
                'extern "C" int c_v; namespace sdp { int UseV() { return c_v; } }',
                'extern "C" { int c_v = 1; }',
            ),
        }
        status, output = self.build(**sources)
        self.assertEqual(status, 1, output)
        for name in sources:
            with self.subTest(name):
                self.assertIn(f"core/base/{name}.cc has symbols of preload/{name}.cc", output)

    def test_symbols_that_are_allowed(self):
        # The names of the C library are interposed: a call of `read` is one of the system.
        low = (
            'extern "C" long read(int, void*, unsigned long);\n'
            'namespace sdp { long Low() { return read(0, nullptr, 0); } }'
        )
        high = (
            'extern "C" long read(int, void*, unsigned long) { return 0; }\n'
            "namespace sdp { long Low(); long High() { return Low(); } }"
        )
        status, output = self.build(allowed=(low, high))
        self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
