#include "model/loader.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/kv_cache.h"
#include "model/status.h"
#include "model/tensor_map.h"
#include "model/weights.h"

namespace vitrine {
namespace {

// What a server without flags reserves at most, so that a file's promise of a long context costs
// nothing: address space for these positions, and tokens shared by all running sequences.
constexpr int kDefaultMaxContext = 131072;
constexpr int64_t kDefaultKvTokens = 32768;

// What a cache may take without being asked: a quarter of the machine, or half of what the weights
// leave of a device's own memory, which also has to hold the rows of a step.
int64_t DefaultKvBytes(const Backend& backend, const Checkpoint& checkpoint) {
  if (const std::optional<size_t> free = backend.FreeBytes(); free.has_value()) {
    size_t weights = 0;
    for (const TensorView& tensor : checkpoint.tensors()) weights += tensor.bytes;
    return static_cast<int64_t>((*free - std::min(*free, weights)) / 2);
  }
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE) / 4;
}

DType ChooseKvDType(KvDType asked, Numerics numerics) {
  switch (asked) {
    case KvDType::kF32:
      return DType::kF32;
    case KvDType::kBF16:
      return DType::kBF16;
    case KvDType::kQ8_0:
      return DType::kQ8_0;
    case KvDType::kAuto:
      break;
  }
  return numerics == Numerics::kExact ? DType::kF32 : DType::kBF16;
}

int64_t KvBytesPerBlock(const ModelConfig& config, DType dtype) {
  const int64_t pairs = int64_t{config.num_layers} * config.num_kv_heads * kKvBlockTokens;
  const int64_t head_dim = config.head_dim;
  if (dtype == DType::kF32) return pairs * 8 * head_dim;
  if (dtype == DType::kBF16) return pairs * 4 * head_dim;
  // int8 keys with an f32 scale per 16 dimensions, bf16 values.
  return pairs * (head_dim + 4 * ((head_dim + 15) / 16) + 2 * head_dim);
}

struct CacheSize {
  int context_length = 0;
  int num_blocks = 0;
};

// Chooses the KV pool and the context it can serve. Without flags the context shrinks to what fits;
// what the user asked for by name is refused instead when it does not fit.
absl::StatusOr<CacheSize> ChooseCacheSize(const ModelConfig& config, DType dtype,
                                          const LoadOptions& options, int64_t default_bytes) {
  if (options.context_length > config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("context_length ", options.context_length,
                                                   " exceeds the model's ", config.context_length,
                                                   " tokens"));
  }
  const int context = options.context_length > 0
                          ? options.context_length
                          : std::min(config.context_length, kDefaultMaxContext);
  const int64_t block_bytes = KvBytesPerBlock(config, dtype);
  const bool is_bytes_given = options.kv_cache_bytes > 0;
  const int64_t affordable =
      (is_bytes_given ? options.kv_cache_bytes : default_bytes) / block_bytes;
  const int64_t useful = int64_t{BlocksFor(context)} * options.max_step_sequences;
  const int64_t wanted =
      is_bytes_given
          ? useful
          : std::min(useful, std::max<int64_t>(BlocksFor(context), BlocksFor(kDefaultKvTokens)));
  const int64_t blocks = std::min(wanted, affordable);
  if (blocks < 1 || (options.context_length > 0 && blocks < BlocksFor(context))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "kv_cache_bytes: a context of ", context, " tokens needs ",
        BlocksFor(context) * block_bytes, " bytes, ", affordable * block_bytes, " are allowed"));
  }
  return CacheSize{
      .context_length = static_cast<int>(std::min<int64_t>(context, blocks * kKvBlockTokens)),
      .num_blocks = static_cast<int>(blocks)};
}

// LongRoPE has two sets of frequencies, and keys in the cache cannot change theirs. So the context
// that is served decides: up to the shorter length, unless a longer one is asked for.
void ChooseFrequencies(const LoadOptions& options, ModelConfig& config) {
  if (config.short_context_length == 0) return;
  if (options.context_length > config.short_context_length) {
    config.rope_frequencies = config.long_rope_frequencies;
  } else {
    config.context_length = std::min(config.context_length, config.short_context_length);
  }
}

absl::Status CheckBackend(const ModelConfig& config, const Backend& backend) {
  if (config.experts.count == 0 || !backend.records()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("a mixture of experts is not supported on the ", std::string(backend.name()),
                   " backend, which records steps before it is known which experts they need"));
}

absl::StatusOr<ChatTemplate> LoadChatTemplate(const ModelFiles& files) {
  VITRINE_ASSIGN_OR_RETURN(const ChatTemplateSource source, files.ChatTemplates());
  return ChatTemplate::Create(source);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const std::string& path, Backend& backend,
                                      const LoadOptions& options) {
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, ModelFiles::Open(path));
  return LoadModel(*files, backend, options);
}

absl::StatusOr<LoadedModel> LoadModel(ModelFiles& files, Backend& backend,
                                      const LoadOptions& options) {
  LoadedModel model;
  VITRINE_ASSIGN_OR_RETURN(ModelDescription description, files.Describe());
  VITRINE_RETURN_IF_ERROR(CheckBackend(description.config, backend));
  model.config = std::move(description.config);
  model.sampling = description.sampling;
  VITRINE_ASSIGN_OR_RETURN(model.tokenizer, files.CreateTokenizer());
  if (model.tokenizer->vocabulary() > model.config.vocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.label(), ": the tokenizer has ", model.tokenizer->vocabulary(),
                     " tokens, the embedding only ", model.config.vocabulary, " rows"));
  }
  model.chat_template = LoadChatTemplate(files);
  model.kv_dtype = ChooseKvDType(options.kv_dtype, backend.numerics());
  ChooseFrequencies(options, model.config);
  VITRINE_ASSIGN_OR_RETURN(const Checkpoint* checkpoint, files.Weights());
  VITRINE_ASSIGN_OR_RETURN(
      const CacheSize size,
      ChooseCacheSize(model.config, model.kv_dtype, options, DefaultKvBytes(backend, *checkpoint)));
  VITRINE_ASSIGN_OR_RETURN(const ModelTensors tensors,
                           MapTensors(model.config, *checkpoint, description.names));
  VITRINE_ASSIGN_OR_RETURN(Weights weights,
                           LoadWeights(model.config, tensors, backend, options.weights));
  model.weight_shares = ShareOfTypes(*checkpoint, options.weights.dtype);
  for (const TensorView& tensor : checkpoint->tensors()) model.parameters += tensor.elements();
  model.weight_bytes = weights.bytes();
  VITRINE_ASSIGN_OR_RETURN(model.runner,
                           TransformerRunner::Create(backend, model.config, std::move(weights),
                                                     {.max_rows = options.max_step_rows,
                                                      .max_samples = options.max_step_sequences,
                                                      .max_positions = size.context_length,
                                                      .num_blocks = size.num_blocks,
                                                      .kv_dtype = model.kv_dtype,
                                                      .max_traced_rows = options.max_traced_rows}));
  model.kv_bytes = model.runner->kv_bytes();
  return model;
}

std::vector<WeightShare> ShareOfTypes(const Checkpoint& weights, std::optional<DType> dtype) {
  std::vector<WeightShare> shares;
  for (const TensorView& tensor : weights.tensors()) {
    if (!tensor.other_type.empty()) continue;  // No weight.
    const bool is_converted = dtype.has_value() && tensor.shape.size() >= 2;
    const DType type = is_converted ? *dtype : tensor.dtype;
    auto share = std::ranges::find(shares, type, &WeightShare::dtype);
    if (share == shares.end()) share = shares.insert(shares.end(), {.dtype = type});
    ++share->tensors;
    // Matrices lie side by side in a tensor of more dimensions.
    const int64_t columns = std::max<int64_t>(tensor.columns(), 1);
    share->bytes += is_converted
                        ? static_cast<size_t>(tensor.elements() / columns) * RowBytes(type, columns)
                        : tensor.bytes;
  }
  std::ranges::stable_sort(shares, std::ranges::greater(), &WeightShare::bytes);
  return shares;
}

std::string DescribeShares(const std::vector<WeightShare>& shares) {
  return absl::StrJoin(shares, ", ", [](std::string* out, const WeightShare& share) {
    absl::StrAppend(out, std::string(TraitsOf(share.dtype).name), " (", share.tensors, ")");
  });
}

}  // namespace vitrine
