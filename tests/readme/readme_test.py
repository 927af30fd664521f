#!/usr/bin/env python3
"""README.md says what is true: the files it names exist, and its programs, run against a server as
they stand there, print the model's answer."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPTIONS = argparse.Namespace()


class Paths(unittest.TestCase):
    def test_every_file_named_exists(self):
        # What stands in backquotes and looks like a path of a tracked file, folders with a slash.
        rooms = "server|proto|kernels|model|client|tests|docker"
        named = re.findall(rf"`((?:{rooms})/[\w./*{{}},-]*)`", README)
        self.assertGreater(len(named), 20)
        for name in named:
            with self.subTest(name):
                stem, braces, endings = name.partition("{")
                for ending in endings.rstrip("}").split(",") if braces else [""]:
                    self.assertTrue(list(ROOT.glob((stem + ending).rstrip("/"))), "no such file")


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = os.environ.get("VITRINE_TEST_MODEL")
        if not model:
            raise unittest.SkipTest("VITRINE_TEST_MODEL is not set")
        cls.server = subprocess.Popen([OPTIONS.server, f"--model={model}", "--listen=127.0.0.1:0"],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        cls.addClassCleanup(cls.stop_server)
        seen = []
        for line in cls.server.stdout:
            seen.append(line)
            if found := re.search(r"listening on (\S+)", line):
                cls.address = found[1]
                return
        raise AssertionError("the server did not come up:\n" + "".join(seen))

    @classmethod
    def stop_server(cls):
        cls.server.terminate()
        cls.server.communicate(timeout=60)

    def run_program(self, command: list, folder: str) -> str:
        done = subprocess.run(command + [self.address], cwd=folder, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_both_programs_print_the_answer(self):
        python_program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
        # The README's own command, so that it is tested too.
        make_stubs = re.search(r"`(protoc [^`]*)`", README)[1].replace(
            "proto/vitrine", f"{ROOT}/proto/vitrine").replace("-I proto", f"-I {ROOT}/proto")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(make_stubs, shell=True, cwd=folder, check=True, timeout=60)
            pathlib.Path(folder, "program.py").write_text(python_program, encoding="utf-8")
            from_python = self.run_program([sys.executable, "program.py"], folder)
            from_cpp = self.run_program([OPTIONS.cpp_program], folder)
        self.assertIn("Paris", from_python)
        self.assertEqual(from_python, from_cpp)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--cpp_program", required=True)
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.server = os.path.abspath(OPTIONS.server)
    unittest.main(argv=sys.argv[:1] + rest)
