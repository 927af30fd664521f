#!/usr/bin/env python3
"""Breaks shipped kernels one by one and expects an op test to notice: tests the tests, by hand.

usage: tests/cuda_emulator/mutants.py BUILD_FOLDER [NAME...]

BUILD_FOLDER holds a built cuda_ops_test (-DVITRINE_CUDA=EMULATED, Ninja). Each mutant is compiled
beside it, linked in place of the kernel it changes, and run against the tests of its op. The exit
code is 1 when a mutant survives, does not compile, or its text is no longer in the kernel.
"""
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = "kernels/cuda"
TIMEOUT_S = 600


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    tests: str  # gtest filter
    unit: str = ""  # The kernel to compile, where `file` is a header.


MUTANTS = [
    Mutant("norm-skips-last-columns", "rms_norm.cu", "c < p.columns; c += kThreads) {\n    squares",
           "c < p.columns - 1; c += kThreads) {\n    squares", "*RmsNormTest*cuda*"),
    Mutant("norm-epsilon-after-root", "rms_norm_add.cu",
           "1.0f / sqrtf(squares / static_cast<float>(p.columns) + p.epsilon)",
           "1.0f / (sqrtf(squares / static_cast<float>(p.columns)) + p.epsilon)",
           "*RmsNormAddTest*cuda*"),
    Mutant("layer-norm-variance-about-zero", "layer_norm.cu",
           "__fmaf_rn(input[c] - mean, input[c] - mean, squares)",
           "__fmaf_rn(input[c], input[c], squares)", "*LayerNormTest*cuda*"),
    Mutant("block-sum-without-first-barrier", "reduce.h",
           "scratch[threadIdx.x / 32] = v;\n  __syncthreads();", "scratch[threadIdx.x / 32] = v;",
           "*RmsNormTest*cuda*", "rms_norm"),
    Mutant("block-sum-without-last-barrier", "reduce.h",
           "  __syncthreads();  // before the caller reuses the scratch\n", "",
           "*LayerNormTest*cuda*", "layer_norm"),
    Mutant("embed-low-nibble-only", "embed.cu", ">> (at % 2 * 4) & 0xf", "& 0xf",
           "*EmbedTest*cuda*"),
    Mutant("embed-reads-nothing-drawn", "embed.cu", "TokenOf(p.token_ids[blockIdx.x], p.drawn)",
           "max(p.token_ids[blockIdx.x], 0)", "*EmbedTest*cuda*"),
    Mutant("gather-by-place", "gather_rows.cu", "static_cast<size_t>(p.row_ids[blockIdx.x])",
           "static_cast<size_t>(blockIdx.x)", "*GatherRowsTest*cuda*"),
    Mutant("rope-turns-backwards", "rope_write_kv.cu",
           "return is_first ? kept - turned : kept + turned;",
           "return is_first ? kept + turned : kept - turned;", "*Rope*cuda*"),
    Mutant("rope-first-block-only", "rope_write_kv.cu", "place.position / kKvBlockTokens];", "0];",
           "*Rope*cuda*"),
    Mutant("rope-layer-norm-without-mean", "rope_write_kv.cu",
           "values[g * span + i] - mean;", "values[g * span + i];", "*Rope*cuda*"),
    Mutant("rope-without-barrier-after-norms", "rope_write_kv.cu",
           "  __syncthreads();\n\n  const int block", "\n  const int block", "*Rope*cuda*"),
    Mutant("decode-merges-one-tile-less", "attention_decode.cu",
           "range.last - range.first + 1, p.batch.row_begin[sequence]",
           "range.last - range.first, p.batch.row_begin[sequence]", "*PagedAttention*cuda_fast"),
    Mutant("decode-states-over-tiles", "attention_decode.cu",
           "  __syncthreads();  // States take the place of the tiles.\n", "",
           "*PagedAttention*cuda_fast"),
    Mutant("decode-without-copy-wait", "attention_decode.cu", "  gpu::CpAsyncWait<0>();\n", "",
           "*PagedAttention*cuda_fast"),
    Mutant("decode-sink-of-other-head", "attention_decode.cu",
           "softmax.Merge({p.sinks[head], 1.0f})", "softmax.Merge({p.sinks[0], 1.0f})",
           "*PagedAttention*cuda_fast"),
    Mutant("prefill-reloads-too-early", "attention_prefill.cu",
           "    __syncthreads();  // Before this buffer is loaded again.\n", "",
           "*PagedAttention*cuda_fast"),
    Mutant("prefill-wait-too-lenient", "attention_prefill.cu", "gpu::CpAsyncWait<1>();",
           "gpu::CpAsyncWait<2>();", "*PagedAttention*cuda_fast"),
    Mutant("window-one-key-more", "attention_math.h", "query - rule.window + 1",
           "query - rule.window", "*PagedAttention*cuda*", "attention_scalar"),
    Mutant("causal-sees-next-key", "attention_math.h", "return key <= query &&",
           "return key <= query + 1 &&", "*PagedAttention*cuda_fast", "attention_prefill"),
    Mutant("rows-ignore-window", "attention_rows.cu", "p.windows[item.layer] : 0", "0 : 0",
           "*Attention*cuda*"),
    Mutant("reduce-highest-key-on-ties", "attention_reduce.cu",
           "<< 32 | ~static_cast<uint32_t>(key);", "<< 32 | static_cast<uint32_t>(key);",
           "*Attention*cuda*"),
    Mutant("small-product-loses-last-range", "mat_mul_small.cu", "w < kWarps; ++w) sum",
           "w < kWarps - 1; ++w) sum", "*MatMulTest*cuda_fast"),
    Mutant("small-product-minimum-dropped", "weight_chunks.h",
           "if constexpr (Chunk::kHasMin) acc[e] =", "if constexpr (false) acc[e] =",
           "*MatMulTest*cuda_fast", "mat_mul_small"),
    Mutant("large-product-without-barrier", "mat_mul_large.cu",
           "    __syncthreads();\n    Chunk next", "    Chunk next", "*MatMulTest*cuda_fast"),
    Mutant("large-product-rows-past-end", "mat_mul_large.cu", "if (row >= p.rows) continue;",
           "if (row > p.rows) continue;", "*MatMulTest*cuda_fast"),
    Mutant("large-product-other-order", "mat_mul_large.cu",
           "if ((chunk + 1) % range != 0 && chunk + 1 != chunks) continue;",
           "if (chunk + 1 != chunks) continue;", "*MatMulTest*cuda_fast"),
    Mutant("softcap-forgotten", "mat_mul_epilogue.h", "if (p.softcap > 0) value =",
           "if (false) value =", "*MatMulTest*cuda*", "mat_mul_exact"),
    Mutant("rope-clips-nan", "rope_write_kv.cu", "clip > 0.0f && x < -clip",
           "clip > 0.0f && !(x >= -clip)", "*Rope*cuda*"),
    Mutant("sample-running-sum-inclusive", "sample_filter.h",
           "const bool exceeds = running > target;", "const bool exceeds = running >= target;",
           "*SampleTest*cuda*", "sample"),
    Mutant("sample-bins-not-cleared", "sample_filter.h", "if (thread < kBins) bins[thread] = 0;",
           "if (thread < kBins && shift == kTopShift) bins[thread] = 0;", "*SampleTest*cuda*",
           "sample"),
    Mutant("sample-row-bins-not-cleared", "sample.cu", "    search.bins[threadIdx.x] = 0;\n", "",
           "*SampleTest*cuda*"),
    Mutant("sample-part-loses-its-last", "sample.cu", "min(begin + part_tokens, p.vocabulary)",
           "min(begin + part_tokens - 1, p.vocabulary)", "*SampleTest*cuda*"),
    Mutant("sample-more-parts-than-shares", "sample.cu",
           "std::max(kLeastPartTokens, (vocabulary + kMostParts - 1) / kMostParts)",
           "std::max(kLeastPartTokens, vocabulary / kMostParts)", "*SampleTest*cuda*"),
    Mutant("sample-zeros-differ", "sample_filter.h", "IsNan(logit) ? ~0u : LogitKey(logit);",
           "IsNan(logit) ? ~0u : LogitKey(logit) - (__float_as_uint(logit) == 0x80000000u);",
           "*SampleTest*cuda*", "sample"),
    Mutant("sample-all-ties-stay", "sample.cu", "if (needed * weight >= crossing.at_key) return",
           "if (needed > 0) return", "*SampleTest*cuda*"),
    Mutant("logprobs-rank-of-equals", "logprobs.cu", "order(logit, id) > order_of_token",
           "order(logit, id) >= order_of_token", "*LogprobsTest*cuda*"),
    Mutant("logprobs-of-unadjusted-row", "sample_filter.h", "(is_adjusted ? adjusted : logits) +",
           "logits +", "*LogprobsTest*cuda*", "logprobs"),
    Mutant("ban-hides-nan", "adjust_logits.cu", "bans_others ? BannedLogit(logits[i])",
           "bans_others ? -INFINITY", "*AdjustLogits*cuda*"),
    Mutant("penalty-before-barrier", "adjust_logits.cu",
           "  if (list.size > 0) __syncthreads();\n", "", "*AdjustLogits*cuda*"),
]


class Build:
    """What the build folder's Ninja files say of cuda_ops_test."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.commands = subprocess.run(
            ["ninja", "-C", self.folder, "-t", "commands", "cuda_ops_test"],
            check=True, capture_output=True, text=True).stdout.splitlines()

    def compile_command(self, unit):
        (line,) = [c for c in self.commands if re.search(rf"-c \S*{KERNELS}/{unit}\.cu$", c)]
        return shlex.split(line)

    def link_command(self):
        (line,) = [c for c in self.commands if " -o tests/cuda_emulator/cuda_ops_test " in c]
        return shlex.split(line.removeprefix(": && ").removesuffix(" && :"))

    def run(self, command):
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)


def replace_argument(command, option, value):
    """Returns the command with the argument after `option` changed, and what it was."""
    at = command.index(option) + 1
    return command[:at] + [value] + command[at + 1:], command[at]


def build_mutant(mutant, build, work):
    """The program with the mutant in it, or what is wrong with the mutant."""
    shutil.copytree(ROOT / KERNELS, work / KERNELS)
    path = work / KERNELS / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return None, f"its text is {text.count(mutant.old)} times in {mutant.file}"
    path.write_text(text.replace(mutant.old, mutant.new))
    unit = mutant.unit or pathlib.Path(mutant.file).stem
    command = build.compile_command(unit)
    # A mutant may leave a variable unused.
    command = [a for a in command if a != "-Werror"] + ["-w"]
    command = [a for a in command if not a.startswith("-M") and not a.endswith(".d")]
    command, original = replace_argument(command, "-o", str(work / "mutant.o"))
    command, _ = replace_argument(command, "-c", str(work / KERNELS / f"{unit}.cu"))
    compiler = next(i for i, a in enumerate(command) if a.endswith(("++", "++-22", "g++-12")))
    command.insert(compiler + 1, f"-I{work}")
    result = build.run([a for a in command if a != original])
    if result.returncode != 0:
        return None, "does not compile:\n" + result.stderr
    program = work / "cuda_ops_test"
    link, _ = replace_argument(build.link_command(), "-o", str(program))
    # First of all objects: of an inline function that several hold, the first definition counts.
    first = next(i for i, a in enumerate(link) if a.endswith(".o"))
    link = [a for a in link[:first] + [str(work / "mutant.o")] + link[first:] if a != original]
    result = build.run(link)
    return (program, "") if result.returncode == 0 else (None, "does not link:\n" + result.stderr)


def run_tests(mutant, program):
    """The first test that failed, or "" where all passed or there was none."""
    try:
        result = subprocess.run(
            [program, f"--gtest_filter={mutant.tests}", "--gtest_fail_fast"], capture_output=True,
            text=True, timeout=TIMEOUT_S, env={**os.environ, "EMU_SEED": "1"})
    except subprocess.TimeoutExpired:
        return ""
    failed = re.search(r"\[  FAILED  \] (\S+?),", result.stdout)
    started = re.findall(r"\[ RUN      \] (\S+)", result.stdout)
    if failed:
        return failed.group(1)
    return f"{started[-1]} (signal {-result.returncode})" if result.returncode != 0 else ""


def judge(mutant, build):
    with tempfile.TemporaryDirectory(prefix="mutant-") as work:
        program, problem = build_mutant(mutant, build, pathlib.Path(work))
        if program is None:
            return False, problem
        caught_by = run_tests(mutant, program)
        return bool(caught_by), caught_by or "SURVIVES"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    build = Build(sys.argv[1])
    chosen = [m for m in MUTANTS if len(sys.argv) == 2 or m.name in sys.argv[2:]]
    good = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (caught, text) in zip(chosen, pool.map(lambda m: judge(m, build), chosen)):
            good += caught
            print(f"{mutant.name:34} {mutant.file:22} {text}", flush=True)
    print(f"{good} of {len(chosen)} caught")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
