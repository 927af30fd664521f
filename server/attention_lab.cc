#include "server/attention_lab.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/philox.h"
#include "model/status.h"

namespace vitrine::server {
namespace {

double LongestRow(const LabMatrix& matrix) {
  double longest = 0;
  for (int row = 0; row < matrix.rows; ++row) {
    double squares = 0;
    for (int c = 0; c < matrix.columns; ++c)
      squares += double{matrix.at(row, c)} * matrix.at(row, c);
    longest = std::max(longest, std::sqrt(squares));
  }
  return longest;
}

absl::Status CheckMatrix(absl::string_view name, const LabMatrix& matrix, int tokens) {
  if (matrix.rows != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " needs ", tokens, " rows, one per token, not ", matrix.rows));
  }
  if (matrix.columns < 1 || matrix.columns > kMaxLabColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " takes 1 to ", kMaxLabColumns, " columns, not ", matrix.columns));
  }
  for (const float value : matrix.values) {
    if (!std::isfinite(value))
      return absl::InvalidArgumentError(absl::StrCat(name, " is infinite"));
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const LabInput& input) {
  const size_t tokens = input.tokens.size();
  if (tokens < 1 || tokens > kMaxLabTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes 1 to ", kMaxLabTokens, " tokens, not ", tokens));
  }
  const auto rows = static_cast<int>(tokens);
  VITRINE_RETURN_IF_ERROR(CheckMatrix("q", input.q, rows));
  VITRINE_RETURN_IF_ERROR(CheckMatrix("k", input.k, rows));
  VITRINE_RETURN_IF_ERROR(CheckMatrix("v", input.v, rows));
  if (input.q.columns != input.k.columns) {
    return absl::InvalidArgumentError(absl::StrCat("q has ", input.q.columns, " columns and k ",
                                                   input.k.columns, ": they must be equal"));
  }
  // Cauchy and Schwarz: no score is larger.
  const double bound =
      std::max(1.0, std::fabs(double{input.scale})) * LongestRow(input.q) * LongestRow(input.k);
  // Written so that NaN fails.
  if (!(bound <= kMaxLabScore)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "length of the longest q x the longest k x scale may be %g, is %g: take smaller numbers",
        kMaxLabScore, bound));
  }
  return absl::OkStatus();
}

// A batch with the arrays it points to.
struct LabBatch {
  std::vector<int32_t> row_begin = {0};
  std::vector<int32_t> first_position;
  std::vector<int32_t> block_table;
  PagedBatch batch;

  void Add(int position, int rows, int blocks) {
    row_begin.push_back(row_begin.back() + rows);
    first_position.push_back(position);
    for (int b = 0; b < blocks; ++b) block_table.push_back(b);
    batch = {.row_begin = row_begin,
             .first_position = first_position,
             .block_table = block_table,
             .max_blocks = blocks};
  }
};

// One head over one sequence in a paged cache of the reference backend.
class LabHead {
 public:
  static absl::StatusOr<std::unique_ptr<LabHead>> Create(const LabInput& input) {
    auto head = std::unique_ptr<LabHead>(new LabHead(input));
    VITRINE_RETURN_IF_ERROR(head->Allocate());
    head->WriteCache();
    return head;
  }

  LabResult Run() {
    LabResult result;
    const PagedBatch& seen = input_.causal ? as_written_.batch : sees_all_.batch;
    result.scores = Rows(sees_all_.batch, 1.0f, AttentionStage::kScores);
    result.output = Attend(seen);
    result.scaled = Rows(seen, input_.scale, AttentionStage::kScores);
    result.weights = Rows(seen, input_.scale, AttentionStage::kWeights);
    result.rows = Reduce();
    result.uniform_output = {.rows = tokens_, .columns = input_.v.columns, .values = {}};
    for (const LabRow& row : result.rows) {
      for (int c = 0; c < input_.v.columns; ++c) {
        double sum = 0;
        for (int key = 0; key < row.visible_keys; ++key) sum += input_.v.at(key, c);
        result.uniform_output.values.push_back(static_cast<float>(sum / row.visible_keys));
      }
    }
    return result;
  }

 private:
  explicit LabHead(const LabInput& input)
      : input_(input),
        tokens_(static_cast<int>(input.tokens.size())),
        // One op has one head size; zeros change no product.
        head_dim_(std::max(input.k.columns, input.v.columns)) {
    const int blocks = (tokens_ + kKvBlockTokens - 1) / kKvBlockTokens;
    as_written_.Add(0, tokens_, blocks);
    // The ops are causal. A token that sees all of them is one that stands at the end, so without
    // the mask every query gets a sequence of its own over the same cached keys.
    for (int t = 0; t < tokens_; ++t) sees_all_.Add(tokens_ - 1, 1, blocks);
  }

  absl::Status Allocate() {
    VITRINE_ASSIGN_OR_RETURN(
        backend_, CreateBackend("reference", {.numerics = Numerics::kExact, .threads = 1}));
    VITRINE_ASSIGN_OR_RETURN(kv_,
                             backend_->CreateKvStorage({.num_layers = 1,
                                                        .num_kv_heads = 1,
                                                        .head_dim = head_dim_,
                                                        .num_blocks = as_written_.batch.max_blocks,
                                                        .dtype = DType::kF32}));
    const auto rows = static_cast<size_t>(tokens_);
    const auto columns = static_cast<size_t>(head_dim_);
    VITRINE_ASSIGN_OR_RETURN(qkv_, backend_->Allocate(rows * 3 * columns * sizeof(float)));
    VITRINE_ASSIGN_OR_RETURN(q_, backend_->Allocate(rows * columns * sizeof(float)));
    VITRINE_ASSIGN_OR_RETURN(log_sum_exp_, backend_->Allocate(rows * sizeof(float)));
    VITRINE_ASSIGN_OR_RETURN(grid_, backend_->Allocate(rows * rows * sizeof(float)));
    VITRINE_ASSIGN_OR_RETURN(stats_, backend_->Allocate(rows * kAttentionStats * sizeof(float)));
    VITRINE_ASSIGN_OR_RETURN(output_, backend_->Allocate(rows * columns * sizeof(float)));
    // A row buffer is opaque; a product with the identity shows what it holds.
    std::vector<float> identity(columns * columns);
    for (size_t i = 0; i < columns; ++i) identity[i * columns + i] = 1.0f;
    const MatrixSource source = {
        .parts = {{.name = "identity",
                   .dtype = DType::kF32,
                   .data = reinterpret_cast<const std::byte*>(identity.data()),
                   .rows = head_dim_,
                   .columns = head_dim_}}};
    VITRINE_ASSIGN_OR_RETURN(identity_, backend_->PackMatrix(source));
    VITRINE_ASSIGN_OR_RETURN(
        attended_,
        backend_->CreateRowBuffer(
            {.max_rows = tokens_, .columns = head_dim_, .consumers = {identity_.get()}}));
    return absl::OkStatus();
  }

  void WriteCache() {
    std::vector<float> qkv;
    for (int t = 0; t < tokens_; ++t) {
      for (const LabMatrix* matrix : {&input_.q, &input_.k, &input_.v}) {
        for (int c = 0; c < head_dim_; ++c) {
          qkv.push_back(c < matrix->columns ? matrix->at(t, c) : 0.0f);
        }
      }
    }
    backend_->CopyToDevice(std::span<const float>(qkv), qkv_.As<float>());
    backend_->RopeWriteKv({.qkv = qkv_.As<float>(),
                           .target = {.cosines = {},
                                      .sines = {},
                                      .batch = &as_written_.batch,
                                      .num_heads = 1,
                                      .kv = kv_.get(),
                                      .q = q_.As<float>()}});
    backend_->Synchronize();
  }

  LabMatrix Rows(const PagedBatch& batch, float scale, AttentionStage stage) {
    std::vector<AttentionItem> items;
    items.reserve(static_cast<size_t>(tokens_));
    for (int row = 0; row < tokens_; ++row) items.push_back({.row = row});
    backend_->AttentionRows({.q = q_.As<float>(),
                             .log_sum_exp = log_sum_exp_.As<float>(),
                             .row_capacity = tokens_,
                             .batch = &batch,
                             .kv = kv_.get(),
                             .num_heads = 1,
                             .scale = scale,
                             .items = items,
                             .stage = stage,
                             .key_columns = tokens_,
                             .output = grid_.As<float>()});
    return Download(grid_, tokens_);
  }

  LabMatrix Attend(const PagedBatch& batch) {
    backend_->PagedAttention({.q = q_.As<float>(),
                              .batch = &batch,
                              .kv = kv_.get(),
                              .num_heads = 1,
                              .scale = input_.scale,
                              .output = attended_.get(),
                              .log_sum_exp = log_sum_exp_.As<float>()});
    backend_->MatMul({.input = attended_.get(),
                      .weight = identity_.get(),
                      .output = output_.As<float>(),
                      .rows = tokens_});
    const LabMatrix padded = Download(output_, head_dim_);
    LabMatrix output = {.rows = tokens_, .columns = input_.v.columns, .values = {}};
    for (int t = 0; t < tokens_; ++t) {
      for (int c = 0; c < output.columns; ++c) output.values.push_back(padded.at(t, c));
    }
    return output;
  }

  // Of the rows that the grid holds.
  std::vector<LabRow> Reduce() {
    std::vector<AttentionRowKeys> keys;
    keys.reserve(static_cast<size_t>(tokens_));
    for (int t = 0; t < tokens_; ++t) keys.push_back({0, input_.causal ? t : tokens_ - 1});
    backend_->AttentionReduce({.input = grid_.As<float>(),
                               .key_columns = tokens_,
                               .rows = keys,
                               .log_sum_exp = log_sum_exp_.As<float>(),
                               .stats = stats_.As<float>()});
    const LabMatrix stats = Download(stats_, kAttentionStats);
    std::vector<LabRow> rows;
    rows.reserve(static_cast<size_t>(tokens_));
    for (int t = 0; t < tokens_; ++t) {
      rows.push_back({.log_sum_exp = stats.at(t, 0),
                      .entropy = stats.at(t, 1),
                      .uniform_entropy = std::log(stats.at(t, 7)),
                      .max_weight = stats.at(t, 2),
                      .top_key = static_cast<int>(stats.at(t, 3)),
                      .visible_keys = static_cast<int>(stats.at(t, 7))});
    }
    return rows;
  }

  LabMatrix Download(const Buffer& buffer, int columns) {
    LabMatrix matrix = {.rows = tokens_, .columns = columns, .values = {}};
    matrix.values.resize(buffer.bytes() / sizeof(float));
    const DeviceSpan<const float> source = buffer.As<float>();
    backend_->CopyToHost(source, std::span<float>(matrix.values));
    return matrix;
  }

  const LabInput& input_;
  const int tokens_;
  const int head_dim_;
  LabBatch as_written_;  // One sequence: row t sees keys 0..t.
  LabBatch sees_all_;    // A sequence per row, each at the last position.

  std::unique_ptr<Backend> backend_;  // Outlives what it made.
  std::unique_ptr<KvStorage> kv_;
  std::unique_ptr<PackedMatrix> identity_;
  std::unique_ptr<RowBuffer> attended_;
  Buffer qkv_;
  Buffer q_;
  Buffer log_sum_exp_;
  Buffer grid_;
  Buffer stats_;
  Buffer output_;
};

// Box and Muller's (1958) pairs of normal values, from counters: the sweep never changes.
class NormalValues {
 public:
  float Next() {
    if (has_second_) {
      has_second_ = false;
      return second_;
    }
    const uint64_t bits = RandomBits(/*seed=*/2017, position_++, /*choice=*/0);
    const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;
    const double angle = static_cast<double>(bits & 0xFFFFFFFFu) * 0x1p-32 * 2.0 * std::numbers::pi;
    const double radius = std::sqrt(-2.0 * std::log(u));
    second_ = static_cast<float>(radius * std::sin(angle));
    has_second_ = true;
    return static_cast<float>(radius * std::cos(angle));
  }

  LabMatrix Matrix(int rows, int columns) {
    LabMatrix matrix = {.rows = rows, .columns = columns, .values = {}};
    for (int i = 0; i < rows * columns; ++i) matrix.values.push_back(Next());
    return matrix;
  }

 private:
  int64_t position_ = 0;
  bool has_second_ = false;
  float second_ = 0;
};

absl::Status AddSaturation(const LabInput& input, double share, Saturation& sum) {
  VITRINE_ASSIGN_OR_RETURN(const LabResult result, RunLab(input));
  for (const LabRow& row : result.rows) {
    sum.entropy += share * row.entropy;
    sum.max_weight += share * row.max_weight;
  }
  for (const float weight : result.weights.values) {
    sum.gradient += share * weight * (1.0 - weight);
  }
  return absl::OkStatus();
}

}  // namespace

float DefaultScale(int d) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))); }

absl::StatusOr<LabResult> RunLab(const LabInput& input) {
  VITRINE_RETURN_IF_ERROR(CheckInput(input));
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<LabHead> head, LabHead::Create(input));
  return head->Run();
}

absl::StatusOr<std::vector<SweepRow>> SweepColumns() {
  constexpr int kDraws = 4;  // Of kSweepKeys rows each.
  constexpr double kShare = 1.0 / (kDraws * kSweepKeys);
  NormalValues normal;
  std::vector<SweepRow> sweep;
  for (int d = 1; d <= kMaxLabColumns; d *= 2) {
    SweepRow row = {.d = d, .scaled = {}, .unscaled = {}};
    for (int draw = 0; draw < kDraws; ++draw) {
      LabInput input = {.tokens = std::vector<std::string>(kSweepKeys),
                        .q = normal.Matrix(kSweepKeys, d),
                        .k = normal.Matrix(kSweepKeys, d),
                        .v = {kSweepKeys, 1, std::vector<float>(kSweepKeys)}};
      VITRINE_RETURN_IF_ERROR(AddSaturation(input, kShare, row.unscaled));
      input.scale = DefaultScale(d);
      VITRINE_RETURN_IF_ERROR(AddSaturation(input, kShare, row.scaled));
    }
    sweep.push_back(row);
  }
  return sweep;
}

}  // namespace vitrine::server
