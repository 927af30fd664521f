#include "kernels/reference/rope_write_kv.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/dot.h"

namespace vitrine::reference {
namespace {

// Rotates one head by `position` from `input` to `output`.
void RotateHead(const RopeKvTarget& target, int position, const float* input, float* output) {
  const int half = target.rotary_dim / 2;
  const int head_dim = target.kv->spec().head_dim;
  const bool interleaved = target.pairing == RopePairing::kInterleaved;
  for (int i = 0; i < half; ++i) {
    const int a = interleaved ? 2 * i : i;
    const int b = interleaved ? 2 * i + 1 : i + half;
    const float cosine = target.cosines.data()[int64_t{position} * half + i];
    const float sine = target.sines.data()[int64_t{position} * half + i];
    const float x = input[a];
    const float y = input[b];
    output[a] = x * cosine - y * sine;
    output[b] = y * cosine + x * sine;
  }
  for (int d = target.rotary_dim; d < head_dim; ++d) output[d] = input[d];
}

// The norm of q or of k.
struct HeadNorm {
  HeadNormKind kind;
  DeviceSpan<const float> weight;
  DeviceSpan<const float> bias;
  float epsilon;
};

// Each head around its mean; one weight for all heads, or one for each.
void LayerNormHeads(const HeadNorm& norm, int heads, int head_dim, float* values) {
  const int length = static_cast<int>(norm.weight.size());
  for (int begin = 0; begin < heads * head_dim; begin += head_dim) {
    double mean = 0;
    for (int i = 0; i < head_dim; ++i) mean += double{values[begin + i]} / head_dim;
    double variance = 0;
    for (int i = 0; i < head_dim; ++i) variance += std::pow(values[begin + i] - mean, 2) / head_dim;
    const double scale = 1 / std::sqrt(variance + norm.epsilon);
    for (int i = 0; i < head_dim; ++i) {
      const int entry = (begin + i) % length;
      const double bias = norm.bias.empty() ? 0.0 : norm.bias.data()[entry];
      const double y = (values[begin + i] - mean) * scale * norm.weight.data()[entry] + bias;
      values[begin + i] = static_cast<float>(y);
    }
  }
}

// Each head by itself or all together, as the weight's length says.
void RmsNormHeads(const HeadNorm& norm, int heads, int head_dim, float* values) {
  const int length = static_cast<int>(norm.weight.size());
  for (int begin = 0; begin < heads * head_dim; begin += length) {
    double squares = 0;
    for (int i = 0; i < length; ++i) squares += double{values[begin + i]} * values[begin + i];
    const double scale = 1 / std::sqrt(squares / length + norm.epsilon);
    for (int i = 0; i < length; ++i) {
      values[begin + i] = static_cast<float>(values[begin + i] * scale * norm.weight.data()[i]);
    }
  }
}

void NormalizeHeads(const HeadNorm& norm, int heads, int head_dim, float* values) {
  if (norm.weight.empty()) return;
  if (norm.kind == HeadNormKind::kRms) {
    RmsNormHeads(norm, heads, head_dim, values);
  } else {
    LayerNormHeads(norm, heads, head_dim, values);
  }
}

void WriteRow(const RopeKvTarget& target, int sequence, int row, int position, float* qkv) {
  const KvCache& kv = AsKvCache(target.kv);
  const int head_dim = kv.spec().head_dim;
  const int kv_heads = kv.spec().num_kv_heads;
  NormalizeHeads({target.norm_kind, target.q_norm, target.q_norm_bias, target.norm_epsilon},
                 target.num_heads, head_dim, qkv);
  NormalizeHeads({target.norm_kind, target.k_norm, target.k_norm_bias, target.norm_epsilon},
                 kv_heads, head_dim, qkv + target.num_heads * head_dim);
  float* q = target.q.data() + int64_t{row} * target.num_heads * head_dim;
  for (int h = 0; h < target.num_heads; ++h) {
    RotateHead(target, position, qkv + h * head_dim, q + h * head_dim);
  }
  const float* k = qkv + target.num_heads * head_dim;
  const float* v = k + kv_heads * head_dim;
  const KvPlace place = PlaceOf(*target.batch, sequence, position);
  for (int h = 0; h < kv_heads; ++h) {
    float* key = kv.At(target.layer, KvPart::kKey, h, place.block, place.slot);
    float* value = kv.At(target.layer, KvPart::kValue, h, place.block, place.slot);
    RotateHead(target, position, k + h * head_dim, key);
    for (int d = 0; d < head_dim; ++d) {
      key[d] = kv.Rounded(key[d]);
      value[d] = kv.Rounded(v[h * head_dim + d]);
    }
  }
}

}  // namespace

void RopeWriteKv(const RopeWriteKvArgs& args) {
  const KvStorageSpec& spec = args.target.kv->spec();
  const int64_t columns = int64_t{args.target.num_heads + 2 * spec.num_kv_heads} * spec.head_dim;
  std::vector<float> qkv(static_cast<size_t>(columns));
  ForEachRow(*args.target.batch, [&](int sequence, int row, int position) {
    std::copy_n(args.qkv.data() + row * columns, columns, qkv.data());
    if (const float clip = args.target.clip; clip > 0.0f) {
      for (float& value : qkv) value = std::clamp(value, -clip, clip);
    }
    WriteRow(args.target, sequence, row, position, qkv.data());
  });
}

void MatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args, Scratch& scratch) {
  const Matrix& weight = AsMatrix(args.weight);
  const int rows = args.target.batch->rows();
  VITRINE_CHECK_LE(static_cast<size_t>(rows * weight.rows()), scratch.qkv.size());
  for (int64_t n = 0; n < weight.rows(); ++n) {
    const float* weight_row = weight.Row(n);
    const double bias = args.bias.empty() ? 0.0 : args.bias.data()[n];
    for (int r = 0; r < rows; ++r) {
      const double y = Dot(AsRows(args.input).Row(r), weight_row, weight.columns()) + bias;
      scratch.qkv[static_cast<size_t>(r * weight.rows() + n)] = static_cast<float>(y);
    }
  }
  RopeWriteKv({.qkv = {scratch.qkv.data(), scratch.qkv.size()}, .target = args.target});
}

}  // namespace vitrine::reference
