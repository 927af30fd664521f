// Rotation of queries and keys, and the stores into the paged cache.
#pragma once

#include "kernels/cpu/mat_mul_simd.h"

namespace vitrine::cpu {

// 16 dimensions of one row of one head, from `dim` on; `count` of them exist.
struct HeadPart {
  int dim;
  int count;
};

// Where one row of one head goes: a query, or a key or value in the cache.
enum class HeadKind { kQuery, kKey, kValue };

template <class S>
class HeadWriter {
 public:
  HeadWriter(const RopeKvTarget& target, const RowPlace* places)
      : target_(target),
        places_(places),
        kv_(AsKv(target.kv)),
        head_dim_(kv_.spec().head_dim),
        kv_heads_(kv_.spec().num_kv_heads),
        is_f32_(kv_.spec().dtype == DType::kF32),
        has_int8_keys_(kv_.spec().dtype == DType::kQ8_0) {}

  int head_dim() const { return head_dim_; }

  // True where 16 dimensions need nothing of the rest of their head.
  bool IsLocal() const {
    return target_.pairing == RopePairing::kInterleaved && target_.rotary_dim == head_dim_ &&
           head_dim_ % 16 == 0 && target_.q_norm.empty() && target_.k_norm.empty() &&
           target_.clip == 0.0f;
  }

  VITRINE_INLINE void WriteLocal(int row, int head, int dim, typename S::F values) const {
    const HeadKind kind = KindOf(head);
    if (kind != HeadKind::kValue) {
      const size_t angle = Angle(row) + static_cast<size_t>(dim / 2);
      values =
          Rotate(values, S::SwapNeighbours(values), S::LoadTwice(target_.cosines.data() + angle),
                 S::NegateEven(S::LoadTwice(target_.sines.data() + angle)));
    }
    Store(kind, row, head, {dim, 16}, values);
  }

  // The lines that WriteLocal will write.
  VITRINE_INLINE void FetchLocal(int row, int head, int dim) const {
    const HeadKind kind = KindOf(head);
    if (kind == HeadKind::kQuery) return S::FetchForWriting(QueryAt(row, head, dim));
    if (is_f32_ || has_int8_keys_) return;
    const RowPlace& place = places_[row];
    const int key_head = head - target_.num_heads;
    if (kind == HeadKind::kKey) {
      const uint8_t* page = kv_.Keys(target_.layer, key_head, place.block);
      const uint8_t* line = page + (dim / 2 * kKvBlockTokens + place.slot) * 4;
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) S::FetchForWriting(line + i * kKvBlockTokens * 4);
    } else {
      const uint8_t* page = kv_.Values(target_.layer, key_head - kv_heads_, place.block);
      S::FetchForWriting(page + (place.slot / 2 * kv_.padded_dim() + dim) * 4);
    }
  }

  // The factors of RMS norms that span all heads of a row; `values` holds the whole row.
  struct RowFactors {
    float q = 0.0f;
    float k = 0.0f;
  };
  RowFactors FactorsOfRow(const float* values) const {
    RowFactors factors;
    const float* keys = values + target_.num_heads * head_dim_;
    if (SpansRow(target_.q_norm)) factors.q = FactorOf(values, target_.q_norm);
    if (SpansRow(target_.k_norm)) factors.k = FactorOf(keys, target_.k_norm);
    return factors;
  }

  // The whole head of one row.
  void WriteHead(int row, int head, const float* values, const RowFactors& factors) const {
    const HeadKind kind = KindOf(head);
    alignas(64) float prepared[kMaxHeadDim];
    if (target_.clip > 0.0f) {
      ClipHead(values, prepared);
      values = prepared;
    }
    if (kind == HeadKind::kValue) return WriteFrom(kind, row, head, values, 0);
    const bool is_query = kind == HeadKind::kQuery;
    const DeviceSpan<const float>& norm = is_query ? target_.q_norm : target_.k_norm;
    if (!norm.empty()) {
      const int index = is_query ? head : head - target_.num_heads;
      if (target_.norm_kind == HeadNormKind::kRms) {
        RmsNormHead(norm, index, is_query ? factors.q : factors.k, values, prepared);
      } else {
        LayerNormHead(norm, is_query ? target_.q_norm_bias : target_.k_norm_bias, index, values,
                      prepared);
      }
      values = prepared;
    }
    if (target_.pairing == RopePairing::kHalfSplit && target_.rotary_dim % 32 == 0) {
      WriteHalves(kind, row, head, values);
    } else {
      WritePairs(kind, row, head, values);
    }
  }

 private:
  // For every dimension of a head: the other one of its pair, and by what it turns. What is not
  // rotated has cosine 1 and sine 0.
  struct Angles {
    alignas(64) float partners[kMaxHeadDim];
    alignas(64) float cosines[kMaxHeadDim];
    alignas(64) float sines[kMaxHeadDim];  // Negative for the first one of a pair.
  };

  static VITRINE_INLINE typename S::F Rotate(typename S::F x, typename S::F partner,
                                             typename S::F cosine, typename S::F sine) {
    return S::Fma(x, cosine, S::Mul(partner, sine));
  }

  bool HasWeightsOfAllHeads(const DeviceSpan<const float>& norm) const {
    return norm.size() > static_cast<size_t>(head_dim_);
  }

  bool SpansRow(const DeviceSpan<const float>& norm) const {
    return target_.norm_kind == HeadNormKind::kRms && HasWeightsOfAllHeads(norm);
  }

  float FactorOf(const float* values, const DeviceSpan<const float>& norm) const {
    return RmsFactor<S>(values, static_cast<int>(norm.size()), target_.norm_epsilon);
  }

  void ClipHead(const float* values, float* clipped) const {
    const auto high = S::Set(target_.clip);
    const auto low = S::Set(-target_.clip);
    for (int dim = 0; dim < head_dim_; dim += 16) {
      const auto x = LoadUpTo16<S>(values + dim, head_dim_ - dim);
      S::Store(clipped + dim, S::Min(high, S::Max(low, x)));  // NaN stays NaN: it is second.
    }
  }

  void RmsNormHead(const DeviceSpan<const float>& norm, int index, float row_factor,
                   const float* values, float* normalized) const {
    const bool spans_row = SpansRow(norm);
    const auto factor = S::Set(spans_row ? row_factor : FactorOf(values, norm));
    const float* weights = norm.data() + (spans_row ? index * head_dim_ : 0);
    for (int dim = 0; dim < head_dim_; dim += 16) {
      const auto x = S::Mul(LoadUpTo16<S>(values + dim, head_dim_ - dim), factor);
      S::Store(normalized + dim, S::Mul(x, LoadUpTo16<S>(weights + dim, head_dim_ - dim)));
    }
  }

  void LayerNormHead(const DeviceSpan<const float>& norm, const DeviceSpan<const float>& bias,
                     int index, const float* values, float* normalized) const {
    auto sum = S::Zero();
    for (int dim = 0; dim < head_dim_; dim += 16) {
      sum = S::Add(sum, LoadUpTo16<S>(values + dim, head_dim_ - dim));
    }
    const auto mean = S::Set(S::ReduceAdd(sum) / static_cast<float>(head_dim_));
    auto squares = S::Zero();
    for (int dim = 0; dim < head_dim_; dim += 16) {
      const auto centred = Centred(values, dim, mean);
      squares = S::Fma(centred, centred, squares);
    }
    const float variance = S::ReduceAdd(squares) / static_cast<float>(head_dim_);
    const auto factor = S::Set(1.0f / std::sqrt(variance + target_.norm_epsilon));
    const int first = HasWeightsOfAllHeads(norm) ? index * head_dim_ : 0;
    for (int dim = 0; dim < head_dim_; dim += 16) {
      const int count = head_dim_ - dim;
      auto x = S::Mul(S::Mul(Centred(values, dim, mean), factor),
                      LoadUpTo16<S>(norm.data() + first + dim, count));
      if (!bias.empty()) x = S::Add(x, LoadUpTo16<S>(bias.data() + first + dim, count));
      S::Store(normalized + dim, x);
    }
  }

  // Lanes beyond the last dimension stay 0, which the mean is not.
  VITRINE_INLINE typename S::F Centred(const float* values, int dim, typename S::F mean) const {
    const int count = head_dim_ - dim;
    return S::Sub(LoadUpTo16<S>(values + dim, count), count >= 16 ? mean : PartOf<S>(mean, count));
  }

  HeadKind KindOf(int head) const {
    if (head < target_.num_heads) return HeadKind::kQuery;
    return head < target_.num_heads + kv_heads_ ? HeadKind::kKey : HeadKind::kValue;
  }

  // Dimensions from `dim` on, as they are.
  void WriteFrom(HeadKind kind, int row, int head, const float* values, int dim) const {
    for (; dim < head_dim_; dim += 16) {
      const HeadPart part = PartAt(dim);
      Store(kind, row, head, part, LoadUpTo16<S>(values + dim, part.count));
    }
  }

  // Halves of whole vectors: pairs are lanes of two vectors.
  void WriteHalves(HeadKind kind, int row, int head, const float* values) const {
    const int half = target_.rotary_dim / 2;
    const float* cosines = target_.cosines.data() + Angle(row);
    const float* sines = target_.sines.data() + Angle(row);
    for (int dim = 0; dim < half; dim += 16) {
      const auto first = S::Load(values + dim);
      const auto second = S::Load(values + half + dim);
      const auto cosine = S::Load(cosines + dim);
      const auto sine = S::Load(sines + dim);
      const auto negative = S::Mul(sine, S::Set(-1.0f));
      Store(kind, row, head, {dim, 16}, Rotate(first, second, cosine, negative));
      Store(kind, row, head, {half + dim, 16}, Rotate(second, first, cosine, sine));
    }
    WriteFrom(kind, row, head, values, target_.rotary_dim);
  }

  // Any pairs.
  void WritePairs(HeadKind kind, int row, int head, const float* values) const {
    Angles angles;
    FillAngles(row, values, angles);
    int dim = 0;
    for (; dim < target_.rotary_dim; dim += 16) {
      const HeadPart part = PartAt(dim);
      const auto x = Rotate(LoadUpTo16<S>(values + dim, part.count), S::Load(angles.partners + dim),
                            S::Load(angles.cosines + dim), S::Load(angles.sines + dim));
      Store(kind, row, head, part, x);
    }
    WriteFrom(kind, row, head, values, dim);
  }

  float* QueryAt(int row, int head, int dim) const {
    return target_.q.data() + (int64_t{row} * target_.num_heads + head) * head_dim_ + dim;
  }

  HeadPart PartAt(int dim) const { return {dim, head_dim_ - dim < 16 ? head_dim_ - dim : 16}; }

  size_t Angle(int row) const {
    return static_cast<size_t>(places_[row].position) * static_cast<size_t>(target_.rotary_dim / 2);
  }

  void FillAngles(int row, const float* values, Angles& angles) const {
    const float* cosines = target_.cosines.data() + Angle(row);
    const float* sines = target_.sines.data() + Angle(row);
    const int pairs = target_.rotary_dim / 2;
    const bool interleaved = target_.pairing == RopePairing::kInterleaved;
    for (int i = 0; i < pairs; ++i) {
      const int first = interleaved ? 2 * i : i;
      const int second = interleaved ? 2 * i + 1 : i + pairs;
      angles.partners[first] = values[second];
      angles.partners[second] = values[first];
      angles.cosines[first] = angles.cosines[second] = cosines[i];
      angles.sines[first] = -sines[i];
      angles.sines[second] = sines[i];
    }
    const int end = (target_.rotary_dim + 15) / 16 * 16;
    for (int d = target_.rotary_dim; d < end; ++d) {
      angles.partners[d] = 0.0f;
      angles.cosines[d] = 1.0f;
      angles.sines[d] = 0.0f;
    }
  }

  VITRINE_INLINE void Store(HeadKind kind, int row, int head, HeadPart part,
                            typename S::F values) const {
    if (kind == HeadKind::kQuery) {
      StoreUpTo16<S>(QueryAt(row, head, part.dim), values, part.count);
      return;
    }
    const RowPlace& place = places_[row];
    const int key_head = head - target_.num_heads;
    if (kind == HeadKind::kKey) {
      StoreKey(kv_.Keys(target_.layer, key_head, place.block), place.slot, part, values);
    } else {
      StoreValue(kv_.Values(target_.layer, key_head - kv_heads_, place.block), place.slot, part,
                 values);
    }
  }

  VITRINE_INLINE void StoreKey(uint8_t* page, int slot, HeadPart part, typename S::F key) const {
    if (is_f32_) {
      alignas(64) float floats[16];
      S::Store(floats, key);
      float* out = reinterpret_cast<float*>(page) + part.dim * kKvBlockTokens + slot;
      for (int i = 0; i < part.count; ++i) out[i * kKvBlockTokens] = floats[i];
      return;
    }
    if (has_int8_keys_) return StoreInt8Key(page, slot, part.dim, key);
    alignas(32) uint16_t rounded[16];
    S::StoreBf16(rounded, key);
    uint8_t* out = page + (part.dim / 2 * kKvBlockTokens + slot) * 4;
    for (int i = 0; i < part.count / 2; ++i) {
      __builtin_memcpy(out + i * kKvBlockTokens * 4, rounded + 2 * i, 4);
    }
  }

  VITRINE_INLINE void StoreInt8Key(uint8_t* page, int slot, int dim, typename S::F key) const {
    const float largest = S::LargestMagnitude(key, key);
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    alignas(16) int8_t rounded[kKeyGroup];
    S::Quantize(key, inverse, rounded);
    for (int8_t& value : rounded) value = static_cast<int8_t>(value ^ INT8_MIN);
    uint8_t* out = page + (dim / 4 * kKvBlockTokens + slot) * 4;
    for (int i = 0; i < kKeyGroup / 4; ++i) {
      __builtin_memcpy(out + i * kKvBlockTokens * 4, rounded + 4 * i, 4);
    }
    float* scales = KeyScales(page, kv_.padded_dim());
    scales[dim / kKeyGroup * kKvBlockTokens + slot] = largest * (1.0f / 127.0f);
  }

  VITRINE_INLINE void StoreValue(uint8_t* page, int slot, HeadPart part,
                                 typename S::F value) const {
    if (is_f32_) {
      S::Store(reinterpret_cast<float*>(page) + slot * kv_.padded_dim() + part.dim, value);
      return;
    }
    // Tokens 2j and 2j+1 share words and may be written by two workers at once: each writes only
    // its own halves.
    auto* out =
        reinterpret_cast<uint16_t*>(page) + (slot / 2 * kv_.padded_dim() + part.dim) * 2 + slot % 2;
    S::StoreBf16Strided(out, value);
  }

  const RopeKvTarget& target_;
  const RowPlace* places_;
  const CpuKvStorage& kv_;
  const int head_dim_;
  const int kv_heads_;
  const bool is_f32_;
  const bool has_int8_keys_;
};

template <class S>
void RunRopeWriteKv(const WorkerContext& context, const RopeWriteKvPhase& phase) {
  const RopeKvTarget& target = phase.args.target;
  const HeadWriter<S> writer(target, phase.places);
  const int heads = target.num_heads + 2 * target.kv->spec().num_kv_heads;
  const int head_dim = writer.head_dim();
  context.pool.ForEach(context.worker, target.batch->rows(), 1, [&](int64_t item) {
    const int row = static_cast<int>(item);
    const float* values = phase.args.qkv.data() + item * heads * head_dim;
    const auto factors = writer.FactorsOfRow(values);
    for (int head = 0; head < heads; ++head, values += head_dim) {
      if (!writer.IsLocal()) {
        writer.WriteHead(row, head, values, factors);
        continue;
      }
      for (int dim = 0; dim < head_dim; dim += 16) {
        writer.WriteLocal(row, head, dim, S::Load(values + dim));
      }
    }
  });
}

template <class S>
void RunMatMulRopeWriteKv(const WorkerContext& context, const MatMulRopeWriteKvPhase& phase) {
  const MatMulRopeWriteKvArgs& args = phase.args;
  const CpuMatrix& matrix = AsMatrix(args.weight);
  const RowView input = InputOf(context, args.input, phase.private_input);
  const HeadWriter<S> writer(args.target, phase.places);
  const int total_rows = args.target.batch->rows();
  const int panels_per_head = matrix.panels_per_head();
  // Pairs within a panel need no other panel: the smaller unit shares out more evenly.
  const bool is_local = writer.IsLocal();
  const int panel_count = static_cast<int>(matrix.panels().size());
  const int unit_panels = is_local ? UnitPanels(context, panel_count, total_rows) : panels_per_head;
  auto& products = context.scratch.products;
  if (total_rows <= kTileRows) FetchRows(input, total_rows);
  const auto visit = [&](int first, int count, int first_row, int rows) {
    for (int p = 0; p < count && is_local; ++p) {
      const int head = (first + p) / panels_per_head;
      const int dim = (first + p) % panels_per_head * kPanelRows;
      for (int r = 0; r < rows; ++r) writer.FetchLocal(first_row + r, head, dim);
    }
    MultiplyPanels(context, matrix, first, count, input, first_row, rows);
    for (int p = 0; p < count && !args.bias.empty(); ++p) {
      const auto bias = LoadBias<S>(args.bias, matrix.panels().data()[first + p]);
      for (int r = 0; r < rows; ++r) {
        float* value = products[p] + kPanelRows * r;
        S::Store(value, S::Add(S::Load(value), bias));
      }
    }
    if (is_local) {
      for (int p = 0; p < count; ++p) {
        const int panel = first + p;
        const int head = panel / panels_per_head;
        const int dim = panel % panels_per_head * kPanelRows;
        for (int r = 0; r < rows; ++r) {
          writer.WriteLocal(first_row + r, head, dim, S::Load(products[p] + kPanelRows * r));
        }
      }
      return;
    }
    for (int r = 0; r < rows; ++r) {
      for (int p = 0; p < unit_panels; ++p) {
        S::Store(context.scratch.head + 16 * p, S::Load(products[p] + kPanelRows * r));
      }
      writer.WriteHead(first_row + r, first / panels_per_head, context.scratch.head, {});
    }
  };
  ForEachPanelTile(context, panel_count, unit_panels, total_rows, visit);
}

}  // namespace vitrine::cpu
