#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/reference/dot.h"
#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

// One query head of one row, and how it scores keys.
struct Query {
  const PagedBatch& batch;
  const KvCache& kv;
  const float* q;  // [head_dim]
  int sequence;
  int position;
  int layer;
  int kv_head;
  float scale;
  float softcap;
  int window;
  float alibi_slope;

  int first_key() const { return window == 0 ? 0 : std::max(0, position - window + 1); }
  const float* Cached(KvPart part, int key) const {
    const KvPlace place = PlaceOf(batch, sequence, key);
    return kv.At(layer, part, kv_head, place.block, place.slot);
  }
};

inline double Score(const Query& query, int key) {
  const int head_dim = query.kv.spec().head_dim;
  double score = query.scale * Dot(query.q, query.Cached(KvPart::kKey, key), head_dim);
  if (query.softcap != 0.0f) score = query.softcap * std::tanh(score / query.softcap);
  return score + double{query.alibi_slope} * (key - query.position);
}

}  // namespace vitrine::reference
