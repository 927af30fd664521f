"""Registers, stack and static shared memory of every CUDA kernel against a checked-in budget.

usage: ptxas_budget.py [--write] NVCC_VERSION BUDGET OBJECT...

The figures are those that ptxas has put into the device code of the objects that ship, so nothing
is compiled for this. They are the only ones about speed that need no device: a kernel that spills,
or that needs more registers or shared memory than it did, runs fewer warps at a time. Kernels that
are new, are gone, or need more than the budget says are errors; --write makes the budget anew.

A stack frame is what spilled registers and indexed local arrays lie in: no kernel may have one.
The figures of another nvcc say nothing about the kernels, so with one the test is skipped.
"""

import pathlib
import struct
import subprocess
import sys

EM_CUDA = 190
SHT_SYMTAB = 2
# Attributes of .nv.info that have a symbol and a number (NVIDIA names them EIATTR_*).
REGISTER_COUNT = 0x2F
FRAME_SIZE = 0x11
HAS_SYMBOL_AND_NUMBER = 0x04
COLUMNS = ("registers", "stack", "shared")


def cubins(data):
    """The device programs inside an object file, each from its first byte to its last."""
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if data[at + 4] == 2 and struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            yield data[at:]
        at = data.find(b"\x7fELF", at + 1)


class Cubin:
    def __init__(self, data):
        self.data = data
        flags = struct.unpack_from("<I", data, 48)[0]
        # The architecture is the second byte since ABI 8, the first one before.
        self.architecture = f"sm_{flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF}"
        sections_at = struct.unpack_from("<Q", data, 40)[0]
        size, count, names = struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQ", data, sections_at + i * size)
                   for i in range(count)]
        self.sections = {}
        strings = headers[names][4]
        for name, kind, _, _, offset, length in headers:
            self.sections[self.text(strings + name)] = (kind, offset, length)

    def text(self, at):
        return self.data[at:self.data.index(b"\0", at)].decode()

    def symbols(self):
        _, strings, _ = self.sections[".strtab"]
        kind, offset, length = self.sections[".symtab"]
        assert kind == SHT_SYMTAB
        return [self.text(strings + struct.unpack_from("<I", self.data, at)[0])
                for at in range(offset, offset + length, 24)]

    def kernels(self):
        """{mangled name: {column: number}}."""
        symbols = self.symbols()
        entries = {name[len(".text."):] for name in self.sections if name.startswith(".text.")}
        found = {name: dict.fromkeys(COLUMNS, 0) for name in entries}
        _, at, length = self.sections[".nv.info"]
        end = at + length
        while at < end:
            form, attribute, size = struct.unpack_from("<BBH", self.data, at)
            at += 4
            if form != HAS_SYMBOL_AND_NUMBER:
                continue  # The number stands where `size` does.
            if attribute in (REGISTER_COUNT, FRAME_SIZE):
                symbol, number = struct.unpack_from("<II", self.data, at)
                column = "registers" if attribute == REGISTER_COUNT else "stack"
                if symbols[symbol] in found:
                    found[symbols[symbol]][column] = number
            at += size
        for name, row in found.items():
            row["shared"] = self.sections.get(".nv.shared." + name, (0, 0, 0))[2]
        return found


def demangle(names):
    """Readable names without namespaces and arguments."""
    output = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                            check=True).stdout.splitlines()
    short = {}
    for name, line in zip(names, output):
        line = line.replace("vitrine::cuda::", "").replace("(anonymous namespace)::", "")
        line = line.removeprefix("void ")
        depth, end = 0, len(line)
        for i, c in enumerate(line):
            depth += {"<": 1, ">": -1}.get(c, 0)
            if c == "(" and depth == 0:
                end = i
                break
        short[name] = line[:end].replace(" ", "")
    return short


def measure(objects):
    """{(kernel, architecture): {column: number}} of all objects."""
    rows = {}
    for path in objects:
        for data in cubins(pathlib.Path(path).read_bytes()):
            cubin = Cubin(data)
            found = cubin.kernels()
            names = demangle(sorted(found))
            for mangled, row in found.items():
                rows[names[mangled], cubin.architecture] = row
    return rows


def to_text(version, rows):
    lines = [f"# nvcc {version}", "# kernel architecture " + " ".join(COLUMNS)]
    for (name, architecture), row in sorted(rows.items()):
        lines.append(" ".join([name, architecture] + [str(row[c]) for c in COLUMNS]))
    return "\n".join(lines) + "\n"


def from_text(text):
    rows = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, architecture, *numbers = line.split()
        rows[name, architecture] = dict(zip(COLUMNS, map(int, numbers)))
    return rows


def problems(rows, budget):
    for key, row in sorted(rows.items()):
        name = " ".join(key)
        if row["registers"] == 0:
            yield f"{name}: no register count was found"
        if row["stack"] > 0:
            yield f"{name}: {row['stack']} bytes of stack: registers spill"
        if key not in budget:
            yield f"{name}: not in the budget"
            continue
        for column in COLUMNS:
            if row[column] > budget[key][column]:
                yield f"{name}: {column} {row[column]}, budget {budget[key][column]}"
    for key in sorted(budget.keys() - rows.keys()):
        yield f"{' '.join(key)}: in the budget, but no such kernel"


def main(arguments):
    write = arguments[:1] == ["--write"]
    version, budget_path, *objects = arguments[1:] if write else arguments
    rows = measure(objects)
    if not rows:
        sys.exit("no device code in the objects")
    if write:
        pathlib.Path(budget_path).write_text(to_text(version, rows))
        return
    budget = pathlib.Path(budget_path).read_text()
    if not budget.startswith(f"# nvcc {version}\n"):
        print(f"skipped: the budget is for another nvcc than {version}")
        sys.exit(77)
    found = list(problems(rows, from_text(budget)))
    print(f"{len(rows)} kernels, {len(found)} problems")
    for problem in found:
        print(problem)
    sys.exit(bool(found))


if __name__ == "__main__":
    main(sys.argv[1:])
