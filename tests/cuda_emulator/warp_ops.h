// Shuffles, votes and reductions as warp collectives.
#pragma once
#include <cstring>
#include <type_traits>

#include "cuda_emulator/collectives.h"
#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {

template <class T>
EMU_NO_TSAN T Poison() {
  T v;
  memset(static_cast<void*>(&v), 0xFF, sizeof v);
  return v;
}

template <class T>
struct ShuffleArgs {
  T in, out;
  int src;
};

template <class T>
EMU_NO_TSAN void ShuffleLanes(unsigned lanes, void* const* args) {
  for (int i = 0; i < 32; ++i) {
    if (!(lanes >> i & 1)) continue;
    auto& a = *static_cast<ShuffleArgs<T>*>(args[i]);
    // Reading a lane that does not take part is undefined in CUDA: hand out poison.
    const bool takes_part = lanes >> a.src & 1;
    a.out = takes_part ? static_cast<ShuffleArgs<T>*>(args[a.src])->in : Poison<T>();
  }
}

template <class T>
T Shuffle(const char* name, unsigned mask, T v, int src, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  ShuffleArgs<T> a{v, v, src & 31};
  WarpCollective(name, mask, &a, &ShuffleLanes<T>, site);
  return a.out;
}

template <class T>
struct ReduceArgs {
  T value, out;
};

EMU_NO_TSAN inline void BallotLanes(unsigned lanes, void* const* args) {
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) {
    if (lanes >> i & 1) {
      bits |= (static_cast<ReduceArgs<unsigned>*>(args[i])->value != 0 ? 1u : 0u) << i;
    }
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes >> i & 1) static_cast<ReduceArgs<unsigned>*>(args[i])->out = bits;
  }
}

inline unsigned Ballot(const char* name, unsigned mask, bool predicate, Site site) {
  ReduceArgs<unsigned> a{predicate ? 1u : 0u, 0};
  WarpCollective(name, mask, &a, &BallotLanes, site);
  return a.out;
}

// Folds all lanes with Op in the order of an xor butterfly (distance 16, 8, .. 1), so that the
// result has the bits of the shuffle sequence it stands for. Lanes missing from the mask are
// skipped, which only integer reductions may rely on.
template <class T, class Op>
EMU_NO_TSAN void ReduceLanes(unsigned lanes, void* const* args) {
  T x[32];
  bool has[32];
  for (int i = 0; i < 32; ++i) {
    has[i] = lanes >> i & 1;
    if (has[i]) x[i] = static_cast<ReduceArgs<T>*>(args[i])->value;
  }
  for (int d = 16; d > 0; d /= 2) {
    for (int i = 0; i < d; ++i) {
      if (has[i] && has[i + d]) x[i] = Op()(x[i], x[i + d]);
      if (!has[i] && has[i + d]) x[i] = x[i + d];
      has[i] = has[i] || has[i + d];
    }
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes >> i & 1) static_cast<ReduceArgs<T>*>(args[i])->out = x[0];
  }
}

template <class Op, class T>
T Reduce(const char* name, unsigned mask, T v, Site site) {
  ReduceArgs<T> a{v, v};
  WarpCollective(name, mask, &a, &ReduceLanes<T, Op>, site);
  return a.out;
}

}  // namespace vitrine::emu
