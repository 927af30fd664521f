#pragma once

#include "kernels/buffer.h"
#include "kernels/paged_batch.h"

namespace vitrine {

// Causal attention of every row over the cached keys of its sequence, its own included:
//   s_j = scale * dot(q, k_j), then softcap * tanh(s_j / softcap), then + slope * (j - i)
//   output = sum_j softmax(s)_j v_j over the visible keys j <= i, j > i - window
// Query head h reads key/value head h / (num_heads / num_kv_heads). Keys are reduced in segments
// of kAttentionSegmentKeys at absolute positions that are merged in ascending order, so the cut
// into chunks, the neighbours in the batch and the thread count change no bit of a row.
// Over a bf16 cache a backend may take q and the softmax weights in bf16 too; over a kQ8_0 cache q
// is taken in int8 with one scale (largest / 127) for its head.
inline constexpr int kAttentionSegmentKeys = 256;

struct PagedAttentionArgs {
  DeviceSpan<const float> q;  // [rows, num_heads, head_dim], rotated
  const PagedBatch* batch = nullptr;
  const KvStorage* kv = nullptr;  // Already holds the keys and values of the step's rows.
  int layer = 0;
  int num_heads = 0;  // A multiple of kv's num_kv_heads.
  float scale = 1.0f;
  float softcap = 0.0f;                // 0: none
  int window = 0;                      // 0: none; else the row's own key and window - 1 before it
  DeviceSpan<const float> sinks = {};  // [num_heads] extra logits that take weight, or empty
  DeviceSpan<const float> alibi_slopes = {};  // [num_heads], or empty (Press et al., 2021)
  RowBuffer* output = nullptr;                // [rows, num_heads * head_dim]
  DeviceSpan<float> log_sum_exp = {};  // [rows, num_heads], natural log, sinks included; or empty
};

}  // namespace vitrine
