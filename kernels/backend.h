// What can be computed, independent of where.
//
// A Backend owns memory and runs ops. Public ops check their arguments once (shapes, spans, layers;
// a violation is a bug of the caller and aborts) and call the private virtual of the same name.
// Ops are stream-ordered: they are enqueued, run in order, and are complete after Synchronize.
// Host arrays that their arguments point to stay as they are until the next Synchronize, copy or
// FinishCopies. No op allocates. One thread at a time may use a Backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/activated_mat_mul.h"
#include "kernels/adjust_logits.h"
#include "kernels/attention_reduce.h"
#include "kernels/attention_rows.h"
#include "kernels/buffer.h"
#include "kernels/calibration.h"
#include "kernels/embed.h"
#include "kernels/gather_rows.h"
#include "kernels/layer_norm.h"
#include "kernels/logprobs.h"
#include "kernels/mat_mul.h"
#include "kernels/pack_rows.h"
#include "kernels/paged_attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rms_norm_add.h"
#include "kernels/rope_write_kv.h"
#include "kernels/sample.h"
#include "kernels/scatter_add.h"

namespace vitrine {

enum class Numerics {
  kFast,   // Activations in the backend's fastest format (CPU: int8 per block of 32).
  kExact,  // f32 activations against dequantised weights.
};

// What a backend is made from; see CreateBackend in backend_factory.h.
struct BackendOptions {
  Numerics numerics = Numerics::kFast;
  int threads = 0;  // Workers that compute, the calling thread included; 0: one per allowed core.
};

class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::string_view name() const = 0;    // "reference", "cpu", "cuda"
  virtual std::string description() const = 0;  // For logs: instruction set, threads, device.
  Numerics numerics() const { return options_.numerics; }

  // UNAVAILABLE once the device has failed. This stays: no result since can be trusted, ops do
  // nothing, and all that is left is to end the process. Any thread.
  virtual absl::Status status() const { return absl::OkStatus(); }

  // Bytes that Allocate can still get; nullopt where they are the host's.
  virtual std::optional<size_t> FreeBytes() const { return std::nullopt; }

  // Whether RunRepeated saves anything, so that it is worth making steps alike.
  virtual bool records() const { return false; }
  // Calls `enqueue`, which enqueues ops, or replays what it enqueued when `shape` was the same.
  // Calls with the same shape must differ in nothing but the contents of the host arrays that the
  // ops read, which lie at the same addresses each time.
  void RunRepeated(uint64_t shape, absl::FunctionRef<void()> enqueue) {
    DoRunRepeated(shape, enqueue);
  }

  // Start-up only; errors are RESOURCE_EXHAUSTED (memory) or UNIMPLEMENTED (a dtype or shape that
  // the backend does not offer; the message names it).
  absl::StatusOr<Buffer> Allocate(size_t bytes);
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackMatrix(const MatrixSource& source);
  absl::StatusOr<std::unique_ptr<RowBuffer>> CreateRowBuffer(const RowBufferSpec& spec);
  absl::StatusOr<std::unique_ptr<KvStorage>> CreateKvStorage(const KvStorageSpec& spec);

  // Copies are complete when the call returns; they wait for everything enqueued before.
  template <class T>
  void CopyToDevice(std::span<const T> source, DeviceSpan<T> target) {
    VITRINE_CHECK_LE(source.size(), target.size());
    DoCopyToDevice(source.data(), target.data(), source.size_bytes());
  }
  template <class T>
  void CopyToHost(DeviceSpan<const T> source, std::span<T> target) {
    VITRINE_CHECK_LE(source.size(), target.size());
    DoCopyToHost(source.data(), target.data(), source.size() * sizeof(T));
  }
  void Synchronize() { DoSynchronize(); }

  // A copy that later ops do not wait for, nor it for them: StartCopyToHost enqueues it behind what
  // has been enqueued so far, FinishCopies returns once every copy started is complete, and with it
  // all that came before it. Until then nothing may write to `source`, and `target` means nothing.
  template <class T>
  void StartCopyToHost(DeviceSpan<const T> source, std::span<T> target) {
    VITRINE_CHECK_LE(source.size(), target.size());
    DoStartCopyToHost(source.data(), target.data(), source.size() * sizeof(T));
  }
  void FinishCopies() { DoFinishCopies(); }

  // Measures what the machine can do at this moment; for benchmarks, may take seconds.
  Calibration Calibrate() {
    DoSynchronize();
    return DoCalibrate();
  }

  void Embed(const EmbedArgs& args);
  void RmsNorm(const RmsNormArgs& args);
  void LayerNorm(const LayerNormArgs& args);
  void RmsNormAdd(const RmsNormAddArgs& args);
  void PackRows(const PackRowsArgs& args);
  void MatMul(const MatMulArgs& args);
  void ActivatedMatMul(const ActivatedMatMulArgs& args);
  void RopeWriteKv(const RopeWriteKvArgs& args);
  void MatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args);
  void PagedAttention(const PagedAttentionArgs& args);
  void AttentionRows(const AttentionRowsArgs& args);
  void AttentionReduce(const AttentionReduceArgs& args);
  void GatherRows(const GatherRowsArgs& args);
  void ScatterAdd(const ScatterAddArgs& args);  // Not where records().
  void AdjustLogits(const AdjustLogitsArgs& args);
  void Sample(const SampleArgs& args);
  void Logprobs(const LogprobsArgs& args);

 protected:
  explicit Backend(const BackendOptions& options) : options_(options) {}

 private:
  virtual absl::StatusOr<Buffer> DoAllocate(size_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> DoPackMatrix(
      const MatrixSource& source) = 0;
  virtual absl::StatusOr<std::unique_ptr<RowBuffer>> DoCreateRowBuffer(
      const RowBufferSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvStorage>> DoCreateKvStorage(
      const KvStorageSpec& spec) = 0;
  virtual void DoCopyToDevice(const void* source, void* target, size_t bytes) = 0;
  virtual void DoCopyToHost(const void* source, void* target, size_t bytes) = 0;
  virtual void DoSynchronize() = 0;
  virtual void DoStartCopyToHost(const void* source, void* target, size_t bytes) {
    DoCopyToHost(source, target, bytes);
  }
  virtual void DoFinishCopies() { DoSynchronize(); }
  virtual void DoRunRepeated(uint64_t /*shape*/, absl::FunctionRef<void()> enqueue) { enqueue(); }
  virtual Calibration DoCalibrate() { return {}; }

  virtual void DoEmbed(const EmbedArgs& args) = 0;
  virtual void DoRmsNorm(const RmsNormArgs& args) = 0;
  virtual void DoLayerNorm(const LayerNormArgs& args) = 0;
  virtual void DoRmsNormAdd(const RmsNormAddArgs& args) = 0;
  virtual void DoPackRows(const PackRowsArgs& args) = 0;
  virtual void DoMatMul(const MatMulArgs& args) = 0;
  virtual void DoActivatedMatMul(const ActivatedMatMulArgs& args) = 0;
  virtual void DoRopeWriteKv(const RopeWriteKvArgs& args) = 0;
  virtual void DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) = 0;
  virtual void DoPagedAttention(const PagedAttentionArgs& args) = 0;
  virtual void DoAttentionRows(const AttentionRowsArgs& args) = 0;
  virtual void DoAttentionReduce(const AttentionReduceArgs& args) = 0;
  virtual void DoGatherRows(const GatherRowsArgs& args) = 0;
  virtual void DoScatterAdd(const ScatterAddArgs& args);
  virtual void DoAdjustLogits(const AdjustLogitsArgs& args) = 0;
  virtual void DoSample(const SampleArgs& args) = 0;
  virtual void DoLogprobs(const LogprobsArgs& args) = 0;

  const BackendOptions options_;
};

}  // namespace vitrine
