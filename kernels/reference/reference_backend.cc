#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/reference/activated_mat_mul.h"
#include "kernels/reference/adjust_logits.h"
#include "kernels/reference/attention_reduce.h"
#include "kernels/reference/attention_rows.h"
#include "kernels/reference/embed.h"
#include "kernels/reference/gather_rows.h"
#include "kernels/reference/layer_norm.h"
#include "kernels/reference/logprobs.h"
#include "kernels/reference/mat_mul.h"
#include "kernels/reference/pack_rows.h"
#include "kernels/reference/paged_attention.h"
#include "kernels/reference/reference_storage.h"
#include "kernels/reference/rms_norm.h"
#include "kernels/reference/rms_norm_add.h"
#include "kernels/reference/rope_write_kv.h"
#include "kernels/reference/sample.h"
#include "kernels/reference/scatter_add.h"

namespace vitrine {
namespace {

template <class T>
void Grow(std::vector<T>& values, size_t size) {
  values.resize(std::max(values.size(), size));
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const BackendOptions& options) : Backend(options) {}

  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "reference: plain loops, 1 thread"; }

 private:
  absl::StatusOr<Buffer> DoAllocate(size_t bytes) override {
    return reference::AllocateHost(bytes);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> DoPackMatrix(const MatrixSource& source) override {
    return reference::Matrix::Create(source);
  }
  absl::StatusOr<std::unique_ptr<RowBuffer>> DoCreateRowBuffer(const RowBufferSpec& spec) override;
  absl::StatusOr<std::unique_ptr<KvStorage>> DoCreateKvStorage(const KvStorageSpec& spec) override;
  void DoCopyToDevice(const void* source, void* target, size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void DoCopyToHost(const void* source, void* target, size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void DoSynchronize() override {}

  void DoEmbed(const EmbedArgs& args) override { reference::Embed(args); }
  void DoRmsNorm(const RmsNormArgs& args) override { reference::RmsNorm(args); }
  void DoMatMul(const MatMulArgs& args) override { reference::MatMul(args); }
  void DoActivatedMatMul(const ActivatedMatMulArgs& args) override {
    reference::ActivatedMatMul(args);
  }
  void DoRopeWriteKv(const RopeWriteKvArgs& args) override { reference::RopeWriteKv(args); }
  void DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) override {
    reference::MatMulRopeWriteKv(args, scratch_);
  }
  void DoPagedAttention(const PagedAttentionArgs& args) override {
    reference::PagedAttention(args, scratch_);
  }
  void DoLayerNorm(const LayerNormArgs& args) override { reference::LayerNorm(args); }
  void DoRmsNormAdd(const RmsNormAddArgs& args) override { reference::RmsNormAdd(args); }
  void DoPackRows(const PackRowsArgs& args) override { reference::PackRows(args); }
  void DoAttentionRows(const AttentionRowsArgs& args) override { reference::AttentionRows(args); }
  void DoAttentionReduce(const AttentionReduceArgs& args) override {
    reference::AttentionReduce(args);
  }
  void DoGatherRows(const GatherRowsArgs& args) override { reference::GatherRows(args); }
  void DoScatterAdd(const ScatterAddArgs& args) override { reference::ScatterAdd(args); }
  void DoAdjustLogits(const AdjustLogitsArgs& args) override { reference::AdjustLogits(args); }
  void DoSample(const SampleArgs& args) override { reference::Sample(args); }
  void DoLogprobs(const LogprobsArgs& args) override { reference::Logprobs(args); }

  reference::Scratch scratch_;
};

absl::StatusOr<std::unique_ptr<RowBuffer>> ReferenceBackend::DoCreateRowBuffer(
    const RowBufferSpec& spec) {
  const auto max_rows = static_cast<size_t>(spec.max_rows);
  for (const PackedMatrix* consumer : spec.consumers) {
    if (consumer->layout() != RowLayout::kHeads) continue;
    Grow(scratch_.qkv, max_rows * static_cast<size_t>(consumer->rows()));
  }
  absl::StatusOr<Buffer> values =
      reference::AllocateHost(max_rows * static_cast<size_t>(spec.columns) * sizeof(float));
  if (!values.ok()) return values.status();
  return std::make_unique<reference::Rows>(spec.max_rows, spec.columns, *std::move(values));
}

absl::StatusOr<std::unique_ptr<KvStorage>> ReferenceBackend::DoCreateKvStorage(
    const KvStorageSpec& spec) {
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16) {
    const std::string_view dtype = TraitsOf(spec.dtype).name;
    return absl::UnimplementedError(
        absl::StrCat("the reference backend has no key/value cache of type ", std::string(dtype)));
  }
  Grow(scratch_.scores, static_cast<size_t>(spec.num_blocks) * kKvBlockTokens);
  absl::StatusOr<Buffer> values = reference::AllocateHost(reference::KvCache::Bytes(spec));
  if (!values.ok()) return values.status();
  return std::make_unique<reference::KvCache>(spec, *std::move(values));
}

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend(const BackendOptions& options) {
  return std::make_unique<ReferenceBackend>(options);
}

}  // namespace vitrine
