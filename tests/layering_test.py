#!/usr/bin/env python3
"""Fails on a breach of the repository's rules: include edges, sizes, names and what must not be in
a tracked file. Prints one line per breach: PATH:LINE: [RULE] what is wrong.

usage: layering_test.py [ROOT]

Each rule is a generator over the tree; tests/layering_selftest.py proves that each one fires.
"""

import ast
import pathlib
import re
import subprocess
import sys
from typing import Iterator, NamedTuple

TOP_LEVEL = {
    "server", "proto", "kernels", "model", "client", "tests", "docker", "CMakeLists.txt",
    "README.md",
}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_DATA_BYTES = 15 * 1024 * 1024

CPP_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
SOURCE_SUFFIXES = CPP_SUFFIXES | {".proto", ".py", ".sh"}

# Whose headers a folder may include, beside its own.
INCLUDE_EDGES = {
    "kernels": set(),
    "model": {"kernels"},
    "server": {"model", "proto"},
    "client": {"proto"},
}
# Files of server/ that create a Backend, and so see kernels/.
KERNELS_IN_SERVER = re.compile(r"^server/(main|serve_command|offline_commands|attention_lab)\.(h|cc)$")
# Files that speak gRPC, and files that also see plain messages. Nothing else sees the wire.
SPEAKS_GRPC = re.compile(
    r"^(server/(main|\w+_service|\w+_stream|\w+_reactor|grpc_\w+)|client/generate_client)\.(h|cc)$")
SEES_MESSAGES = re.compile(r"^(server/(validate(_\w+)?|\w+_messages)|client/\w+)\.(h|cc)$")
# Headers of kernels/ that may show Abseil. All others are op contracts, and .cu files see those.
KERNELS_WITH_ABSEIL = {"kernels/backend.h", "kernels/backend_factory.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
BANNED_NAME = re.compile("util|helper|common|misc", re.IGNORECASE)
# Patterns are spelled so that this file does not match itself.
BANNED_TEXT = [
    ("disabled-test", re.compile(r"\bDISABLED" "_"), CPP_SUFFIXES,
     "a disabled test: fix it or delete it"),
    ("std-regex", re.compile(r"\bstd::reg" r"ex\b|#\s*include\s*<reg" "ex>"), CPP_SUFFIXES,
     "backtracks without bound: write a linear scanner"),
    ("open-task", re.compile(r"\b(TO" r"DO|FIX" r"ME)\b"), SOURCE_SUFFIXES | {".txt", ".md", ""},
     "an open task in a tracked file"),
    ("machine-path", re.compile(r"(?<![\w.}/-])/(wo" r"rk|ro" r"ot|fa" r"rm|ho" r"me)/"),
     SOURCE_SUFFIXES | {".txt", ".md", ".json", ".supp", ""}, "a path of one machine"),
    ("glob", re.compile(r"\bGLOB(_RECURSE)?\b"), {".txt"}, "sources are listed, not globbed"),
]


class Breach(NamedTuple):
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.message}"


class Tree:
    """The files of the repository, as paths relative to its root, and their text."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.paths = sorted(p for p in self._list() if (root / p).is_file())
        self._texts = {}

    def _list(self) -> list:
        if (self.root / ".git").exists():
            command = ["git", "-c", f"safe.directory={self.root}", "-C", str(self.root), "ls-files",
                       "-z", "--cached", "--others", "--exclude-standard"]
            listing = subprocess.run(command, check=True, capture_output=True).stdout.decode()
            return sorted(set(filter(None, listing.split("\0"))))
        return [p.relative_to(self.root).as_posix() for p in self.root.rglob("*")]

    def text(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]

    def with_suffix(self, suffixes: set) -> list:
        """Every file with one of these suffixes, but for test data, which is not ours to style."""
        return [p for p in self.paths
                if pathlib.PurePosixPath(p).suffix in suffixes and not p.startswith("tests/data/")]


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def includes(tree: Tree, path: str) -> Iterator[tuple]:
    """Yields (line, is_quoted, target) of each include directive."""
    text = tree.text(path)
    for match in INCLUDE.finditer(text):
        yield line_of(text, match.start()), match[1] == '"', match[2]


def check_top_level(tree: Tree) -> Iterator[Breach]:
    for entry in sorted({p.split("/")[0] for p in tree.paths}):
        if not entry.startswith(".") and entry not in TOP_LEVEL:
            yield Breach(entry, 1, "top-level", "not one of " + " ".join(sorted(TOP_LEVEL)))


def check_names(tree: Tree) -> Iterator[Breach]:
    for path in tree.paths:
        if not path.startswith("tests/data/") and BANNED_NAME.search(path):
            yield Breach(path, 1, "name", "util, helper, common and misc name no concept")


def check_include_edges(tree: Tree) -> Iterator[Breach]:
    known = set(tree.paths)
    for path in tree.with_suffix(CPP_SUFFIXES):
        room = path.split("/")[0]
        for line, quoted, target in includes(tree, path):
            owner = "proto" if re.search(r"\.pb\.h$", target) else target.split("/")[0]
            if target.startswith("../") or "/../" in target:
                yield Breach(path, line, "include-edge", f"{target}: include from the root")
            elif quoted and target not in known and owner in TOP_LEVEL and owner != "proto":
                yield Breach(path, line, "include-edge", f"{target}: no such file")
            elif owner == "tests" and room != "tests":
                yield Breach(path, line, "include-edge", f"{target}: nothing includes tests/")
            elif owner in TOP_LEVEL and owner != room and owner not in INCLUDE_EDGES.get(
                    room, TOP_LEVEL):
                if not (owner == "kernels" and KERNELS_IN_SERVER.match(path)):
                    yield Breach(path, line, "include-edge", f"{target}: {room}/ must not see {owner}/")


def check_private_headers(tree: Tree) -> Iterator[Breach]:
    """An implementation's headers stay in its folder, but for the factory; tests may look inside.
    The emulator stands behind kernels/cuda/ alone."""
    private = re.compile(r"^(kernels/\w+)/")
    for path in tree.with_suffix(CPP_SUFFIXES):
        for line, _, target in includes(tree, path):
            match = private.match(target)
            if target.startswith("cuda_emulator/") and not path.startswith(("kernels/cuda/", "tests/")):
                yield Breach(path, line, "private-header", f"{target} is for kernels/cuda/")
            elif match and not path.startswith((match[1] + "/", "tests/", "kernels/backend_factory.")):
                yield Breach(path, line, "private-header", f"{target} is private to {match[1]}/")


def check_wire(tree: Tree) -> Iterator[Breach]:
    for path in tree.with_suffix(CPP_SUFFIXES):
        if path.startswith("tests/"):
            continue
        for line, _, target in includes(tree, path):
            message = re.search(r"(?<!\.grpc)\.pb\.h$", target)
            grpc = not message and target.startswith(("grpcpp/", "grpc/", "vitrine/"))
            if grpc and not SPEAKS_GRPC.match(path):
                yield Breach(path, line, "wire", f"{target}: gRPC stays in the service files")
            elif message and not (SPEAKS_GRPC.match(path) or SEES_MESSAGES.match(path)):
                yield Breach(path, line, "wire", f"{target}: messages stay at the edge")


def check_abseil_reach(tree: Tree) -> Iterator[Breach]:
    """Op contracts and .cu files must not reach Abseil, whose headers nvcc does not compile cleanly."""
    known = set(tree.paths)
    seen = {}

    def reach(path: str) -> str:
        """The include chain from path to Abseil, or an empty string."""
        if path not in seen:
            seen[path] = ""
            for _, _, target in includes(tree, path):
                if target.startswith("absl/"):
                    seen[path] = f"{path} -> {target}"
                elif target in known and reach(target):
                    seen[path] = f"{path} -> {seen[target]}"
        return seen[path]

    for path in tree.with_suffix(CPP_SUFFIXES):
        op_header = re.match(r"^kernels/\w+\.h$", path) and path not in KERNELS_WITH_ABSEIL
        if (op_header or path.endswith((".cu", ".cuh"))) and reach(path):
            yield Breach(path, 1, "abseil-reach", reach(path))


def check_json(tree: Tree) -> Iterator[Breach]:
    """The JSON library costs seconds per file that includes it: one .cc in all, behind a header."""
    users = [(path, line) for path in tree.with_suffix(CPP_SUFFIXES)
             if not path.startswith("tests/")
             for line, _, target in includes(tree, path) if target.startswith("nlohmann/")]
    for path, line in users:
        if path.endswith(".h") or len(users) > 1:
            others = ", ".join(p for p, _ in users if p != path) or "a header"
            yield Breach(path, line, "json", f"nlohmann/json belongs in one .cc: also {others}")


def check_file_length(tree: Tree) -> Iterator[Breach]:
    for path in tree.with_suffix(SOURCE_SUFFIXES):
        lines = tree.text(path).count("\n")
        if lines > MAX_FILE_LINES:
            yield Breach(path, lines, "file-length", f"{lines} lines, at most {MAX_FILE_LINES}")


CPP_TOKEN = re.compile(
    r'(?P<blank>//(?:[^\n\\]|\\.)*|/\*[\s\S]*?\*/'             # comments
    r'|R"(?P<tag>[^()\s\\]{0,16})\([\s\S]*?\)(?P=tag)"'         # raw strings
    r'|"(?:\\[\s\S]|[^"\\\n])*"'                               # strings
    r"|(?<![0-9A-Fa-f])'(?:\\[^\n]|[^'\\\n])+'"                # characters, not digit separators
    r'|^[ \t]*\#(?:\\\n|[^\n])*)'                              # preprocessor, continuations too
    r'|(?P<brace>[{}])', re.MULTILINE)
TEMPLATE_HEAD = re.compile(r"^\s*template\s*<.*?>(?=\s*[a-z])", re.DOTALL)
NOT_A_FUNCTION = re.compile(r"^\s*(?:inline\s+)?(?:namespace|enum|class|struct|union|extern)\b")


def block_kind(head: str) -> str:
    """What a brace opens, outside functions: "function", "init" (a braced initialiser) or "block"."""
    if head and not head[-1].isspace():
        return "init"
    declares_type = NOT_A_FUNCTION.match(TEMPLATE_HEAD.sub("", head))
    assigns = re.search(r"=\s*$", head)
    return "function" if "(" in head and not declares_type and not assigns else "block"


def cpp_functions(text: str) -> Iterator[tuple]:
    """Yields (first line, number of lines) of every function body in clang-formatted code.

    A function is a brace block at namespace or class scope whose head holds a parameter list. The
    formatter puts a blank before a body's brace and none before a braced initialiser's.
    """
    code = CPP_TOKEN.sub(lambda m: m[0] if m["brace"] else re.sub(r"[^\n]", " ", m[0]), text)
    stack = []  # (kind of block, offset of its head)
    head = 0  # where the declaration before the next brace begins
    depth = 0  # function blocks around this place
    for match in re.finditer(r"[{};]", code):
        at = match.start()
        if match[0] == "{":
            kind = "block" if depth else block_kind(code[head:at])
            stack.append((kind, head))
            depth += kind == "function"
        elif match[0] == "}":
            if not stack:
                raise ValueError(line_of(code, at))
            kind, start = stack.pop()
            if kind == "function":
                depth -= 1
                first = line_of(code, start + re.match(r"\s*", code[start:]).end())
                yield first, line_of(code, at) - first + 1
        # A braced initialiser, its end included, is part of the declaration around it.
        if (stack and stack[-1][0] == "init") or (match[0] == "}" and kind == "init"):
            continue
        head = at + 1
    if stack:
        raise ValueError(line_of(code, stack[-1][1]))


def python_functions(text: str) -> Iterator[tuple]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def check_function_length(tree: Tree) -> Iterator[Breach]:
    for path in tree.with_suffix(CPP_SUFFIXES | {".py"}):
        functions = python_functions if path.endswith(".py") else cpp_functions
        try:
            for line, lines in functions(tree.text(path)):
                if lines > MAX_FUNCTION_LINES:
                    yield Breach(path, line, "function-length",
                                 f"{lines} lines, at most {MAX_FUNCTION_LINES}")
        except ValueError as unbalanced:
            yield Breach(path, int(str(unbalanced)), "function-length", "braces do not balance")


def check_banned_text(tree: Tree) -> Iterator[Breach]:
    for rule, pattern, suffixes, message in BANNED_TEXT:
        for path in tree.with_suffix(suffixes):
            for match in pattern.finditer(tree.text(path)):
                yield Breach(path, line_of(tree.text(path), match.start()), rule, message)


def check_everything_is_built(tree: Tree) -> Iterator[Breach]:
    """A source or test script that no CMakeLists.txt names is never compiled, run or checked."""
    lists = {}
    for path in tree.paths:
        file = pathlib.PurePosixPath(path)
        if file.name == "CMakeLists.txt" or file.suffix == ".cmake":
            lists[file.parent] = lists.get(file.parent, "") + tree.text(path)
    for path in tree.with_suffix({".cc", ".cu", ".py", ".sh"}):
        file = pathlib.PurePosixPath(path)
        is_test_script = path.startswith("tests/") and re.search(r"test\.(py|sh)$", file.name)
        if not (path.endswith((".cc", ".cu")) or is_test_script):
            continue
        # A list may hold stems, and append what they have in common.
        names = "|".join(map(re.escape, {file.name, file.stem, file.stem.removesuffix("_test")}))
        above = "\n".join(lists.get(folder, "") for folder in file.parents)
        if not re.search(rf"(?<![\w-])({names})(?![\w.-])", above):
            yield Breach(path, 1, "not-built", "no CMakeLists.txt in or above its folder names it")


def check_data_size(tree: Tree) -> Iterator[Breach]:
    size = sum((tree.root / p).stat().st_size for p in tree.paths if p.startswith("tests/data/"))
    if size > MAX_DATA_BYTES:
        yield Breach("tests/data", 1, "data-size", f"{size} bytes, at most {MAX_DATA_BYTES}")


RULES = [
    check_top_level, check_names, check_include_edges, check_private_headers, check_wire,
    check_abseil_reach, check_json, check_file_length, check_function_length, check_banned_text,
    check_everything_is_built, check_data_size,
]


def breaches(root: pathlib.Path) -> list:
    tree = Tree(root)
    return [breach for rule in RULES for breach in rule(tree)]


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = breaches(root.resolve())
    for breach in found:
        print(breach)
    print(f"{len(found)} breaches of the repository's rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
