#include "cuda_emulator/options.h"

#include <cstdlib>

namespace vitrine::emu {
namespace {

uint64_t random_state = 0;

Options FromEnvironment() {
  Options o;
  if (const char* s = getenv("EMU_SEED")) o.seed = strtoull(s, nullptr, 10);
  if (const char* s = getenv("EMU_FAULT_AT")) o.fault_at_launch = strtoull(s, nullptr, 10);
  o.deferred_streams = getenv("EMU_DEFERRED") != nullptr;
  o.protect_device_memory = getenv("EMU_PROTECT") != nullptr;
  if (const char* s = getenv("EMU_ORDER")) {
    o.order = *s == 'f' ? Order::kForward : *s == 'b' ? Order::kReverse : Order::kRandom;
  }
  Seed(o.seed);
  return o;
}

}  // namespace

Options& options() {
  static Options o = FromEnvironment();
  return o;
}

Stats& stats() {
  static Stats s;
  return s;
}

void Seed(uint64_t seed) { random_state = seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull; }

uint64_t Random(uint64_t n) {  // xorshift64*
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (random_state * 0x2545F4914F6CDD1Dull >> 16) % n;
}

}  // namespace vitrine::emu
