#!/usr/bin/env python3
"""Keeps CUDA kernels within what a host compiler understands too; see kernels/cuda/portable.h."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "kernels/cuda", ROOT / "tests/gpu_check"]
# What wraps that which the others must not say, and what tests the wrappers.
WRAPPERS = {"portable.h", "launch.h", "ptx.h", "ptx_wrappers.cu"}
FORBIDDEN = {
    r"<<<": "launch with gpu::Launch",
    r"\basm\b": "wrap PTX in ptx.h, with a host body beside it",
    r"__shared__": "write GPU_SHARED or GPU_DYNAMIC_SHARED",
    r"#\s*pragma\s+unroll": "write GPU_UNROLL",
    r"\bcooperative_groups\b": "not emulated",
    r"__shfl_\w+": "use the reductions of reduce.h",
    r"\bGPU_EMULATED\b": "kernels are the same source in both worlds",
}
# Inside kernels, scans are the one legitimate other use of shuffles.
ALLOWED = {("reduce.h", r"__shfl_\w+"), ("reduce.h", r"\bGPU_EMULATED\b")}


def problems(path):
    if path.name in WRAPPERS:
        return
    for number, line in enumerate(path.read_text().split("\n"), 1):
        code = line.split("//")[0]
        for pattern, advice in FORBIDDEN.items():
            if (path.name, pattern) not in ALLOWED and re.search(pattern, code):
                yield f"{path.name}:{number}: {pattern}: {advice}"


def main():
    paths = []
    for folder in FOLDERS:
        of_folder = sorted(p for p in folder.iterdir() if p.suffix in (".cu", ".h", ".cc"))
        if not any(p.suffix == ".cu" for p in of_folder):
            sys.exit(f"no kernels in {folder}")
        paths += of_folder
    found = [problem for path in paths for problem in problems(path)]
    print("\n".join(found) or f"{len(paths)} files keep the contract")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
