#include "kernels/cpu/cpu_backend.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/calibration.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/pack_panel.h"
#include "kernels/cpu/page_arena.h"
#include "kernels/cpu/step_recorder.h"

namespace vitrine {
namespace cpu {
namespace {

constexpr int kMaxThreads = 1024;

absl::Status OutOfMemory(const char* what, size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what, ": ", bytes, " bytes"));
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const BackendOptions& options, const KernelTable& kernels, int threads)
      : Backend(options),
        kernels_(kernels),
        pool_(threads),
        scratch_(static_cast<size_t>(threads)),
        recorder_(pool_, kernels, scratch_) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return absl::StrCat(kernels_.name, ", ", pool_.workers(),
                        pool_.workers() == 1 ? " thread" : " threads");
  }

 private:
  absl::StatusOr<Buffer> DoAllocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<PackedMatrix>> DoPackMatrix(const MatrixSource& source) override;
  absl::StatusOr<std::unique_ptr<RowBuffer>> DoCreateRowBuffer(const RowBufferSpec& spec) override;
  absl::StatusOr<std::unique_ptr<KvStorage>> DoCreateKvStorage(const KvStorageSpec& spec) override;
  void Touch(Buffer& memory);
  void DoCopyToDevice(const void* source, void* target, size_t bytes) override {
    recorder_.Flush();
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void DoCopyToHost(const void* source, void* target, size_t bytes) override {
    recorder_.Flush();
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void DoSynchronize() override { recorder_.Flush(); }
  Calibration DoCalibrate() override { return cpu::Calibrate(pool_, kernels_); }

  void DoEmbed(const EmbedArgs& args) override {
    if (!args.token_ids.empty()) recorder_.Add(EmbedPhase{args});
  }
  void DoRmsNorm(const RmsNormArgs& args) override;
  void DoLayerNorm(const LayerNormArgs& args) override;
  void DoPackRows(const PackRowsArgs& args) override;
  void DoRmsNormAdd(const RmsNormAddArgs& args) override {
    if (args.rows > 0) recorder_.Add(RmsNormAddPhase{args});
  }
  void DoMatMul(const MatMulArgs& args) override;
  void DoActivatedMatMul(const ActivatedMatMulArgs& args) override;
  void DoRopeWriteKv(const RopeWriteKvArgs& args) override;
  void DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) override;
  void DoPagedAttention(const PagedAttentionArgs& args) override;
  void DoAttentionRows(const AttentionRowsArgs& args) override {
    if (!args.items.empty()) recorder_.Add(AttentionRowsPhase{args});
  }
  void DoAttentionReduce(const AttentionReduceArgs& args) override {
    if (!args.rows.empty() && !recorder_.ReduceLastRows(args)) {
      recorder_.Add(AttentionReducePhase{args});
    }
  }
  void DoGatherRows(const GatherRowsArgs& args) override {
    if (!args.row_ids.empty()) recorder_.Add(GatherRowsPhase{args});
  }
  void DoScatterAdd(const ScatterAddArgs& args) override {
    if (!args.row_ids.empty()) recorder_.Add(ScatterAddPhase{args});
  }
  void DoAdjustLogits(const AdjustLogitsArgs& args) override {
    if (!args.adjustments.empty()) recorder_.Add(AdjustLogitsPhase{args});
  }
  void DoSample(const SampleArgs& args) override {
    if (!args.rows.empty()) recorder_.Add(SamplePhase{args});
  }
  void DoLogprobs(const LogprobsArgs& args) override {
    if (!args.rows.empty()) recorder_.Add(LogprobsPhase{args});
  }

  const KernelTable& kernels_;
  PageArena arena_;
  ThreadPool pool_;
  std::vector<WorkerScratch> scratch_;
  StepRecorder recorder_;
};

absl::StatusOr<Buffer> CpuBackend::DoAllocate(size_t bytes) {
  Buffer buffer = arena_.AllocateBuffer(bytes);
  if (buffer.As<uint8_t>().data() == nullptr) return OutOfMemory("a buffer", bytes);
  return buffer;
}

// Makes the system provide fresh memory now. Every head of every layer has its own stream of pages
// in the cache, all of the same length: one step would wait until hundreds of MiB are cleared each
// time that they reach their next huge pages.
void CpuBackend::Touch(Buffer& memory) {
  constexpr size_t kPage = 4096;
  struct Job {
    ThreadPool& pool;
    DeviceSpan<uint8_t> memory;
  } job{pool_, memory.As<uint8_t>()};
  recorder_.Flush();
  pool_.Run(
      [](void* context, int worker) {
        auto& self = *static_cast<Job*>(context);
        const auto pages = static_cast<int64_t>((self.memory.size() + kPage - 1) / kPage);
        constexpr int kGrain = 512;  // A huge page.
        self.pool.ForEach(worker, pages, kGrain, [&](int64_t page) {
          volatile uint8_t* first = self.memory.data() + static_cast<size_t>(page) * kPage;
          *first = 0;
        });
      },
      &job);
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::DoPackMatrix(const MatrixSource& source) {
  PanelPlan plan = PlanPanels(source);
  Buffer memory = arena_.AllocateBuffer(plan.bytes);
  uint8_t* target = memory.As<uint8_t>().data();
  if (target == nullptr) return OutOfMemory(source.parts[0].name.c_str(), plan.bytes);

  struct Job {
    ThreadPool& pool;
    const PanelPlan& plan;
    int64_t columns;
    uint8_t* target;
  } job{pool_, plan, source.parts[0].columns, target};
  recorder_.Flush();
  pool_.Run(
      [](void* context, int worker) {
        auto& self = *static_cast<Job*>(context);
        constexpr int kGrain = 4;
        self.pool.ForEach(worker, static_cast<int64_t>(self.plan.panels.size()), kGrain,
                          [&](int64_t i) {
                            const PanelSource& panel = self.plan.panels[static_cast<size_t>(i)];
                            PackPanel(panel, self.columns, self.target + panel.offset);
                          });
      },
      &job);

  std::vector<Panel> panels;
  panels.reserve(plan.panels.size());
  for (PanelSource& panel : plan.panels) {
    panel.panel.data = target + panel.offset;
    panels.push_back(panel.panel);
  }
  return std::make_unique<CpuMatrix>(source, std::move(panels), std::move(memory));
}

absl::StatusOr<std::unique_ptr<RowBuffer>> CpuBackend::DoCreateRowBuffer(
    const RowBufferSpec& spec) {
  bool wants_int8 = false;
  bool wants_floats = false;
  for (const PackedMatrix* consumer : spec.consumers) {
    const CpuMatrix& matrix = AsMatrix(consumer);
    const bool is_exact = numerics() == Numerics::kExact;
    wants_int8 |= !is_exact && matrix.has_quantized_panels();
    wants_floats |= is_exact || matrix.has_float_panels();
  }
  const size_t bytes = CpuRowBuffer::Bytes(spec.max_rows, spec.columns, pool_.workers());
  Buffer memory = arena_.AllocateBuffer(bytes);
  if (memory.As<uint8_t>().data() == nullptr) return OutOfMemory("rows", bytes);
  return std::make_unique<CpuRowBuffer>(spec.max_rows, spec.columns, wants_int8, wants_floats,
                                        pool_.workers(), std::move(memory));
}

absl::StatusOr<std::unique_ptr<KvStorage>> CpuBackend::DoCreateKvStorage(
    const KvStorageSpec& spec) {
  if (spec.dtype != DType::kBF16 && spec.dtype != DType::kF32 && spec.dtype != DType::kQ8_0) {
    return absl::UnimplementedError(absl::StrCat("a key/value cache of type ",
                                                 std::string(TraitsOf(spec.dtype).name),
                                                 ": the cpu backend offers F32, BF16 and Q8_0"));
  }
  if (spec.head_dim > kMaxHeadDim || spec.head_dim % 2 != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "head_dim ", spec.head_dim, ": the cpu backend offers even ones up to ", kMaxHeadDim));
  }
  const size_t pages = static_cast<size_t>(spec.num_layers) *
                       static_cast<size_t>(spec.num_kv_heads) *
                       static_cast<size_t>(spec.num_blocks);
  const size_t bytes = pages * CpuKvStorage::PageBytes(spec);
  Buffer memory = arena_.AllocateBuffer(bytes);
  if (memory.As<uint8_t>().data() == nullptr) return OutOfMemory("the key/value cache", bytes);
  Touch(memory);
  return std::make_unique<CpuKvStorage>(spec, std::move(memory));
}

// An op of a step writes rows for each worker where they are few; what reads them must know.
bool ReadsPrivateRows(const RowBuffer* input, const PackedMatrix* weight) {
  const CpuRowBuffer& rows = AsRows(input);
  const CpuMatrix& matrix = AsMatrix(weight);
  const bool reads_int8 = rows.shared().wants_int8 && matrix.has_quantized_panels();
  const bool reads_floats =
      matrix.has_float_panels() || (matrix.has_quantized_panels() && !reads_int8);
  VITRINE_CHECK(!reads_floats || rows.shared().wants_floats);
  return rows.holds_private_rows();
}

void SetPrivate(RowBuffer* output, bool is_private) {
  static_cast<CpuRowBuffer*>(output)->set_holds_private_rows(is_private);
}

// Few rows are filled by every worker for itself.
template <class Args>
RowPhase<Args> MakeRowPhase(const Args& args) {
  const bool is_private = args.rows <= kPrivateRows;
  SetPrivate(args.output, is_private);
  return {args, is_private};
}

void CpuBackend::DoRmsNorm(const RmsNormArgs& args) {
  if (args.rows > 0) recorder_.Add(MakeRowPhase(args));
}

void CpuBackend::DoLayerNorm(const LayerNormArgs& args) {
  if (args.rows == 0) return;
  LayerNormPhase phase = MakeRowPhase(args);
  if (!args.normalized.empty()) {
    // Workers that each did all rows would read what others have normalised in place.
    SetPrivate(args.output, false);
    phase.is_private = false;
  }
  recorder_.Add(phase);
}

void CpuBackend::DoPackRows(const PackRowsArgs& args) {
  if (args.rows > 0) recorder_.Add(MakeRowPhase(args));
}

void CpuBackend::DoMatMul(const MatMulArgs& args) {
  if (args.rows == 0) return;
  recorder_.Add(MatMulPhase{args, ReadsPrivateRows(args.input, args.weight)});
}

void CpuBackend::DoActivatedMatMul(const ActivatedMatMulArgs& args) {
  if (args.rows == 0) return;
  const bool private_input = ReadsPrivateRows(args.input, args.weight);
  SetPrivate(args.output, false);
  recorder_.Add(ActivatedMatMulPhase{args, private_input});
}

void CpuBackend::DoRopeWriteKv(const RopeWriteKvArgs& args) {
  if (args.target.batch->rows() == 0) return;
  const RowPlace* places = recorder_.PlacesOf(*args.target.batch, args.target.kv->spec());
  recorder_.Add(RopeWriteKvPhase{args, places});
}

void CpuBackend::DoMatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) {
  if (args.target.batch->rows() == 0) return;
  const bool private_input = ReadsPrivateRows(args.input, args.weight);
  const RowPlace* places = recorder_.PlacesOf(*args.target.batch, args.target.kv->spec());
  recorder_.Add(MatMulRopeWriteKvPhase{args, places, private_input});
}

void CpuBackend::DoPagedAttention(const PagedAttentionArgs& args) {
  const int rows = args.batch->rows();
  if (rows == 0) return;
  const KvStorageSpec& spec = args.kv->spec();
  recorder_.PlacesOf(*args.batch, spec);  // Checks the rows' blocks.
  AttentionPlan* plan = recorder_.PlanOf({.batch = args.batch,
                                          .num_heads = args.num_heads,
                                          .num_kv_heads = spec.num_kv_heads,
                                          .head_dim = spec.head_dim,
                                          .window = args.window});
  const RowView& output = AsRows(args.output).shared();
  const bool is_aligned = spec.head_dim % kBlockColumns == 0;
  const bool quantizes_later = output.wants_int8 && !is_aligned;
  SetPrivate(args.output, false);
  recorder_.Add(PagedAttentionPhase{args, plan, quantizes_later});
  if (quantizes_later) recorder_.Add(QuantizePhase{&AsRows(args.output), rows});
}

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options) {
  if (options.threads < 0 || options.threads > cpu::kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("threads: must be between 0 and ",
                                                   cpu::kMaxThreads, ", is ", options.threads));
  }
  const char* forced = std::getenv("VITRINE_CPU_ISA");
  const absl::StatusOr<const cpu::KernelTable*> kernels =
      cpu::SelectKernels(forced == nullptr ? "" : forced);
  if (!kernels.ok()) {
    if (forced == nullptr) return kernels.status();
    return absl::Status(kernels.status().code(),
                        absl::StrCat("VITRINE_CPU_ISA: ", kernels.status().message()));
  }
  const int threads = options.threads > 0 ? options.threads : cpu::ThreadPool::AllowedCores();
  return std::make_unique<cpu::CpuBackend>(options, **kernels, threads);
}

}  // namespace vitrine
