#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/adjust_logits.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_reduce.h"
#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_storage.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/host_copies.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/mat_mul.h"
#include "kernels/cuda/open_device.h"
#include "kernels/cuda/pack_rows.h"
#include "kernels/cuda/recorded_steps.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rms_norm_add.h"
#include "kernels/cuda/rope_write_kv.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/staging.h"

namespace vitrine::cuda {
namespace {

// Decode attention runs over so many sequences at a time that their tiles fit into this.
constexpr size_t kMostWorkspaceBytes = size_t{16} << 20;

const CudaMatrix& AsMatrix(const PackedMatrix* matrix) {
  return static_cast<const CudaMatrix&>(*matrix);
}
const CudaRows& AsRows(const RowBuffer* rows) { return static_cast<const CudaRows&>(*rows); }
const CudaKv& AsKv(const KvStorage* kv) { return static_cast<const CudaKv&>(*kv); }

template <class T>
T* OrNull(DeviceSpan<T> span) {
  return span.empty() ? nullptr : span.data();
}

HeadNorm HeadNormOf(HeadNormKind kind, DeviceSpan<const float> weight, DeviceSpan<const float> bias,
                    int heads, int head_dim) {
  if (weight.empty()) return {};
  const bool spans_row =
      kind == HeadNormKind::kRms && weight.size() > static_cast<size_t>(head_dim);
  return {.weight = weight.data(),
          .bias = OrNull(bias),
          .size = static_cast<int>(weight.size()),
          .groups = spans_row ? 1 : heads,
          .is_centred = kind == HeadNormKind::kLayer};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendOptions& options, std::string description, cudaStream_t stream)
      : Backend(options), description_(std::move(description)), stream_(stream) {}
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return description_; }
  absl::Status status() const override;
  std::optional<size_t> FreeBytes() const override { return FreeDeviceBytes(); }
  bool records() const override { return true; }

 private:
  absl::StatusOr<Buffer> DoAllocate(size_t bytes) override {
    return AllocateDevice(bytes, stream_);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> DoPackMatrix(const MatrixSource& source) override;
  absl::StatusOr<std::unique_ptr<RowBuffer>> DoCreateRowBuffer(const RowBufferSpec& spec) override;
  absl::StatusOr<std::unique_ptr<KvStorage>> DoCreateKvStorage(const KvStorageSpec& spec) override;
  void DoCopyToDevice(const void* source, void* target, size_t bytes) override;
  void DoCopyToHost(const void* source, void* target, size_t bytes) override;
  void DoSynchronize() override;
  void DoStartCopyToHost(const void* source, void* target, size_t bytes) override {
    host_copies_.Start(source, target, bytes);
    staging_.Mark();
  }
  void DoFinishCopies() override {
    host_copies_.Finish();
    staging_.ResetMarked();
  }
  void DoRunRepeated(uint64_t shape, absl::FunctionRef<void()> enqueue) override {
    recorded_steps_.Run(shape, enqueue);
  }

  void DoEmbed(const EmbedArgs& args) override;
  void DoRmsNorm(const RmsNormArgs& args) override;
  void DoLayerNorm(const LayerNormArgs& args) override;
  void DoRmsNormAdd(const RmsNormAddArgs& args) override;
  void DoPackRows(const PackRowsArgs& args) override;
  void DoMatMul(const MatMulArgs& args) override;
  void DoActivatedMatMul(const ActivatedMatMulArgs& args) override;
  void DoRopeWriteKv(const RopeWriteKvArgs& args) override;
  void DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) override;
  void DoPagedAttention(const PagedAttentionArgs& args) override;
  void DoAttentionRows(const AttentionRowsArgs& args) override;
  void DoAttentionReduce(const AttentionReduceArgs& args) override;
  void DoGatherRows(const GatherRowsArgs& args) override;
  void DoAdjustLogits(const AdjustLogitsArgs& args) override;
  void DoSample(const SampleArgs& args) override;
  void DoLogprobs(const LogprobsArgs& args) override;

  DeviceBatch StageBatch(const PagedBatch& batch);
  RowSearch* SearchesFor(size_t rows);
  void Multiply(const PackedMatrix* weight, DeviceSpan<const float> bias, MatMulParams params);
  template <class T>
  void RopeAs(const float* qkv, const RopeKvTarget& target);
  void Rope(const float* qkv, const RopeKvTarget& target);
  template <class Kv>
  AttentionParams<Kv> AttentionParamsOf(const PagedAttentionArgs& args);
  bool UsesMatrixAttention(const KvStorageSpec& spec) const;
  void MatrixAttention(const PagedAttentionArgs& args);
  template <class Kv>
  void AttentionRowsAs(const AttentionRowsArgs& args);
  void Decode(const PagedBatch& batch, std::span<const int32_t> sequences,
              MatrixAttentionParams params);

  const std::string description_;
  const cudaStream_t stream_;
  Staging staging_{stream_};
  RecordedSteps recorded_steps_{stream_, staging_};
  HostCopies host_copies_{stream_};
  int most_query_columns_ = 0;  // Of the matrices packed so far: query heads * head_dim.
  GrowingMemory workspace_{stream_};
  GrowingMemory qkv_{stream_};
  GrowingMemory searches_{stream_};
  std::vector<DeviceAdjustment> adjustments_;  // Made anew by each AdjustLogits.
  // Made anew by each PagedAttention; kept for their capacity.
  std::vector<int32_t> decoding_;
  std::vector<int32_t> prefilling_;
  std::vector<int32_t> tile_begin_;
};

CudaBackend::~CudaBackend() {
  CheckCuda(cudaStreamSynchronize(stream_));
  CheckCuda(cudaStreamDestroy(stream_));
}

absl::Status CudaBackend::status() const {
  const cudaError_t fault = DeviceFault();
  if (fault == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the CUDA device failed: ", cudaGetErrorString(fault)));
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::DoPackMatrix(
    const MatrixSource& source) {
  if (source.layout == RowLayout::kHeads) {
    most_query_columns_ = std::max(most_query_columns_, static_cast<int>(source.parts[0].rows));
  }
  return CudaMatrix::Create(source, numerics(), stream_);
}

absl::StatusOr<std::unique_ptr<RowBuffer>> CudaBackend::DoCreateRowBuffer(
    const RowBufferSpec& spec) {
  for (const PackedMatrix* consumer : spec.consumers) {
    if (consumer->layout() != RowLayout::kHeads) continue;
    qkv_.Reserve(static_cast<size_t>(spec.max_rows) * static_cast<size_t>(consumer->rows()) *
                 sizeof(float));
  }
  return CudaRows::Create(spec, stream_);
}

absl::StatusOr<std::unique_ptr<KvStorage>> CudaBackend::DoCreateKvStorage(
    const KvStorageSpec& spec) {
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16) {
    return absl::UnimplementedError(absl::StrCat("the cuda backend has no key/value cache of type ",
                                                 std::string(TraitsOf(spec.dtype).name)));
  }
  if (spec.head_dim > kMaxScalarHeadDim) {
    return absl::UnimplementedError(absl::StrCat("the cuda backend has heads of up to ",
                                                 kMaxScalarHeadDim, " dimensions, not ",
                                                 spec.head_dim));
  }
  const size_t bytes =
      static_cast<size_t>(spec.num_layers) * CudaKv::LayerElements(spec) * RowBytes(spec.dtype, 1);
  absl::StatusOr<Buffer> values = AllocateDevice(bytes, stream_);
  if (!values.ok()) return values.status();
  // Here rather than in a step: what decoding one sequence that owns all blocks takes, but for
  // caches of several hundred thousand tokens.
  const int heads = std::max(most_query_columns_ / spec.head_dim, spec.num_kv_heads);
  const auto tiles = static_cast<size_t>(TilesFor(spec.num_blocks * kKvBlockTokens));
  workspace_.Reserve(std::clamp(tiles * TileBytes(heads, spec.head_dim), kMostWorkspaceBytes,
                                4 * kMostWorkspaceBytes));
  return std::make_unique<CudaKv>(spec, *std::move(values));
}

void CudaBackend::DoCopyToDevice(const void* source, void* target, size_t bytes) {
  if (bytes > 0) {
    CheckCuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream_));
  }
  DoSynchronize();
}

void CudaBackend::DoCopyToHost(const void* source, void* target, size_t bytes) {
  host_copies_.Copy(source, target, bytes);
  staging_.Reset();
}

void CudaBackend::DoSynchronize() {
  CheckCuda(cudaStreamSynchronize(stream_));
  staging_.Reset();
}

DeviceBatch CudaBackend::StageBatch(const PagedBatch& batch) {
  return {.row_begin = staging_.Stage(batch.row_begin),
          .first_position = staging_.Stage(batch.first_position),
          .block_table = staging_.Stage(batch.block_table),
          .max_blocks = batch.max_blocks,
          .sequences = batch.sequences(),
          .rows = batch.rows()};
}

void CudaBackend::DoEmbed(const EmbedArgs& args) {
  const int columns = static_cast<int>(args.table->columns());
  const DeviceBatch batch = args.position_table.empty() ? DeviceBatch() : StageBatch(*args.batch);
  for (const CudaMatrix::Piece& piece : AsMatrix(args.table).pieces()) {
    cuda::Embed({.table = piece.weights,
                 .first_token = piece.first_output,
                 .token_ids = staging_.Stage(args.token_ids),
                 .drawn = OrNull(args.drawn),
                 .output = args.output.data(),
                 .rows = static_cast<int>(args.token_ids.size()),
                 .columns = columns,
                 .scale = args.scale,
                 .position_table = OrNull(args.position_table),
                 .batch = batch},
                stream_);
  }
}

void CudaBackend::DoRmsNorm(const RmsNormArgs& args) {
  cuda::RmsNorm({.input = args.input.data(),
                 .weight = args.weight.data(),
                 .output = AsRows(args.output).rows(),
                 .rows = args.rows,
                 .columns = args.output->columns(),
                 .epsilon = args.epsilon},
                stream_);
}

void CudaBackend::DoLayerNorm(const LayerNormArgs& args) {
  cuda::LayerNorm({.input = args.input.data(),
                   .weight = args.weight.data(),
                   .bias = OrNull(args.bias),
                   .output = AsRows(args.output).rows(),
                   .normalized = OrNull(args.normalized),
                   .rows = args.rows,
                   .columns = args.output->columns(),
                   .epsilon = args.epsilon},
                  stream_);
}

void CudaBackend::DoRmsNormAdd(const RmsNormAddArgs& args) {
  cuda::RmsNormAdd({.input = args.input.data(),
                    .weight = args.weight.data(),
                    .output = args.output.data(),
                    .rows = args.rows,
                    .columns = args.columns,
                    .epsilon = args.epsilon},
                   stream_);
}

void CudaBackend::DoPackRows(const PackRowsArgs& args) {
  cuda::PackRows({.input = args.input.data(),
                  .output = AsRows(args.output).rows(),
                  .rows = args.rows,
                  .columns = args.output->columns()},
                 stream_);
}

// `params` says where input and results lie; each piece takes its share of the outputs.
void CudaBackend::Multiply(const PackedMatrix* weight, DeviceSpan<const float> bias,
                           MatMulParams params) {
  params.output_stride = static_cast<int>(weight->rows());
  params.gated = weight->layout() == RowLayout::kGateUp;
  float* const output = params.output;
  for (const CudaMatrix::Piece& piece : AsMatrix(weight).pieces()) {
    params.weights = piece.weights;
    params.outputs = piece.outputs;
    params.first_activated = piece.first_output;
    params.bias = bias.empty() ? nullptr : bias.data() + piece.first_output;
    params.output = output == nullptr ? nullptr : output + piece.first_output;
    if (piece.weights.format == WeightFormat::kF32Columns) {
      MatMulExact(params, stream_);
    } else if (params.rows <= kMaxSmallRows) {
      MatMulSmall(params, stream_);
    } else {
      MatMulLarge(params, stream_);
    }
  }
}

void CudaBackend::DoMatMul(const MatMulArgs& args) {
  MatMulParams params;
  params.input = AsRows(args.input).rows();
  params.rows = args.rows;
  params.output = args.output.data();
  params.add_to_output = args.add_to_output;
  params.output_scale = args.output_scale;
  params.softcap = args.softcap;
  Multiply(args.weight, args.bias, params);
}

void CudaBackend::DoActivatedMatMul(const ActivatedMatMulArgs& args) {
  MatMulParams params;
  params.input = AsRows(args.input).rows();
  params.rows = args.rows;
  params.activated = AsRows(args.output).rows();
  params.activation = args.activation;
  Multiply(args.weight, args.bias, params);
}

template <class T>
void CudaBackend::RopeAs(const float* qkv, const RopeKvTarget& target) {
  RopeWriteKvParams<T> params;
  params.qkv = qkv;
  params.cosines = target.cosines.data();
  params.sines = target.sines.data();
  params.batch = StageBatch(*target.batch);
  params.kv = AsKv(target.kv).Layer<T>(target.layer);
  params.q = target.q.data();
  params.heads = target.num_heads;
  params.rotary_dim = target.rotary_dim;
  params.interleaved = target.pairing == RopePairing::kInterleaved;
  const KvStorageSpec& spec = target.kv->spec();
  params.q_norm = HeadNormOf(target.norm_kind, target.q_norm, target.q_norm_bias, target.num_heads,
                             spec.head_dim);
  params.k_norm = HeadNormOf(target.norm_kind, target.k_norm, target.k_norm_bias, spec.num_kv_heads,
                             spec.head_dim);
  params.norm_epsilon = target.norm_epsilon;
  params.clip = target.clip;
  cuda::RopeWriteKv(params, stream_);
}

void CudaBackend::Rope(const float* qkv, const RopeKvTarget& target) {
  if (target.kv->spec().dtype == DType::kF32) {
    RopeAs<float>(qkv, target);
  } else {
    RopeAs<__nv_bfloat16>(qkv, target);
  }
}

void CudaBackend::DoRopeWriteKv(const RopeWriteKvArgs& args) { Rope(args.qkv.data(), args.target); }

void CudaBackend::DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) {
  const int rows = args.target.batch->rows();
  auto* qkv = static_cast<float*>(qkv_.Reserve(
      static_cast<size_t>(rows) * static_cast<size_t>(args.weight->rows()) * sizeof(float)));
  MatMulParams params;
  params.input = AsRows(args.input).rows();
  params.rows = rows;
  params.output = qkv;
  Multiply(args.weight, args.bias, params);
  Rope(qkv, args.target);
}

template <class Kv>
AttentionParams<Kv> CudaBackend::AttentionParamsOf(const PagedAttentionArgs& args) {
  const PagedKv<Kv> kv = AsKv(args.kv).Layer<Kv>(args.layer);
  AttentionParams<Kv> params;
  params.q = args.q.data();
  params.batch = StageBatch(*args.batch);
  params.kv = {kv.data, kv.kv_heads, kv.head_dim};
  params.heads = args.num_heads;
  params.rule = {.scale = args.scale, .softcap = args.softcap, .window = args.window};
  params.sinks = OrNull(args.sinks);
  params.alibi_slopes = OrNull(args.alibi_slopes);
  params.output = AsRows(args.output).rows();
  params.log_sum_exp = OrNull(args.log_sum_exp);
  return params;
}

void CudaBackend::Decode(const PagedBatch& batch, std::span<const int32_t> sequences,
                         MatrixAttentionParams params) {
  const size_t tile_bytes = TileBytes(params.heads, params.kv.head_dim);
  for (size_t begin = 0; begin < sequences.size();) {
    tile_begin_.clear();
    size_t tiles = 0, end = begin;
    params.max_context = 0;
    for (; end < sequences.size(); ++end) {
      // What is recorded must do for every context that the block table can hold.
      const int context = staging_.is_recording()
                              ? batch.max_blocks * kKvBlockTokens
                              : batch.first_position[static_cast<size_t>(sequences[end])] + 1;
      const auto more = static_cast<size_t>(TilesFor(context));
      if (end > begin && (tiles + more) * tile_bytes > kMostWorkspaceBytes) break;
      tile_begin_.push_back(static_cast<int32_t>(tiles));
      tiles += more;
      params.max_context = std::max(params.max_context, context);
    }
    params.sequences = staging_.StageOwn(sequences.subspan(begin, end - begin));
    params.sequence_count = static_cast<int>(end - begin);
    params.tile_begin = staging_.StageOwn(std::span<const int32_t>(tile_begin_));
    params.workspace = static_cast<float*>(workspace_.Reserve(tiles * tile_bytes));
    DecodeAttention(params, stream_);
    begin = end;
  }
}

void CudaBackend::MatrixAttention(const PagedAttentionArgs& args) {
  const PagedBatch& batch = *args.batch;
  auto params = AttentionParamsOf<__nv_bfloat16>(args);
  decoding_.clear();
  prefilling_.clear();
  for (int s = 0; s < batch.sequences(); ++s) {
    const auto index = static_cast<size_t>(s);
    const int rows = batch.row_begin[index + 1] - batch.row_begin[index];
    if (rows == 1) decoding_.push_back(s);
    if (rows > 1) prefilling_.push_back(s);
    params.max_rows = std::max(params.max_rows, rows);
  }
  params.sequences = staging_.StageOwn(std::span<const int32_t>(prefilling_));
  params.sequence_count = static_cast<int>(prefilling_.size());
  PrefillAttention(params, stream_);
  Decode(batch, decoding_, params);
}

bool CudaBackend::UsesMatrixAttention(const KvStorageSpec& spec) const {
  return spec.dtype == DType::kBF16 && numerics() == Numerics::kFast &&
         HasMatrixAttention(spec.head_dim);
}

void CudaBackend::DoPagedAttention(const PagedAttentionArgs& args) {
  const KvStorageSpec& spec = args.kv->spec();
  if (spec.dtype == DType::kF32) {
    ScalarAttention(AttentionParamsOf<float>(args), stream_);
  } else if (UsesMatrixAttention(spec)) {
    MatrixAttention(args);
  } else {
    ScalarAttention(AttentionParamsOf<__nv_bfloat16>(args), stream_);
  }
}

template <class Kv>
void CudaBackend::AttentionRowsAs(const AttentionRowsArgs& args) {
  const PagedKv<Kv> kv = AsKv(args.kv).Layer<Kv>(0);
  AttentionRowsParams<Kv> params;
  params.q = args.q.data();
  params.log_sum_exp = args.log_sum_exp.data();
  params.row_capacity = args.row_capacity;
  params.first_layer = args.first_layer;
  params.batch = StageBatch(*args.batch);
  params.kv = {kv.data, kv.kv_heads, kv.head_dim};
  params.layer_elements = CudaKv::LayerElements(args.kv->spec());
  params.heads = args.num_heads;
  params.rule = {.scale = args.scale, .softcap = args.softcap};
  params.windows = staging_.Stage(args.windows);
  params.alibi_slopes = OrNull(args.alibi_slopes);
  params.rounds_queries = UsesMatrixAttention(args.kv->spec());
  params.items = staging_.Stage(args.items);
  params.item_count = static_cast<int>(args.items.size());
  params.stage = args.stage;
  params.key_columns = args.key_columns;
  params.output = args.output.data();
  cuda::AttentionRows(params, stream_);
}

void CudaBackend::DoAttentionRows(const AttentionRowsArgs& args) {
  if (args.kv->spec().dtype == DType::kF32) return AttentionRowsAs<float>(args);
  AttentionRowsAs<__nv_bfloat16>(args);
}

void CudaBackend::DoAttentionReduce(const AttentionReduceArgs& args) {
  AttentionReduceParams params;
  params.input = args.input.data();
  params.count = static_cast<int>(args.rows.size());
  params.key_columns = args.key_columns;
  params.members = args.members;
  params.combine = args.combine;
  params.rows = staging_.Stage(args.rows);
  params.log_sum_exp = OrNull(args.log_sum_exp);
  params.combined = args.combined.data();
  params.stats = args.stats.data();
  params.top_k = args.top_k;
  params.top_ranges = staging_.Stage(args.top_ranges);
  params.top_range_count = static_cast<int>(args.top_ranges.size());
  params.top_keys = args.top_keys.data();
  params.top_values = args.top_values.data();
  params.tail_mass = args.tail_mass.data();
  params.span_ranges = staging_.Stage(args.span_ranges);
  params.span_begin = staging_.Stage(args.span_begin);
  params.spans = args.span_begin.empty() ? 0 : static_cast<int>(args.span_begin.size()) - 1;
  params.span_mass = args.span_mass.data();
  if (!args.combined.empty()) return cuda::AttentionReduce(params, stream_);
  // So many rows at a time that their combined rows fit into the workspace.
  const size_t row_bytes = static_cast<size_t>(args.key_columns) * sizeof(float);
  const auto most = static_cast<int>(std::max<size_t>(1, kMostWorkspaceBytes / row_bytes));
  for (int left = params.count; left > 0; left -= most) {
    params.count = std::min(left, most);
    params.combined =
        static_cast<float*>(workspace_.Reserve(static_cast<size_t>(params.count) * row_bytes));
    cuda::AttentionReduce(params, stream_);
    params.Skip(params.count);
  }
}

void CudaBackend::DoGatherRows(const GatherRowsArgs& args) {
  cuda::GatherRows({.input = args.input.data(),
                    .row_ids = staging_.Stage(args.row_ids),
                    .output = args.output.data(),
                    .rows = static_cast<int>(args.row_ids.size()),
                    .columns = args.columns},
                   stream_);
}

void CudaBackend::DoAdjustLogits(const AdjustLogitsArgs& args) {
  const auto stage = [&]<class T>(std::span<const T> list) {
    return DeviceList<T>{staging_.Stage(list), static_cast<int>(list.size())};
  };
  adjustments_.clear();
  for (const LogitAdjustment& adjustment : args.adjustments) {
    adjustments_.push_back({.row = adjustment.row,
                            .biases = stage(adjustment.biases),
                            .allowed = stage(adjustment.allowed),
                            .banned = stage(adjustment.banned),
                            .withheld = stage(adjustment.withheld),
                            .seen = stage(adjustment.seen),
                            .repetition_penalty = adjustment.repetition_penalty,
                            .presence_penalty = adjustment.presence_penalty,
                            .frequency_penalty = adjustment.frequency_penalty});
  }
  cuda::AdjustLogits(
      {.logits = args.logits.data(),
       .adjustments = staging_.Stage(std::span<const DeviceAdjustment>(adjustments_)),
       .output = args.output.data(),
       .count = static_cast<int>(args.adjustments.size()),
       .vocabulary = args.vocabulary},
      stream_);
}

RowSearch* CudaBackend::SearchesFor(size_t rows) {
  // So many at a time that steps of different sizes do not allocate again and again.
  constexpr size_t kRowsAtATime = 256;
  const size_t rounded = (rows + kRowsAtATime - 1) / kRowsAtATime * kRowsAtATime;
  return static_cast<RowSearch*>(searches_.Reserve(rounded * sizeof(RowSearch)));
}

void CudaBackend::DoSample(const SampleArgs& args) {
  int passes = 0;
  for (const SampleRow& row : args.rows) {
    passes = std::max(passes, SearchPasses(row, args.vocabulary, /*draws=*/true));
  }
  cuda::SearchRows({.logits = args.logits.data(),
                    .adjusted = args.adjusted.data(),
                    .rows = staging_.Stage(args.rows),
                    .searches = SearchesFor(args.rows.size()),
                    .token_ids = args.token_ids.data(),
                    .count = static_cast<int>(args.rows.size()),
                    .vocabulary = args.vocabulary,
                    .passes = passes},
                   stream_);
}

void CudaBackend::DoLogprobs(const LogprobsArgs& args) {
  int passes = 1;
  for (const LogprobsRow& row : args.rows) {
    if (!row.is_processed) continue;
    const SampleRow& how = args.sampling[static_cast<size_t>(row.row)];
    passes = std::max(passes, SearchPasses(how, args.vocabulary, /*draws=*/false));
  }
  cuda::Logprobs({.logits = args.logits.data(),
                  .adjusted = args.adjusted.data(),
                  .sampling = staging_.Stage(args.sampling),
                  .token_ids = args.token_ids.data(),
                  .rows = staging_.Stage(args.rows),
                  .searches = SearchesFor(args.rows.size()),
                  .output = args.output.data(),
                  .count = static_cast<int>(args.rows.size()),
                  .vocabulary = args.vocabulary,
                  .passes = passes},
                 stream_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& options) {
  absl::StatusOr<OpenedDevice> device = OpenDevice();
  if (!device.ok()) return device.status();
  return std::make_unique<CudaBackend>(options, std::move(device->description), device->stream);
}

}  // namespace vitrine::cuda
