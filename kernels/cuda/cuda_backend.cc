#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_storage.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/mat_mul.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_write_kv.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/staging.h"

namespace vitrine::cuda {
namespace {

constexpr int kLeastComputeCapability = 8;
// Decode attention runs over so many sequences at a time that their tiles fit into this.
constexpr size_t kMostWorkspaceBytes = size_t{16} << 20;

const CudaMatrix& AsMatrix(const PackedMatrix* matrix) {
  return static_cast<const CudaMatrix&>(*matrix);
}
const CudaRows& AsRows(const RowBuffer* rows) { return static_cast<const CudaRows&>(*rows); }
const CudaKv& AsKv(const KvStorage* kv) { return static_cast<const CudaKv&>(*kv); }

template <class T>
const T* OrNull(DeviceSpan<const T> span) {
  return span.empty() ? nullptr : span.data();
}

// What a product of one piece does with its results, beside where they lie.
struct Epilogue {
  DeviceSpan<const float> bias;
  float* output = nullptr;  // Row stride: all outputs of the matrix.
  bool add_to_output = false;
  const CudaRows* activated = nullptr;
  Activation activation = Activation::kSilu;
};

void Multiply(const MatMulParams<__nv_bfloat16>& params, cudaStream_t stream) {
  if (params.rows <= kMaxSmallRows) {
    MatMulSmall(params, stream);
  } else {
    MatMulLarge(params, stream);
  }
}
void Multiply(const MatMulParams<float>& params, cudaStream_t stream) {
  MatMulExact(params, stream);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendOptions& options, std::string description, cudaStream_t stream)
      : Backend(options), description_(std::move(description)), stream_(stream) {}
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return description_; }

 private:
  absl::StatusOr<Buffer> DoAllocate(size_t bytes) override {
    return AllocateDevice(bytes, stream_);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> DoPackMatrix(const MatrixSource& source) override {
    return CudaMatrix::Create(source, numerics(), stream_);
  }
  absl::StatusOr<std::unique_ptr<RowBuffer>> DoCreateRowBuffer(const RowBufferSpec& spec) override;
  absl::StatusOr<std::unique_ptr<KvStorage>> DoCreateKvStorage(const KvStorageSpec& spec) override;
  void DoCopyToDevice(const void* source, void* target, size_t bytes) override;
  void DoCopyToHost(const void* source, void* target, size_t bytes) override;
  void DoSynchronize() override;

  void DoEmbed(const EmbedArgs& args) override;
  void DoRmsNorm(const RmsNormArgs& args) override;
  void DoMatMul(const MatMulArgs& args) override;
  void DoActivatedMatMul(const ActivatedMatMulArgs& args) override;
  void DoRopeWriteKv(const RopeWriteKvArgs& args) override;
  void DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) override;
  void DoPagedAttention(const PagedAttentionArgs& args) override;
  void DoGatherRows(const GatherRowsArgs& args) override;
  void DoSample(const SampleArgs& args) override;

  bool is_exact() const { return numerics() == Numerics::kExact; }
  DeviceBatch StageBatch(const PagedBatch& batch);
  template <class T>
  void MultiplyPieces(const RowBuffer* input, const PackedMatrix* weight, int rows,
                      const Epilogue& epilogue);
  void MultiplyAs(const RowBuffer* input, const PackedMatrix* weight, int rows,
                  const Epilogue& epilogue);
  template <class T>
  void NormAs(const RmsNormArgs& args);
  template <class T>
  void RopeAs(const float* qkv, const RopeKvTarget& target);
  void Rope(const float* qkv, const RopeKvTarget& target);
  template <class Kv, class Out>
  AttentionParams<Kv, Out> AttentionParamsOf(const PagedAttentionArgs& args);
  void MatrixAttention(const PagedAttentionArgs& args);
  void DecodeSlice(const PagedBatch& batch, std::span<const int32_t> sequences,
                   MatrixAttentionParams params);

  const std::string description_;
  const cudaStream_t stream_;
  Staging staging_{stream_};
  GrowingMemory workspace_{stream_};
  GrowingMemory qkv_{stream_};
  // Made anew by each PagedAttention; kept for their capacity.
  std::vector<int32_t> decoding_;
  std::vector<int32_t> prefilling_;
  std::vector<int32_t> tile_begin_;
};

CudaBackend::~CudaBackend() {
  CheckCuda(cudaStreamSynchronize(stream_));
  CheckCuda(cudaStreamDestroy(stream_));
}

absl::StatusOr<std::unique_ptr<RowBuffer>> CudaBackend::DoCreateRowBuffer(
    const RowBufferSpec& spec) {
  for (const PackedMatrix* consumer : spec.consumers) {
    if (consumer->layout() != RowLayout::kHeads) continue;
    qkv_.Reserve(static_cast<size_t>(spec.max_rows) * static_cast<size_t>(consumer->rows()) *
                 sizeof(float));
  }
  absl::StatusOr<Buffer> values = AllocateDevice(CudaRows::Bytes(spec, numerics()), stream_);
  if (!values.ok()) return values.status();
  return std::make_unique<CudaRows>(spec, *std::move(values));
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
  return std::make_unique<CudaKv>(spec, *std::move(values));
}

void CudaBackend::DoCopyToDevice(const void* source, void* target, size_t bytes) {
  if (bytes > 0) {
    CheckCuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream_));
  }
  DoSynchronize();
}

void CudaBackend::DoCopyToHost(const void* source, void* target, size_t bytes) {
  if (bytes > 0) {
    CheckCuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream_));
  }
  DoSynchronize();
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
  for (const CudaMatrix::Piece& piece : AsMatrix(args.table).pieces()) {
    cuda::Embed({.table = piece.weights,
                 .first_token = piece.first_output,
                 .token_ids = staging_.Stage(args.token_ids),
                 .output = args.output.data(),
                 .rows = static_cast<int>(args.token_ids.size()),
                 .columns = columns,
                 .scale = args.scale},
                stream_);
  }
}

template <class T>
void CudaBackend::NormAs(const RmsNormArgs& args) {
  const CudaRows& output = AsRows(args.output);
  cuda::RmsNorm<T>({.input = args.input.data(),
                    .weight = args.weight.data(),
                    .output = output.data<T>(),
                    .rows = args.rows,
                    .columns = output.columns(),
                    .output_stride = output.stride(),
                    .epsilon = args.epsilon},
                   stream_);
}

void CudaBackend::DoRmsNorm(const RmsNormArgs& args) {
  is_exact() ? NormAs<float>(args) : NormAs<__nv_bfloat16>(args);
}

template <class T>
void CudaBackend::MultiplyPieces(const RowBuffer* input, const PackedMatrix* weight, int rows,
                                 const Epilogue& epilogue) {
  const bool gated = epilogue.activated != nullptr && weight->layout() == RowLayout::kGateUp;
  MatMulParams<T> params;
  params.input = AsRows(input).data<T>();
  params.input_stride = AsRows(input).stride();
  params.rows = rows;
  params.output_stride = static_cast<int>(weight->rows());
  params.add_to_output = epilogue.add_to_output;
  params.activation = epilogue.activation;
  params.gated = gated;
  for (const CudaMatrix::Piece& piece : AsMatrix(weight).pieces()) {
    params.weights = piece.weights;
    params.outputs = piece.outputs;
    if (!epilogue.bias.empty()) params.bias = epilogue.bias.data() + piece.first_output;
    if (epilogue.activated != nullptr) {
      params.activated = epilogue.activated->data<T>() + piece.first_output;
      params.activated_stride = epilogue.activated->stride();
    } else {
      params.output = epilogue.output + piece.first_output;
    }
    Multiply(params, stream_);
  }
}

void CudaBackend::MultiplyAs(const RowBuffer* input, const PackedMatrix* weight, int rows,
                             const Epilogue& epilogue) {
  if (is_exact()) {
    MultiplyPieces<float>(input, weight, rows, epilogue);
  } else {
    MultiplyPieces<__nv_bfloat16>(input, weight, rows, epilogue);
  }
}

void CudaBackend::DoMatMul(const MatMulArgs& args) {
  MultiplyAs(
      args.input, args.weight, args.rows,
      {.bias = args.bias, .output = args.output.data(), .add_to_output = args.add_to_output});
}

void CudaBackend::DoActivatedMatMul(const ActivatedMatMulArgs& args) {
  MultiplyAs(args.input, args.weight, args.rows,
             {.bias = args.bias, .activated = &AsRows(args.output), .activation = args.activation});
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
  MultiplyAs(args.input, args.weight, rows, {.bias = args.bias, .output = qkv});
  Rope(qkv, args.target);
}

template <class Kv, class Out>
AttentionParams<Kv, Out> CudaBackend::AttentionParamsOf(const PagedAttentionArgs& args) {
  const PagedKv<Kv> kv = AsKv(args.kv).Layer<Kv>(args.layer);
  AttentionParams<Kv, Out> params;
  params.q = args.q.data();
  params.batch = StageBatch(*args.batch);
  params.kv = {kv.data, kv.kv_heads, kv.head_dim};
  params.heads = args.num_heads;
  params.rule = {.scale = args.scale, .softcap = args.softcap, .window = args.window};
  params.sinks = OrNull(args.sinks);
  params.alibi_slopes = OrNull(args.alibi_slopes);
  params.output = AsRows(args.output).data<Out>();
  params.output_stride = AsRows(args.output).stride();
  params.log_sum_exp = args.log_sum_exp.empty() ? nullptr : args.log_sum_exp.data();
  return params;
}

void CudaBackend::DecodeSlice(const PagedBatch& batch, std::span<const int32_t> sequences,
                              MatrixAttentionParams params) {
  const size_t tile_bytes = static_cast<size_t>(params.heads) *
                            static_cast<size_t>(params.kv.head_dim + 2) * sizeof(float);
  for (size_t begin = 0; begin < sequences.size();) {
    tile_begin_.clear();
    size_t tiles = 0, end = begin;
    params.max_context = 0;
    for (; end < sequences.size(); ++end) {
      const int context = batch.first_position[static_cast<size_t>(sequences[end])] + 1;
      const auto more = static_cast<size_t>(TilesFor(context));
      if (end > begin && (tiles + more) * tile_bytes > kMostWorkspaceBytes) break;
      tile_begin_.push_back(static_cast<int32_t>(tiles));
      tiles += more;
      params.max_context = std::max(params.max_context, context);
    }
    params.sequences = staging_.Stage(sequences.subspan(begin, end - begin));
    params.sequence_count = static_cast<int>(end - begin);
    params.tile_begin = staging_.Stage(std::span<const int32_t>(tile_begin_));
    params.workspace = static_cast<float*>(workspace_.Reserve(tiles * tile_bytes));
    DecodeAttention(params, stream_);
    begin = end;
  }
}

void CudaBackend::MatrixAttention(const PagedAttentionArgs& args) {
  const PagedBatch& batch = *args.batch;
  auto params = AttentionParamsOf<__nv_bfloat16, __nv_bfloat16>(args);
  decoding_.clear();
  prefilling_.clear();
  for (int s = 0; s < batch.sequences(); ++s) {
    const auto index = static_cast<size_t>(s);
    const int rows = batch.row_begin[index + 1] - batch.row_begin[index];
    if (rows == 1) decoding_.push_back(s);
    if (rows > 1) prefilling_.push_back(s);
    params.max_rows = std::max(params.max_rows, rows);
  }
  params.sequences = staging_.Stage(std::span<const int32_t>(prefilling_));
  params.sequence_count = static_cast<int>(prefilling_.size());
  PrefillAttention(params, stream_);
  DecodeSlice(batch, decoding_, params);
}

void CudaBackend::DoPagedAttention(const PagedAttentionArgs& args) {
  const KvStorageSpec& spec = args.kv->spec();
  const bool is_f32 = spec.dtype == DType::kF32;
  if (!is_exact() && !is_f32 && HasMatrixAttention(spec.head_dim)) {
    MatrixAttention(args);
  } else if (is_exact() && is_f32) {
    ScalarAttention(AttentionParamsOf<float, float>(args), stream_);
  } else if (is_exact()) {
    ScalarAttention(AttentionParamsOf<__nv_bfloat16, float>(args), stream_);
  } else if (is_f32) {
    ScalarAttention(AttentionParamsOf<float, __nv_bfloat16>(args), stream_);
  } else {
    ScalarAttention(AttentionParamsOf<__nv_bfloat16, __nv_bfloat16>(args), stream_);
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

void CudaBackend::DoSample(const SampleArgs& args) {
  cuda::Sample({.logits = args.logits.data(),
                .rows = staging_.Stage(args.rows),
                .token_ids = args.token_ids.data(),
                .count = static_cast<int>(args.rows.size()),
                .vocabulary = args.vocabulary},
               stream_);
}

absl::Status NoDevice(std::string_view why) {
  return absl::UnavailableError(absl::StrCat("no usable CUDA device: ", std::string(why)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& options) {
  int devices = 0;  // Stays 0 where the driver is missing or too old.
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return NoDevice(error == cudaSuccess ? "the driver reports none" : cudaGetErrorString(error));
  }
  cudaDeviceProp device;
  CheckCuda(cudaGetDeviceProperties(&device, 0));
  const std::string name = device.name;
  if (device.major < kLeastComputeCapability) {
    return NoDevice(absl::StrCat(name, " has compute capability ", device.major, ".", device.minor,
                                 ", at least ", kLeastComputeCapability, ".0 is needed"));
  }
  CheckCuda(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::string description = absl::StrCat("cuda: ", name, ", compute capability ", device.major, ".",
                                         device.minor, ", ", device.multiProcessorCount,
                                         " multiprocessors, ", device.totalGlobalMem >> 20, " MiB");
  return std::make_unique<CudaBackend>(options, std::move(description), stream);
}

}  // namespace vitrine::cuda
