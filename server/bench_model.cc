#include "server/bench_model.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "model/kv_cache.h"
#include "model/model_files.h"
#include "model/status.h"
#include "server/serve_command.h"

namespace vitrine::server {
namespace {

constexpr int kPrompt = 512;
constexpr int kAnswer = 128;
constexpr int kDepth = 4096;
constexpr int kBatchDepth = 128;
constexpr int kBatchAnswer = 64;
constexpr int kMaxBatch = 16;
constexpr int kRounds = 3;

// One line of the table.
struct Row {
  std::string name;
  double tokens_per_s = 0;  // Median of the rounds.
  double best = 0;          // Of the rounds.
  double bytes_per_s = 0;   // Weights and cache read, at the median; 0 where arithmetic rules.
  double ops_per_s = 0;     // Of the weight matrices, at the median.
};

class ModelBench {
 public:
  explicit ModelBench(ModelOnBackend& loaded)
      : runner_(*loaded.model.runner),
        config_(loaded.model.config),
        weight_bytes_(static_cast<double>(loaded.model.weight_bytes)),
        kv_bytes_per_token_(static_cast<double>(loaded.model.kv_bytes) /
                            (double{kKvBlockTokens} * runner_.limits().num_blocks)) {}

  std::vector<Row> Run() {
    std::vector<Row> rows;
    Measure(rows, "prefill", 1, 0, kPrompt, kPrompt);
    Measure(rows, "decode", 1, 0, 1, kAnswer);
    for (int batch = 2; batch <= kMaxBatch; batch *= 2) {
      Measure(rows, absl::StrFormat("batch%d", batch), batch, kBatchDepth, 1, kBatchAnswer);
    }
    Measure(rows, "prefill@4096", 1, kDepth, kPrompt, kPrompt);
    Measure(rows, "decode@4096", 1, kDepth, 1, kAnswer);
    return rows;
  }

 private:
  // `batch` sequences at `depth` each get `tokens` more, `chunk` per step.
  void Measure(std::vector<Row>& rows, std::string name, int batch, int depth, int chunk,
               int tokens) {
    const RunnerLimits& limits = runner_.limits();
    const int blocks = BlocksFor(depth + tokens);
    if (depth + tokens > limits.context_length || batch * blocks > limits.num_blocks) return;
    std::fprintf(stderr, "%s ...\n", name.c_str());
    std::vector<double> seconds;
    // The timed tokens overwrite each other; what lies before them stays.
    for (int s = 0; s < batch; ++s) Prefill(s, blocks, depth);
    for (int round = 0; round < kRounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int done = 0; done < tokens; done += chunk) Step(0, batch, blocks, depth + done, chunk);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      seconds.push_back(elapsed.count());
    }
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2];
    const double steps = static_cast<double>(tokens) / chunk;
    const double all_tokens = static_cast<double>(tokens) * batch;
    const double mean_depth = depth + tokens / 2.0;
    Row row{.name = std::move(name),
            .tokens_per_s = all_tokens / median,
            .best = all_tokens / seconds.front(),
            .ops_per_s = 2 * LayerWeights() * all_tokens / median};
    if (chunk == 1) {
      row.bytes_per_s = steps * (weight_bytes_ + batch * mean_depth * kv_bytes_per_token_) / median;
    }
    rows.push_back(std::move(row));
  }

  void Prefill(int sequence, int blocks, int tokens) {
    for (int done = 0; done < tokens; done += kPrompt) {
      Step(sequence, 1, blocks, done, std::min(kPrompt, tokens - done));
    }
  }

  // One step of `count` tokens for each of `batch` sequences from `first` on.
  void Step(int first, int batch, int blocks, int position, int count) {
    batch_.Clear();
    batch_.max_blocks = blocks;
    for (int s = first; s < first + batch; ++s) {
      for (int i = 0; i < count; ++i) batch_.token_ids.push_back(NextToken());
      batch_.row_begin.push_back(batch_.rows());
      batch_.first_position.push_back(position);
      for (int b = 0; b < blocks; ++b) batch_.block_table.push_back(s * blocks + b);
      batch_.sampled_rows.push_back(batch_.rows() - 1);
      batch_.sampling.push_back({.position = position + count});
    }
    next_.resize(batch_.sampling.size());
    runner_.Step(batch_, next_);
  }

  TokenId NextToken() {
    random_ = random_ * 1664525u + 1013904223u;
    return static_cast<TokenId>((random_ >> 8) % static_cast<uint32_t>(config_.vocabulary));
  }

  // Weights of the layers' matrices: each takes a multiplication and an addition per token.
  double LayerWeights() const {
    const double d_model = config_.d_model;
    const double heads = config_.num_heads;
    const double attention = (2 * heads + 2 * config_.num_kv_heads) * config_.head_dim * d_model;
    return config_.num_layers * (attention + 3.0 * config_.d_ff * d_model);
  }

  Runner& runner_;
  const ModelConfig& config_;
  const double weight_bytes_;
  const double kv_bytes_per_token_;
  Batch batch_;
  std::vector<TokenId> next_;
  uint32_t random_ = 1;
};

void PrintTable(const std::vector<Row>& rows, const Calibration& before, const Calibration& after) {
  const double read = std::max(before.read_bytes_per_s, after.read_bytes_per_s);
  const double ops = std::max(before.int8_ops_per_s, after.int8_ops_per_s);
  std::printf("limits: read %.1f then %.1f GB/s, int8 %.0f then %.0f GOP/s, hand-over %.0f ns\n",
              before.read_bytes_per_s / 1e9, after.read_bytes_per_s / 1e9,
              before.int8_ops_per_s / 1e9, after.int8_ops_per_s / 1e9, after.handover_s * 1e9);
  std::printf("%-14s %10s %10s %8s %6s %8s %6s\n", "", "tokens/s", "best", "GB/s", "of", "GOP/s",
              "of");
  const auto share = [](double value, double limit) {
    return limit > 0 ? absl::StrFormat("%.0f%%", 100 * value / limit) : std::string("-");
  };
  for (const Row& row : rows) {
    const std::string bytes =
        row.bytes_per_s > 0 ? absl::StrFormat("%.1f", row.bytes_per_s / 1e9) : std::string("-");
    std::printf("%-14s %10.1f %10.1f %8s %6s %8.0f %6s\n", row.name.c_str(), row.tokens_per_s,
                row.best, bytes.c_str(),
                row.bytes_per_s > 0 ? share(row.bytes_per_s, read).c_str() : "-",
                row.ops_per_s / 1e9, share(row.ops_per_s, ops).c_str());
  }
}

void PrintJson(const std::vector<Row>& rows, const Calibration& before, const Calibration& after) {
  std::string line = "{";
  for (const Row& row : rows) {
    line += absl::StrFormat("\"%s\": %.2f, ", row.name, row.tokens_per_s);
  }
  line += absl::StrFormat(
      "\"read_gb_s_before\": %.2f, \"read_gb_s_after\": %.2f, \"int8_gop_s_before\": %.1f, "
      "\"int8_gop_s_after\": %.1f, \"handover_ns\": %.0f}",
      before.read_bytes_per_s / 1e9, after.read_bytes_per_s / 1e9, before.int8_ops_per_s / 1e9,
      after.int8_ops_per_s / 1e9, after.handover_s * 1e9);
  std::puts(line.c_str());
}

}  // namespace

absl::Status BenchModel(const ServerOptions& options) {
  ServerOptions bench_options = options;
  bench_options.load.max_step_rows = kPrompt;
  bench_options.load.max_step_sequences = kMaxBatch;
  VITRINE_ASSIGN_OR_RETURN(const auto files, ModelFiles::Open(options.arguments.front()));
  VITRINE_ASSIGN_OR_RETURN(const ModelDescription description, files->Describe());
  if (description.config.experts.count > 0) {
    return absl::UnimplementedError(
        "bench-model: which weights a step reads is not known of a mixture of experts");
  }
  VITRINE_ASSIGN_OR_RETURN(const auto loaded, LoadModelOnBackend(*files, bench_options));
  const Calibration before = loaded->backend->Calibrate();
  const std::vector<Row> rows = ModelBench(*loaded).Run();
  const Calibration after = loaded->backend->Calibrate();
  if (options.json) {
    PrintJson(rows, before, after);
  } else {
    std::printf("%s on %s\n", loaded->served.name.c_str(), loaded->served.device.c_str());
    PrintTable(rows, before, after);
  }
  return absl::OkStatus();
}

}  // namespace vitrine::server
