#include "model/inspect.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/dtype.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/loader.h"
#include "model/model_files.h"
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

void AddShares(const Checkpoint& weights, Report& report) {
  const std::vector<WeightShare> shares = ShareOfTypes(weights, std::nullopt);
  size_t bytes = 0;
  int64_t parameters = 0;
  for (const WeightShare& share : shares) bytes += share.bytes;
  for (const TensorView& tensor : weights.tensors()) parameters += tensor.elements();
  report.Add("parameters", absl::StrFormat("%.1f million", static_cast<double>(parameters) / 1e6));
  report.Add("tensors",
             absl::StrCat(weights.tensors().size(), ", ", Megabytes(static_cast<double>(bytes))));
  for (const WeightShare& share : shares) {
    report.Add("", absl::StrFormat("%-7s %5d tensors, %s", std::string(TraitsOf(share.dtype).name),
                                   share.tensors, Megabytes(static_cast<double>(share.bytes))));
  }
}

// The name with the number of its layer as "*": layers have the same tensors.
std::string NameOfAllLayers(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t begin = name.find('.'); begin != std::string::npos; begin = name.find('.', begin)) {
    size_t end = ++begin;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end > begin && end < name.size() && name[end] == '.') {
      return absl::StrCat(name.substr(0, begin), "*", name.substr(end));
    }
  }
  return name;
}

// One line per kind of tensor and type; quantised files mix types over the layers.
void AddTensors(const Checkpoint& weights, Report& report) {
  struct Kind {
    std::string text;
    int tensors = 0;
  };
  std::vector<Kind> kinds;
  std::map<std::string, size_t> index;
  for (const TensorView& tensor : weights.tensors()) {
    std::string text =
        absl::StrFormat("%-7s [%s] %s", std::string(tensor.type_name()),
                        absl::StrJoin(tensor.shape, ", "), Quote(NameOfAllLayers(tensor.name)));
    const auto [entry, is_new] = index.emplace(text, kinds.size());
    if (is_new) kinds.push_back({.text = std::move(text)});
    ++kinds[entry->second].tensors;
  }
  for (const Kind& kind : kinds) {
    const std::string count = kind.tensors > 1 ? absl::StrCat(" x ", kind.tensors) : std::string();
    report.Add("", kind.text + count);
  }
}

std::string DescribePositions(const ModelConfig& config) {
  if (config.position_bias == PositionBias::kLearned) return "a learned table";
  if (config.position_bias == PositionBias::kAlibi) return "ALiBi slopes";
  if (config.rotary_dim == 0) return "none";
  std::string text = absl::StrCat("rotary, ", config.rotary_dim, " dimensions of a head");
  const auto still =
      std::ranges::count_if(config.layers, [](const LayerConfig& layer) { return !layer.rotates; });
  if (still > 0) absl::StrAppend(&text, ", not in ", still, " layers");
  return text;
}

void AddConfig(const ModelConfig& config, Report& report) {
  report.Add("layers", absl::StrCat(config.num_layers));
  report.Add("width", absl::StrCat(config.d_model, ", feed-forward ", config.d_ff));
  if (const ExpertConfig& experts = config.experts; experts.count > 0) {
    report.Add(
        "experts",
        absl::StrCat(experts.count, ", ", experts.per_token, " for each token, feed-forward ",
                     experts.d_ff,
                     experts.d_shared > 0 ? absl::StrCat(", shared ", experts.d_shared) : ""));
  }
  report.Add("heads", absl::StrCat(config.num_heads, " of ", config.head_dim, " dimensions, ",
                                   config.num_kv_heads, " for keys and values"));
  report.Add("positions", DescribePositions(config));
  std::map<int, int> windows;
  for (const LayerConfig& layer : config.layers) ++windows[layer.window];
  for (const auto& [window, layers] : windows) {
    if (window > 0) report.Add("window", absl::StrCat(window, " keys in ", layers, " layers"));
  }
  report.Add("vocabulary", absl::StrCat(config.vocabulary, " rows"));
  std::string context = absl::StrCat(config.context_length, " tokens");
  if (config.short_context_length > 0) {
    absl::StrAppend(&context, ", ", config.short_context_length, " unless more are asked for");
  }
  report.Add("context", context);
}

void AddMemory(const ModelConfig& config, const Checkpoint& weights, Report& report) {
  const double values_per_token = 2.0 * config.num_layers * config.num_kv_heads * config.head_dim;
  report.Add("kv cache",
             absl::StrCat("per 1000 tokens: ", Megabytes(values_per_token * 1000 * 2), " as bf16, ",
                          Megabytes(values_per_token * 1000 * 4), " as f32"));
  double bytes = values_per_token * 2 * config.context_length;
  for (const TensorView& tensor : weights.tensors()) bytes += static_cast<double>(tensor.bytes);
  report.Add("memory", absl::StrCat("weights and one sequence of ", config.context_length,
                                    " tokens: ", Megabytes(bytes)));
}

absl::Status AddTokenizer(const ModelFiles& files, Report& report) {
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, files.CreateTokenizer());
  report.Add("tokenizer", absl::StrCat(std::string(tokenizer->kind()), ", ",
                                       tokenizer->vocabulary(), " tokens"));
  return absl::OkStatus();
}

absl::Status AddChatTemplate(const ModelFiles& files, Report& report) {
  VITRINE_ASSIGN_OR_RETURN(const ChatTemplateSource source, files.ChatTemplates());
  if (source.templates.empty()) {
    report.Add("chat template", "none");
    return absl::OkStatus();
  }
  size_t bytes = 0;
  for (const ChatTemplateSource::Named& named : source.templates) bytes += named.text.size();
  const absl::StatusOr<ChatTemplate> chat_template = ChatTemplate::Create(source);
  report.Add("chat template",
             chat_template.ok()
                 ? absl::StrCat(chat_template->Describe(), ", ", bytes, " bytes")
                 : absl::StrCat("not supported: ", chat_template.status().message()));
  return absl::OkStatus();
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
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(path));
  VITRINE_ASSIGN_OR_RETURN(const Checkpoint* weights, files->Weights());
  Report report;
  report.Add("file", absl::StrCat(files->label(), ", ", files->format()));
  const std::string architecture = files->architecture();
  report.Add("architecture", architecture.empty() ? "none" : Quote(architecture));
  absl::StatusOr<ModelDescription> model =
      absl::UnimplementedError("no tensors: a vocabulary only");
  if (!weights->tensors().empty()) model = files->Describe();
  if (model.ok()) {
    report.Add("name", model->config.name);
    AddConfig(model->config, report);
  }
  AddShares(*weights, report);
  if (model.ok()) AddMemory(model->config, *weights, report);
  VITRINE_RETURN_IF_ERROR(AddVerdict(model.status(), "model", report));
  if (model.ok()) {
    VITRINE_RETURN_IF_ERROR(MapTensors(model->config, *weights, model->names).status());
  }
  VITRINE_RETURN_IF_ERROR(AddVerdict(AddTokenizer(*files, report), "tokenizer", report));
  VITRINE_RETURN_IF_ERROR(AddVerdict(AddChatTemplate(*files, report), "chat template", report));
  report.Add("by tensor", "type, shape, name");
  AddTensors(*weights, report);
  return report.Take();
}

}  // namespace vitrine
