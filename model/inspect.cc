#include "model/inspect.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/dtype.h"
#include "model/config.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/quote.h"
#include "model/status.h"
#include "model/tensor_map.h"
#include "model/tokenizer.h"

namespace vitrine {
namespace {

// Lines of a label and a text, aligned.
class Report {
 public:
  void Add(std::string_view label, const std::string& text) {
    absl::StrAppendFormat(&text_, "%-15s %s\n", std::string(label), text);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string Megabytes(double bytes) { return absl::StrFormat("%.1f MB", bytes / 1e6); }

void AddTensors(const GgufFile& file, Report& report) {
  struct Share {
    int tensors = 0;
    size_t bytes = 0;
  };
  std::map<DType, Share> shares;
  size_t total_bytes = 0;
  for (const TensorView& tensor : file.tensors()) {
    ++shares[tensor.dtype].tensors;
    shares[tensor.dtype].bytes += tensor.bytes;
    total_bytes += tensor.bytes;
  }
  report.Add("tensors", absl::StrCat(file.tensors().size(), ", ",
                                     Megabytes(static_cast<double>(total_bytes))));
  std::vector<std::pair<DType, Share>> sorted(shares.begin(), shares.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const auto& entry) { return entry.second.bytes; });
  for (const auto& [dtype, share] : sorted) {
    report.Add("", absl::StrFormat("%-7s %5d tensors, %s", std::string(TraitsOf(dtype).name),
                                   share.tensors, Megabytes(static_cast<double>(share.bytes))));
  }
}

void AddConfig(const ModelConfig& config, Report& report) {
  report.Add("layers", absl::StrCat(config.num_layers));
  report.Add("width", absl::StrCat(config.d_model, ", feed-forward ", config.d_ff));
  report.Add("heads", absl::StrCat(config.num_heads, " of ", config.head_dim, " dimensions, ",
                                   config.num_kv_heads, " for keys and values"));
  report.Add("positions", absl::StrCat("rotary, ", config.rotary_dim, " dimensions of a head"));
  report.Add("vocabulary", absl::StrCat(config.vocabulary, " rows"));
  report.Add("context", absl::StrCat(config.context_length, " tokens"));
}

void AddKvCache(const ModelConfig& config, Report& report) {
  const double values_per_token = 2.0 * config.num_layers * config.num_kv_heads * config.head_dim;
  report.Add("kv cache",
             absl::StrCat("per 1000 tokens: ", Megabytes(values_per_token * 1000 * 2), " as bf16, ",
                          Megabytes(values_per_token * 1000 * 4), " as f32"));
}

absl::Status AddTokenizer(const GgufFile& file, Report& report) {
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, CreateTokenizer(file));
  report.Add("tokenizer", absl::StrCat(std::string(tokenizer->kind()), ", ",
                                       tokenizer->vocabulary(), " tokens"));
  return absl::OkStatus();
}

void AddChatTemplate(const GgufFile& file, Report& report) {
  const absl::StatusOr<std::string_view> text = file.String("tokenizer.chat_template");
  report.Add("chat template", text.ok() ? absl::StrCat("yes, ", text->size(), " bytes") : "none");
}

// Passes on what is broken, and puts what is not supported into the report.
absl::Status AddVerdict(const absl::Status& status, std::string_view what, Report& report) {
  if (absl::IsUnimplemented(status)) {
    report.Add("not supported", absl::StrCat(std::string(what), ": ", status.message()));
    return absl::OkStatus();
  }
  return status;
}

}  // namespace

absl::StatusOr<std::string> InspectModel(const std::string& path) {
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  Report report;
  report.Add("file",
             absl::StrCat(file->label(), ", ", Megabytes(static_cast<double>(file->bytes())),
                          ", GGUF version ", file->version()));
  const absl::StatusOr<std::string_view> architecture = file->String("general.architecture");
  report.Add("architecture", architecture.ok() ? Quote(*architecture) : "none");
  absl::StatusOr<ModelConfig> config = absl::UnimplementedError("no tensors: a vocabulary only");
  if (!file->tensors().empty()) config = ReadConfig(*file);
  if (config.ok()) {
    report.Add("name", config->name);
    AddConfig(*config, report);
  }
  AddTensors(*file, report);
  if (config.ok()) AddKvCache(*config, report);
  VITRINE_RETURN_IF_ERROR(AddVerdict(config.status(), "model", report));
  if (config.ok()) {
    VITRINE_RETURN_IF_ERROR(MapTensors(*config, *file, kGgufTensorNames).status());
  }
  VITRINE_RETURN_IF_ERROR(AddVerdict(AddTokenizer(*file, report), "tokenizer", report));
  AddChatTemplate(*file, report);
  return report.Take();
}

}  // namespace vitrine
