// Every planted fault must be noticed by the modes named here, and correct code by none. Each
// run is a process of its own, because some faults end in a signal or a sanitizer report.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

// kLuck, as an expectation: the garbage that the fault reads decides whether the result is wrong.
enum Verdict { kMiss, kWrong, kStop, kCrash, kAsan, kUbsan, kTsan, kMsan, kOther, kLuck };
const char* const kVerdictNames[] = {"missed", "wrong", "stopped", "crashed", "ASan",
                                     "UBSan",  "TSan",  "MSan",    "other",   "luck"};

// Which sanitizer the fault runner was built with; FAULT_BUILD is the build's VITRINE_SANITIZE.
enum Build { kPlain, kAddress, kThread, kMemory };
constexpr std::string_view kSanitizer = FAULT_BUILD;
constexpr Build kBuild = kSanitizer == "thread"   ? kThread
                         : kSanitizer == "memory" ? kMemory
                         : kSanitizer.empty()     ? kPlain
                                                  : kAddress;

Verdict Classify(int status, const std::string& log) {
  const auto has = [&](const char* text) { return log.find(text) != std::string::npos; };
  if (has("stopped:")) return kStop;
  if (has("AddressSanitizer")) return kAsan;
  if (has("ThreadSanitizer: data race")) return kTsan;
  if (has("MemorySanitizer")) return kMsan;
  if (has("runtime error")) return kUbsan;
  // popen runs a shell, which reports a signal as 128 + number.
  if (WIFSIGNALED(status) || WEXITSTATUS(status) > 128) return kCrash;
  if (WEXITSTATUS(status) == 0) return kMiss;
  return WEXITSTATUS(status) == 1 ? kWrong : kOther;
}

Verdict RunFault(const std::string& name, const std::string& environment) {
  // Whatever the caller's environment says, a run sees only what this table sets.
  const std::string command =
      "env -u EMU_SEED -u EMU_ORDER -u EMU_DEFERRED -u EMU_PROTECT "
      "TSAN_OPTIONS='halt_on_error=0 exitcode=66' " +
      environment + " " + FAULT_RUNNER + " " + name + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string log;
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) log += buffer.data();
  const Verdict v = Classify(pclose(pipe), log);
  EXPECT_NE(v, kOther) << name << ": " << log;
  return v;
}

// A copy of a struct through a misaligned pointer: g++ checks it, clang does not.
#ifdef __clang__
constexpr Verdict kMisaligned = kMiss;
#else
constexpr Verdict kMisaligned = kUbsan;
#endif

struct KernelFault {
  const char* name;
  Verdict forward, reverse, random, guarded;  // plain build
  Verdict asan, tsan, msan;
};
// clang-format off
constexpr KernelFault kKernelFaults[] = {
    {"norm-missing-barrier",         kWrong, kMiss,  kWrong, kWrong, kWrong, kTsan,  kMsan},
    {"norm-uninitialised-shared",    kWrong, kWrong, kWrong, kWrong, kWrong, kWrong, kMsan},
    {"norm-oob-global-read",         kLuck,  kLuck,  kLuck,  kCrash, kAsan,  kLuck,  kMsan},
    {"norm-oob-shared-write",        kStop,  kStop,  kStop,  kStop,  kUbsan, kStop,  kMsan},
    {"norm-divergent-barrier",       kStop,  kStop,  kStop,  kStop,  kStop,  kStop,  kStop},
    {"norm-misaligned-vector",       kCrash, kCrash, kCrash, kCrash, kMisaligned, kMiss, kMiss},
    {"decode-missing-barrier",       kWrong, kWrong, kWrong, kWrong, kWrong, kTsan,  kMsan},
    {"decode-uninitialised-shared",  kWrong, kWrong, kWrong, kWrong, kWrong, kWrong, kMsan},
    {"decode-oob-table",             kWrong, kWrong, kWrong, kWrong, kAsan,  kWrong, kMsan},
    {"decode-past-context",          kWrong, kWrong, kWrong, kWrong, kWrong, kWrong, kWrong},
    {"product-missing-async-wait",   kWrong, kWrong, kWrong, kWrong, kWrong, kWrong, kMsan},
    {"product-overwrite-tile",       kMiss,  kMiss,  kWrong, kWrong, kWrong, kTsan,  kMsan},
    {"exchange-missing-syncwarp",    kWrong, kWrong, kWrong, kWrong, kWrong, kTsan,  kMsan},
    {"histogram-non-atomic",         kMiss,  kMiss,  kMiss,  kMiss,  kMiss,  kTsan,  kMiss},
    {"mask-wrong",                   kStop,  kStop,  kStop,  kStop,  kStop,  kStop,  kStop},
    {"dynamic-overflow",             kStop,  kStop,  kStop,  kStop,  kAsan,  kStop,  kMiss},
};
// clang-format on

void ExpectVerdict(Verdict got, Verdict want, const std::string& where) {
  const bool as_expected = want == kLuck ? got == kMiss || got == kWrong : got == want;
  EXPECT_TRUE(as_expected) << where << ": " << kVerdictNames[got] << ", expected "
                           << kVerdictNames[want];
}

class KernelFaultTest : public ::testing::TestWithParam<KernelFault> {};

TEST_P(KernelFaultTest, IsNoticedAsExpected) {
  const KernelFault& f = GetParam();
  switch (kBuild) {
    case kPlain:
      ExpectVerdict(RunFault(f.name, "EMU_ORDER=forward"), f.forward, "forward");
      ExpectVerdict(RunFault(f.name, "EMU_ORDER=backward"), f.reverse, "reverse");
      ExpectVerdict(RunFault(f.name, "EMU_PROTECT=1"), f.guarded, "guard pages");
      for (int seed = 1; seed <= 20; ++seed) {
        const std::string s = std::to_string(seed);
        ExpectVerdict(RunFault(f.name, "EMU_SEED=" + s), f.random, "seed " + s);
      }
      return;
    case kAddress:
      return ExpectVerdict(RunFault(f.name, ""), f.asan, "ASan + UBSan");
    case kThread:
      return ExpectVerdict(RunFault(f.name, ""), f.tsan, "clang TSan");
    case kMemory:
      return ExpectVerdict(RunFault(f.name, ""), f.msan, "clang MSan");
  }
}

TEST_P(KernelFaultTest, SomeModeNotices) {
  const KernelFault& f = GetParam();
  const Verdict modes[] = {f.random, f.guarded, f.asan, f.tsan, f.msan};
  EXPECT_TRUE(std::any_of(std::begin(modes), std::end(modes),
                          [](Verdict v) { return v != kMiss && v != kLuck; }));
}

std::string ParamName(const std::string& dashed) {
  std::string name = dashed;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, KernelFaultTest, ::testing::ValuesIn(kKernelFaults),
                         [](const auto& fault) { return ParamName(fault.param.name); });

struct HostFault {
  const char* name;
  Verdict plain, deferred, guarded;  // plain build
  Verdict tsan;                      // with deferred streams
};
constexpr HostFault kHostFaults[] = {
    {"host-read-before-sync", kMiss, kWrong, kMiss, kWrong},
    {"host-missing-event-wait", kMiss, kWrong, kMiss, kWrong},
    {"host-missing-threadfence", kMiss, kMiss, kMiss, kTsan},
    {"host-two-blocks-one-cell", kMiss, kMiss, kMiss, kTsan},
    {"host-pointer-argument", kStop, kStop, kStop, kStop},
    {"host-reads-device-memory", kMiss, kMiss, kCrash, kMiss},
    {"host-shared-without-opt-in", kWrong, kWrong, kWrong, kWrong},
    {"host-block-of-2048", kWrong, kWrong, kWrong, kWrong},
};

class HostFaultTest : public ::testing::TestWithParam<HostFault> {};

TEST_P(HostFaultTest, IsNoticedAsExpected) {
  const HostFault& f = GetParam();
  if (kBuild == kThread) {
    return ExpectVerdict(RunFault(f.name, "EMU_DEFERRED=1"), f.tsan, "clang TSan");
  }
  if (kBuild != kPlain) GTEST_SKIP() << "needs the plain or the TSan build";
  ExpectVerdict(RunFault(f.name, ""), f.plain, "plain");
  ExpectVerdict(RunFault(f.name, "EMU_PROTECT=1"), f.guarded, "protected memory");
  int noticed = 0;
  for (int seed = 1; seed <= 10; ++seed) {
    const Verdict v = RunFault(f.name, "EMU_DEFERRED=1 EMU_SEED=" + std::to_string(seed));
    noticed += v == f.deferred;
  }
  EXPECT_GE(noticed, 8) << "deferred streams";  // progress of other streams is random
}

INSTANTIATE_TEST_SUITE_P(All, HostFaultTest, ::testing::ValuesIn(kHostFaults),
                         [](const auto& fault) { return ParamName(fault.param.name); });

TEST(FaultMatrixTest, CorrectCodeIsSilent) {
  for (int seed = 1; seed <= (kBuild == kPlain ? 20 : 3); ++seed) {
    const std::string s = "EMU_SEED=" + std::to_string(seed);
    ExpectVerdict(RunFault("none", s), kMiss, s);
    ExpectVerdict(RunFault("none", "EMU_DEFERRED=1 " + s), kMiss, "deferred, " + s);
  }
  if (kBuild != kPlain) return;
  ExpectVerdict(RunFault("none", "EMU_ORDER=forward"), kMiss, "forward");
  ExpectVerdict(RunFault("none", "EMU_ORDER=backward"), kMiss, "reverse");
  ExpectVerdict(RunFault("none", "EMU_PROTECT=1"), kMiss, "protected memory");
}

}  // namespace
