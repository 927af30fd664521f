#include "kernels/cpu/instruction_set.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace vitrine::cpu {
namespace {

bool RunsAvx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// The kernel hands out the tile registers on demand, to the threads of a process that asked.
bool RunsAmx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of Linux 5.16
  constexpr int kTileData = 18;
  return RunsAvx512() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool RunsAvx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

bool RunsAvxVnni() {
#if defined(__x86_64__)
  return RunsAvx2() && __builtin_cpu_supports("avxvnni");
#else
  return false;
#endif
}

struct InstructionSet {
  std::string_view name;
  bool (*runs)();
  const KernelTable* (*kernels)();
};

constexpr std::array<InstructionSet, 5> kInstructionSets = {{
    {"amx", RunsAmx, AmxKernels},
    {"avx512", RunsAvx512, Avx512Kernels},
    {"avxvnni", RunsAvxVnni, AvxVnniKernels},
    {"avx2", RunsAvx2, Avx2Kernels},
    {"portable", [] { return true; }, PortableKernels},
}};

}  // namespace

absl::StatusOr<const KernelTable*> SelectKernels(std::string_view name) {
  for (const InstructionSet& set : kInstructionSets) {
    if (!name.empty() && name != set.name) continue;
    // Asked in this order: building a table may run the instructions of its set.
    const bool runs = set.runs();
    const KernelTable* kernels = runs ? set.kernels() : nullptr;
    if (kernels != nullptr) return kernels;
    if (name.empty()) continue;
    return absl::UnavailableError(
        absl::StrCat("instruction set ", std::string(name), ": ",
                     runs ? "not part of this build" : "not supported by this processor"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "instruction set ", std::string(name), ": must be amx, avx512, avxvnni, avx2 or portable"));
}

}  // namespace vitrine::cpu
