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

// Normalises `heads` heads, each by itself or all together, as the weight's length says.
void NormalizeHeads(DeviceSpan<const float> weight, float epsilon, int heads, int head_dim,
                    float* values) {
  if (weight.empty()) return;
  const int length = static_cast<int>(weight.size());
  for (int begin = 0; begin < heads * head_dim; begin += length) {
    double squares = 0;
    for (int i = 0; i < length; ++i) squares += double{values[begin + i]} * values[begin + i];
    const double scale = 1 / std::sqrt(squares / length + epsilon);
    for (int i = 0; i < length; ++i) {
      values[begin + i] = static_cast<float>(values[begin + i] * scale * weight.data()[i]);
    }
  }
}

void WriteRow(const RopeKvTarget& target, int sequence, int row, int position, float* qkv) {
  const KvCache& kv = AsKvCache(target.kv);
  const int head_dim = kv.spec().head_dim;
  const int kv_heads = kv.spec().num_kv_heads;
  NormalizeHeads(target.q_norm, target.norm_epsilon, target.num_heads, head_dim, qkv);
  NormalizeHeads(target.k_norm, target.norm_epsilon, kv_heads, head_dim,
                 qkv + target.num_heads * head_dim);
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
