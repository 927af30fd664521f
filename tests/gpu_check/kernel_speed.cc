#include "tests/gpu_check/kernel_speed.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend_factory.h"
#include "kernels/cuda/cuda_storage.h"
#include "model/kv_cache.h"
#include "tests/gpu_check/blas_lt.h"
#include "tests/gpu_check/required.h"

namespace vitrine::gpu_check {
namespace {

using Json = nlohmann::json;

constexpr DType kWeightTypes[] = {DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_1,
                                  DType::kQ4_0};

constexpr int kConsumerRows = 16;  // Of a matrix that only says in which format it reads rows.

// Any bytes are weights, as long as their fp16 and bf16 fields are small numbers.
std::vector<std::byte> RandomRows(DType dtype, int64_t rows, int64_t columns) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(RowBytes(dtype, columns) * static_cast<size_t>(rows));
  for (size_t i = 0; i < bytes.size(); i += 4) {
    const uint32_t bits = static_cast<uint32_t>(random()) & 0x2f2f2f2fu;
    for (size_t b = 0; b < 4 && i + b < bytes.size(); ++b) {
      bytes[i + b] = static_cast<std::byte>(bits >> (8 * b) & 0xffu);
    }
  }
  return bytes;
}

// A batch in which every sequence has the same position and number of rows.
struct EvenBatch {
  std::vector<int32_t> row_begin = {0}, first_position, block_table;
  PagedBatch paged;

  EvenBatch(int sequences, int position, int rows) {
    const int blocks = BlocksFor(position + rows);
    for (int s = 0; s < sequences; ++s) {
      row_begin.push_back(row_begin.back() + rows);
      first_position.push_back(position);
      for (int b = 0; b < blocks; ++b) block_table.push_back(b * sequences + s);
    }
    paged = {row_begin, first_position, block_table, blocks};
  }
  EvenBatch(const EvenBatch&) = delete;
  EvenBatch& operator=(const EvenBatch&) = delete;
};

// With a backend of its own: each keeps a limited number of recordings.
class KernelBench {
 public:
  // `blas`: to be measured beside our products in bf16, or null.
  KernelBench(const SpeedPlan& plan, const DeviceLimits& limits, Report& report,
              BlasLt* blas = nullptr)
      : plan_(plan), shape_(plan.shape), limits_(limits), report_(report), blas_(blas) {}

  void Products(DType dtype) {
    const int q_rows = (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim;
    Product(dtype, "qkv", q_rows, shape_.d_model, RowLayout::kStacked);
    Product(dtype, "out", shape_.d_model, shape_.heads * shape_.head_dim, RowLayout::kStacked);
    Product(dtype, "gate_up", 2 * shape_.d_ff, shape_.d_model, RowLayout::kGateUp);
    Product(dtype, "down", shape_.d_model, shape_.d_ff, RowLayout::kStacked);
    if (dtype != DType::kBF16) return;
    Product(dtype, "head", shape_.vocabulary, shape_.d_model, RowLayout::kStacked);
  }

  void Attention() {
    for (const int context : plan_.contexts) {
      for (const int batch : plan_.batches) Attend("decode_attention", batch, context - 1, 1);
    }
    for (const int rows : plan_.prompts) Attend("prefill_attention", 1, 0, rows);
  }

  void RowOps() {
    for (const int rows : plan_.batches) Norm(rows);
    for (const int rows : plan_.batches) Rope(rows);
    for (const int rows : plan_.batches) {
      Draw("sample_greedy", rows, {});
      Draw("sample_top_p", rows, {.temperature = 0.8f, .top_p = 0.95f, .seed = 1});
      Draw("sample_top_k", rows, {.temperature = 0.8f, .top_k = 40, .seed = 1});
    }
  }

 private:
  // `bytes` and `flops` of one call.
  void Add(Json what, double seconds, double bytes, double flops) {
    report_.EndIfDeviceFailed();
    const auto share = [](double rate, double limit) { return limit > 0 ? rate / limit : 0.0; };
    what["us"] = seconds * 1e6;
    what["gb_per_s"] = bytes / seconds / 1e9;
    what["of_read"] = share(bytes / seconds, limits_.read_bytes_per_s);
    what["tflop_per_s"] = flops / seconds / 1e12;
    what["of_mma"] = share(flops / seconds, limits_.mma_flops_per_s);
    report_.Append("kernels", std::move(what));
  }

  double Time(absl::FunctionRef<void()> work) {
    return SecondsOf(backend_, plan_.repetitions, work);
  }
  Buffer Floats(size_t count) { return Required(backend_.Allocate(count * sizeof(float))); }
  Buffer Values(size_t count) {
    Buffer buffer = Floats(count);
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> period(std::min<size_t>(count, 10007));
    for (float& value : period) value = normal(random);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = period[i % period.size()];
    backend_.CopyToDevice(std::span<const float>(values), buffer.As<float>());
    return buffer;
  }

  std::unique_ptr<PackedMatrix> Matrix(DType dtype, int outputs, int columns, RowLayout layout) {
    const bool is_gated = layout == RowLayout::kGateUp;
    const int part_rows = is_gated ? outputs / 2 : outputs;
    const std::vector<std::byte> bytes = RandomRows(dtype, part_rows, columns);
    const MatrixPart part = {.name = "speed",
                             .dtype = dtype,
                             .data = bytes.data(),
                             .rows = part_rows,
                             .columns = columns};
    MatrixSource source = {.parts = {part}, .layout = layout};
    if (is_gated) source.parts.push_back(part);
    return Required(backend_.PackMatrix(source));
  }
  std::unique_ptr<RowBuffer> RowsFor(const PackedMatrix& consumer, int rows) {
    return Required(backend_.CreateRowBuffer({.max_rows = rows,
                                              .columns = static_cast<int>(consumer.columns()),
                                              .consumers = {&consumer}}));
  }

  void Product(DType dtype, const char* name, int outputs, int columns, RowLayout layout) {
    // As many copies as are past the caches together.
    std::vector<std::unique_ptr<PackedMatrix>> matrices;
    for (size_t total = 0; total < plan_.working_set_bytes; total += matrices.back()->bytes()) {
      matrices.push_back(Matrix(dtype, outputs, columns, layout));
    }
    const int most = *std::max_element(plan_.product_rows.begin(), plan_.product_rows.end());
    const auto consumer = Matrix(dtype, kConsumerRows, outputs / 2, RowLayout::kStacked);
    const std::unique_ptr<RowBuffer> input = RowsFor(*matrices[0], most);
    const std::unique_ptr<RowBuffer> activated = RowsFor(*consumer, most);
    const Buffer values = Values(static_cast<size_t>(most) * static_cast<size_t>(columns));
    const Buffer output = Floats(static_cast<size_t>(most) * static_cast<size_t>(outputs));
    backend_.PackRows({.input = values.As<float>(), .rows = most, .output = input.get()});
    for (const int rows : plan_.product_rows) {
      const double seconds = Time([&] {
                               for (const auto& matrix : matrices) {
                                 if (layout == RowLayout::kGateUp) {
                                   backend_.ActivatedMatMul({.input = input.get(),
                                                             .weight = matrix.get(),
                                                             .output = activated.get(),
                                                             .rows = rows});
                                 } else {
                                   backend_.MatMul({.input = input.get(),
                                                    .weight = matrix.get(),
                                                    .output = output.As<float>(),
                                                    .rows = rows});
                                 }
                               }
                             }) /
                             static_cast<double>(matrices.size());
      Add({{"kernel", "mat_mul"},
           {"matrix", name},
           {"weights", std::string(TraitsOf(dtype).name)},
           {"rows", rows}},
          seconds, static_cast<double>(matrices[0]->bytes()),
          2.0 * rows * static_cast<double>(outputs) * columns);
      if (blas_ != nullptr && dtype == DType::kBF16) {
        ProductOfBlas(name, matrices, *input, output.As<float>(), rows);
      }
    }
  }

  // The same product by cuBLASLt, without the activation of a gated one.
  void ProductOfBlas(const char* name, const std::vector<std::unique_ptr<PackedMatrix>>& matrices,
                     const RowBuffer& input, DeviceSpan<float> output, int rows) {
    const auto outputs = static_cast<int>(matrices[0]->rows());
    const auto columns = static_cast<int>(matrices[0]->columns());
    const cuda::DeviceRows& in = static_cast<const cuda::CudaRows&>(input).rows();
    Json what = {{"kernel", "cublaslt"}, {"matrix", name}, {"weights", "BF16"}, {"rows", rows}};
    const auto product = blas_->Prepare(rows, outputs, columns, in.stride);
    absl::Status status = product.status();
    const auto multiply = [&] {
      for (const auto& matrix : matrices) {
        const void* const weights =
            static_cast<const cuda::CudaMatrix&>(*matrix).pieces()[0].weights.values;
        status.Update((*product)->Run(in.data, weights, output.data(), /*stream=*/nullptr));
      }
    };
    backend_.Synchronize();
    const double seconds = status.ok() ? SecondsOnDefaultStream(plan_.repetitions, multiply) : 0.0;
    if (!status.ok()) {
      what["reason"] = std::string(status.message());
      return report_.Append("not_measured", std::move(what));
    }
    Add(std::move(what), seconds / static_cast<double>(matrices.size()),
        static_cast<double>(matrices[0]->bytes()),
        2.0 * rows * static_cast<double>(outputs) * columns);
  }

  std::unique_ptr<KvStorage> NewKv(const PagedBatch& batch) {
    return Required(backend_.CreateKvStorage({.num_layers = 1,
                                              .num_kv_heads = shape_.kv_heads,
                                              .head_dim = shape_.head_dim,
                                              .num_blocks = batch.sequences() * batch.max_blocks,
                                              .dtype = DType::kBF16}));
  }

  void Attend(const char* name, int sequences, int position, int rows) {
    const EvenBatch batch(sequences, position, rows);
    const auto kv = NewKv(batch.paged);
    const int all_rows = sequences * rows, width = shape_.heads * shape_.head_dim;
    const auto consumer = Matrix(DType::kBF16, kConsumerRows, width, RowLayout::kStacked);
    const auto output = RowsFor(*consumer, all_rows);
    const Buffer q = Values(static_cast<size_t>(all_rows) * static_cast<size_t>(width));
    const double seconds = Time([&] {
      backend_.PagedAttention({.q = q.As<float>(),
                               .batch = &batch.paged,
                               .kv = kv.get(),
                               .num_heads = shape_.heads,
                               .scale = 0.1f,
                               .output = output.get()});
    });
    double visible = 0;  // Pairs of a row and a key.
    for (int r = 0; r < rows; ++r) visible += position + r + 1;
    visible *= sequences;
    const double kv_bytes = 4.0 * sequences * (position + rows) * shape_.kv_heads * shape_.head_dim;
    Add({{"kernel", name}, {"batch", sequences}, {"context", position + rows}}, seconds, kv_bytes,
        4.0 * visible * width);
  }

  void Norm(int rows) {
    const int columns = shape_.d_model;
    const auto consumer = Matrix(DType::kBF16, kConsumerRows, columns, RowLayout::kStacked);
    const auto output = RowsFor(*consumer, rows);
    const auto count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
    const Buffer input = Values(count), weight = Values(static_cast<size_t>(columns));
    const double seconds = Time([&] {
      backend_.RmsNorm({.input = input.As<float>(),
                        .weight = weight.As<float>(),
                        .epsilon = 1e-5f,
                        .rows = rows,
                        .output = output.get()});
    });
    Add({{"kernel", "rms_norm"}, {"rows", rows}}, seconds, 6.0 * static_cast<double>(count), 0);
  }

  void Rope(int rows) {
    const EvenBatch batch(rows, 100, 1);
    const auto kv = NewKv(batch.paged);
    const auto half = static_cast<size_t>(shape_.head_dim / 2);
    const auto q_width = static_cast<size_t>(shape_.heads * shape_.head_dim);
    const size_t width =
        q_width + 2 * static_cast<size_t>(shape_.kv_heads) * static_cast<size_t>(shape_.head_dim);
    const Buffer angles = Values(128 * half), qkv = Values(static_cast<size_t>(rows) * width);
    const Buffer q = Floats(static_cast<size_t>(rows) * q_width);
    const double seconds = Time([&] {
      backend_.RopeWriteKv({.qkv = qkv.As<float>(),
                            .target = {.cosines = angles.As<float>(),
                                       .sines = angles.As<float>(),
                                       .rotary_dim = shape_.head_dim,
                                       .pairing = RopePairing::kHalfSplit,
                                       .batch = &batch.paged,
                                       .num_heads = shape_.heads,
                                       .kv = kv.get(),
                                       .q = q.As<float>()}});
    });
    const double bytes =
        rows * (8.0 * static_cast<double>(q_width) + 6.0 * static_cast<double>(width - q_width));
    Add({{"kernel", "rope_write_kv"}, {"rows", rows}}, seconds, bytes, 0);
  }

  void Draw(const char* name, int rows, const SampleRow& how) {
    const std::vector<SampleRow> all(static_cast<size_t>(rows), how);
    const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(shape_.vocabulary);
    const Buffer logits = Values(count);
    const Buffer ids = Required(backend_.Allocate(static_cast<size_t>(rows) * sizeof(int32_t)));
    const double seconds = Time([&] {
      backend_.Sample({.logits = logits.As<float>(),
                       .rows = all,
                       .vocabulary = shape_.vocabulary,
                       .token_ids = ids.As<int32_t>()});
    });
    Add({{"kernel", name}, {"rows", rows}}, seconds, 4.0 * static_cast<double>(count), 0);
  }

  const std::unique_ptr<Backend> owner_ = Required(CreateBackend("cuda", {}));
  Backend& backend_ = *owner_;
  const SpeedPlan& plan_;
  const ModelShape& shape_;
  const DeviceLimits& limits_;
  Report& report_;
  BlasLt* const blas_;
};

}  // namespace

SpeedPlan TinyPlan() {
  return {.shape = kTiny,
          .repetitions = {.per_launch = 1, .launches = 1},
          .working_set_bytes = 1,
          .product_rows = {1, 17},
          .batches = {2},
          .contexts = {70},
          .prompts = {20}};
}

void MeasureKernels(const SpeedPlan& plan, const DeviceLimits& limits, Report& report) {
  const absl::StatusOr<std::unique_ptr<BlasLt>> blas = BlasLt::Open();
  if (!blas.ok()) {
    report.Append("not_measured",
                  {{"kernel", "cublaslt"}, {"reason", std::string(blas.status().message())}});
  }
  for (const DType dtype : kWeightTypes) {
    KernelBench(plan, limits, report, blas.ok() ? blas->get() : nullptr).Products(dtype);
  }
  KernelBench(plan, limits, report).Attention();
  KernelBench(plan, limits, report).RowOps();
}

}  // namespace vitrine::gpu_check
