// A backend that passes every op on to another and keeps what the attention of chosen layers read
// and wrote: for tests of what a model's inspection shows.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace vitrine {

class SpyBackend final : public Backend {
 public:
  // What one layer's attention worked on; [rows, heads, head_dim] each.
  struct Attention {
    int rows = 0;
    std::vector<float> q;
    std::vector<float> keys;    // As cached.
    std::vector<float> values;  // As cached.
    std::vector<float> output;  // With exact numerics only.
  };

  // Keeps the layers of `layers`, of steps that are one sequence from position 0.
  SpyBackend(std::unique_ptr<Backend> inner, std::vector<int> layers)
      : Backend({.numerics = inner->numerics()}),
        inner_(std::move(inner)),
        layers_(std::move(layers)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  const std::map<int, Attention>& seen() const { return seen_; }

 private:
  absl::StatusOr<Buffer> DoAllocate(size_t bytes) override { return inner_->Allocate(bytes); }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> DoPackMatrix(const MatrixSource& source) override {
    return inner_->PackMatrix(source);
  }
  absl::StatusOr<std::unique_ptr<RowBuffer>> DoCreateRowBuffer(const RowBufferSpec& spec) override {
    return inner_->CreateRowBuffer(spec);
  }
  absl::StatusOr<std::unique_ptr<KvStorage>> DoCreateKvStorage(const KvStorageSpec& spec) override {
    return inner_->CreateKvStorage(spec);
  }
  void DoCopyToDevice(const void* source, void* target, size_t bytes) override {
    inner_->CopyToDevice(std::span(static_cast<const std::byte*>(source), bytes),
                         DeviceSpan<std::byte>(static_cast<std::byte*>(target), bytes));
  }
  void DoCopyToHost(const void* source, void* target, size_t bytes) override {
    inner_->CopyToHost(DeviceSpan<const std::byte>(static_cast<const std::byte*>(source), bytes),
                       std::span(static_cast<std::byte*>(target), bytes));
  }
  void DoSynchronize() override { inner_->Synchronize(); }
  void DoEmbed(const EmbedArgs& args) override { inner_->Embed(args); }
  void DoRmsNorm(const RmsNormArgs& args) override { inner_->RmsNorm(args); }
  void DoLayerNorm(const LayerNormArgs& args) override { inner_->LayerNorm(args); }
  void DoRmsNormAdd(const RmsNormAddArgs& args) override { inner_->RmsNormAdd(args); }
  void DoPackRows(const PackRowsArgs& args) override { inner_->PackRows(args); }
  void DoMatMul(const MatMulArgs& args) override { inner_->MatMul(args); }
  void DoActivatedMatMul(const ActivatedMatMulArgs& args) override {
    inner_->ActivatedMatMul(args);
  }
  void DoRopeWriteKv(const RopeWriteKvArgs& args) override { inner_->RopeWriteKv(args); }
  void DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) override {
    inner_->MatMulRopeWriteKv(args);
  }
  void DoPagedAttention(const PagedAttentionArgs& args) override {
    inner_->PagedAttention(args);
    if (std::ranges::find(layers_, args.layer) == layers_.end()) return;
    Attention& seen = seen_[args.layer];
    seen.rows = args.batch->rows();
    const int64_t columns = int64_t{args.num_heads} * args.kv->spec().head_dim;
    seen.q = Download(args.q, seen.rows * columns);
    if (numerics() == Numerics::kExact) seen.output = ReadRows(args.output, seen.rows, columns);
    ReadCache(args, seen);
  }
  void DoAttentionRows(const AttentionRowsArgs& args) override { inner_->AttentionRows(args); }
  void DoAttentionReduce(const AttentionReduceArgs& args) override {
    inner_->AttentionReduce(args);
  }
  void DoGatherRows(const GatherRowsArgs& args) override { inner_->GatherRows(args); }
  void DoScatterAdd(const ScatterAddArgs& args) override { inner_->ScatterAdd(args); }
  void DoSample(const SampleArgs& args) override { inner_->Sample(args); }
  void DoAdjustLogits(const AdjustLogitsArgs& args) override { inner_->AdjustLogits(args); }
  void DoLogprobs(const LogprobsArgs& args) override { inner_->Logprobs(args); }

  std::vector<float> Download(DeviceSpan<const float> source, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    inner_->CopyToHost(source.subspan(0, values.size()), std::span(values));
    return values;
  }

  const PackedMatrix& Identity(int64_t columns) {
    std::unique_ptr<PackedMatrix>& identity = identities_[columns];
    if (identity != nullptr) return *identity;
    std::vector<float> values(static_cast<size_t>(columns * columns));
    for (int64_t i = 0; i < columns; ++i) values[static_cast<size_t>(i * columns + i)] = 1.0f;
    const MatrixPart part = {.name = "identity",
                             .dtype = DType::kF32,
                             .data = reinterpret_cast<const std::byte*>(values.data()),
                             .rows = columns,
                             .columns = columns};
    identity = *inner_->PackMatrix({.parts = {part}});
    return *identity;
  }

  std::vector<float> ReadRows(const RowBuffer* rows, int count, int64_t columns) {
    const Buffer output = *inner_->Allocate(static_cast<size_t>(count * columns) * sizeof(float));
    inner_->MatMul(
        {.input = rows, .weight = &Identity(columns), .output = output.As<float>(), .rows = count});
    return Download(output.As<float>(), count * columns);
  }

  // Through attention of each row to itself alone: its output is the value, and its log-sum-exp
  // for a unit query is one element of the key.
  void ReadCache(const PagedAttentionArgs& args, Attention& seen) {
    const int heads = args.kv->spec().num_kv_heads;
    const int dim = args.kv->spec().head_dim;
    const int64_t columns = int64_t{heads} * dim;
    const auto floats = static_cast<size_t>(seen.rows * columns);
    const Buffer query = *inner_->Allocate(floats * sizeof(float));
    const Buffer sums = *inner_->Allocate(static_cast<size_t>(seen.rows * heads) * sizeof(float));
    const auto rows = *inner_->CreateRowBuffer({.max_rows = seen.rows,
                                                .columns = static_cast<int>(columns),
                                                .consumers = {&Identity(columns)}});
    seen.keys.resize(floats);
    for (int d = 0; d < dim; ++d) {
      std::vector<float> q(floats);
      for (size_t i = static_cast<size_t>(d); i < floats; i += static_cast<size_t>(dim)) q[i] = 1;
      inner_->CopyToDevice(std::span<const float>(q), query.As<float>());
      inner_->PagedAttention({.q = query.As<float>(),
                              .batch = args.batch,
                              .kv = args.kv,
                              .layer = args.layer,
                              .num_heads = heads,
                              .window = 1,
                              .output = rows.get(),
                              .log_sum_exp = sums.As<float>()});
      const std::vector<float> elements = Download(sums.As<float>(), seen.rows * heads);
      for (size_t i = 0; i < elements.size(); ++i) {
        seen.keys[i * static_cast<size_t>(dim) + static_cast<size_t>(d)] = elements[i];
      }
    }
    seen.values = ReadRows(rows.get(), seen.rows, columns);
  }

  const std::unique_ptr<Backend> inner_;
  const std::vector<int> layers_;
  std::map<int64_t, std::unique_ptr<PackedMatrix>> identities_;
  std::map<int, Attention> seen_;
};

}  // namespace vitrine
