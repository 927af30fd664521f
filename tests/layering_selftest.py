#!/usr/bin/env python3
"""Proves that each rule of layering_test.py fires: a small clean tree passes, and the same tree
with one planted breach reports exactly that breach."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import layering_test  # noqa: E402

CLEAN = {
    "CMakeLists.txt": "add_library(all a.cc op.cu main.cc generate_client.cc)\n",
    "README.md": "A tree.\n",
    "docker/Dockerfile": "FROM scratch\n",
    "proto/a.proto": 'syntax = "proto3";\n',
    "kernels/op.h": "#pragma once\n#include <cstdint>\n",
    "kernels/backend.h": '#pragma once\n#include "absl/status/statusor.h"\n#include "kernels/op.h"\n',
    "kernels/cuda/op.cu": '#include "kernels/op.h"\n#include "kernels/cuda/reduce.cuh"\n',
    "kernels/cuda/reduce.cuh": "#pragma once\n",
    "model/a.h": '#pragma once\n#include "kernels/backend.h"\n',
    "model/a.cc": '#include "model/a.h"\n#include "nlohmann/json.hpp"\n',
    "server/main.cc": '#include <grpcpp/grpcpp.h>\n#include "kernels/backend.h"\n#include "model/a.h"\n',
    "client/generate_client.cc": '#include "vitrine/v1/a.grpc.pb.h"\n',
    "tests/data/common.txt": "data may be called anything\n",
}
LONG_BODY = "  ++x;\n" * 69


def braces(head: str, body: str = "") -> str:
    return f"{head} {{\n{body}}}\n"


# name: (path, text added to the file's end, the rule that must fire)
PLANTED = {
    "a tenth entry": ("tools/a.txt", "x\n", "top-level"),
    "a file named helper": ("tests/test_helper.txt", "x\n", "name"),
    "a folder named utils": ("model/utils/a.h", "#pragma once\n", "name"),
    "kernels sees model": ("kernels/backend.h", '#include "model/a.h"\n', "include-edge"),
    "model sees server": ("model/a.cc", '#include "server/main.cc"\n', "include-edge"),
    "model sees proto": ("model/a.cc", '#include "proto/a.proto"\n', "include-edge"),
    "client sees server": ("client/generate_client.cc", '#include "server/main.cc"\n', "include-edge"),
    "client sees model": ("client/generate_client.cc", '#include "model/a.h"\n', "include-edge"),
    "server sees kernels": ("server/engine.h", '#include "kernels/backend.h"\n', "include-edge"),
    "anything sees tests": ("model/a.cc", '#include "tests/data/common.txt"\n', "include-edge"),
    "a relative include": ("model/a.cc", '#include "../kernels/backend.h"\n', "include-edge"),
    "an include of nothing": ("model/a.cc", '#include "model/gone.h"\n', "include-edge"),
    "a .cuh from outside": ("kernels/backend.h", '#include "kernels/cuda/reduce.cuh"\n',
                            "private-header"),
    "the emulator from a test's subject": ("model/a.cc", '#include "cuda_emulator/launch.h"\n',
                                           "private-header"),
    "gRPC in the engine": ("server/engine.h", "#include <grpcpp/grpcpp.h>\n", "wire"),
    "stubs in the scheduler": ("server/scheduler.h", '#include "vitrine/v1/a.grpc.pb.h"\n', "wire"),
    "messages in the engine": ("server/engine.h", '#include "vitrine/v1/a.pb.h"\n', "wire"),
    "Abseil in an op contract": ("kernels/op.h", '#include "absl/status/status.h"\n', "abseil-reach"),
    "Abseil behind a .cu file": ("kernels/cuda/op.cu", '#include "kernels/backend.h"\n',
                                 "abseil-reach"),
    "JSON in a second file": ("server/main.cc", "#include <nlohmann/json.hpp>\n", "json"),
    "JSON in a header": ("model/a.h", "#include <nlohmann/json.hpp>\n", "json"),
    "a long file": ("model/a.h", "\n" * 600, "file-length"),
    "a long function": ("model/a.h", braces("void F(int x)", LONG_BODY), "function-length"),
    "a long method": ("model/a.h", braces("struct S", braces("  void F() const", LONG_BODY)),
                      "function-length"),
    "a long constructor": ("model/a.h", braces("A::A(int b)\n    : b_{b}, c_{1}", LONG_BODY),
                           "function-length"),
    "a long test": ("model/a.h", braces("TEST(A, B)", LONG_BODY), "function-length"),
    "a long lambda": ("model/a.h", braces("auto f = [](int x)", LONG_BODY), "function-length"),
    "a long function after raw strings": (
        "model/a.h", 'auto s = R"x(" { )x";\nint n = 1\'000;\nchar c = \'{\';\n'
        + braces("int F()", LONG_BODY), "function-length"),
    "a brace too many": ("model/a.h", "}\n", "function-length"),
    "a long Python function": ("tests/a.py", "def f(x):\n" + "    x += 1\n" * 70, "function-length"),
    "a disabled test": ("model/a.cc", "TEST(A, DISABLED" "_B) {}\n", "disabled-test"),
    "std::regex": ("model/a.cc", "std::reg" "ex pattern;\n", "std-regex"),
    "its header": ("model/a.cc", "#include <reg" "ex>\n", "std-regex"),
    "an open task": ("model/a.cc", "// TO" "DO: later\n", "open-task"),
    "an open task in a script": ("tests/a.sh", "# FIX" "ME\n", "open-task"),
    "a path of one machine": ("docker/Dockerfile", "COPY /wo" "rk/x /x\n", "machine-path"),
    "globbed sources": ("CMakeLists.txt", "file(GLO" "B sources *.cc)\n", "glob"),
    "a source that is not built": ("model/orphan.cc", "int x;\n", "not-built"),
    "a test script that never runs": ("tests/drain_test.sh", "true\n", "not-built"),
    "too much data": ("tests/data/big", "x" * (layering_test.MAX_DATA_BYTES + 1), "data-size"),
}

ALLOWED = {
    "70 lines with the signature": ("model/a.h", braces("void F(int x)", LONG_BODY[7:])),
    "a long table": ("model/a.h", "constexpr int kTable[] = {\n" + "    1,\n" * 100 + "};\n"),
    "a long class": ("model/a.h", braces("class A", "  int F(int x);\n" * 100)),
    "a word that holds a banned one": ("model/a.cc", "// mastodons and networks\n"),
}


def write(root: pathlib.Path, files: dict) -> None:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


class LayeringRules(unittest.TestCase):
    def rules_fired(self, added_path: str = "README.md", added_text: str = "") -> list:
        files = dict(CLEAN)
        files[added_path] = files.get(added_path, "") + added_text
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder), files)
            return [breach.rule for breach in layering_test.breaches(pathlib.Path(folder))]

    def test_clean_tree_passes(self):
        self.assertEqual(self.rules_fired(), [])

    def test_each_planted_breach_is_reported(self):
        for name, (path, text, rule) in PLANTED.items():
            with self.subTest(name):
                self.assertEqual(set(self.rules_fired(path, text)), {rule})

    def test_what_the_rules_allow(self):
        for name, (path, text) in ALLOWED.items():
            with self.subTest(name):
                self.assertEqual(self.rules_fired(path, text), [])

    def test_every_rule_has_a_planted_breach(self):
        planted = {rule for _, _, rule in PLANTED.values()}
        source = pathlib.Path(layering_test.__file__).read_text(encoding="utf-8")
        banned = {rule for rule, *_ in layering_test.BANNED_TEXT}
        named = banned | set(
            layering_test.re.findall(r'Breach\([^)]*?, "([a-z-]+)"', source))
        self.assertEqual(planted, named)


if __name__ == "__main__":
    unittest.main()
