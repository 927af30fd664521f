#include "model/tensor_map.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/dtype.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {

const TensorNames kGgufTensorNames = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .output_head = "output.weight",
    .layer_prefix = "blk.",
    .attention_norm = "attn_norm.weight",
    .q = "attn_q.weight",
    .k = "attn_k.weight",
    .v = "attn_v.weight",
    .attention_out = "attn_output.weight",
    .mlp_norm = "ffn_norm.weight",
    .gate = "ffn_gate.weight",
    .up = "ffn_up.weight",
    .down = "ffn_down.weight",
    .ignored_suffix = "rope_freqs.weight",  // ReadConfig has put them into the frequencies.
};

namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Takes tensors out of a checkpoint by name and remembers which ones.
class TensorTaker {
 public:
  explicit TensorTaker(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  absl::Status Take(std::string name, const std::vector<int64_t>& shape, TensorView& target) {
    const TensorView* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) return Error(name, "is missing");
    if (tensor->shape != shape) {
      return Error(name, absl::StrCat("has shape ", ShapeText(tensor->shape), ", expected ",
                                      ShapeText(shape)));
    }
    if (shape.size() == 1 && !IsFloat(tensor->dtype)) {
      return Error(name, absl::StrCat("has type ", std::string(TraitsOf(tensor->dtype).name),
                                      ", expected F32, F16 or BF16"));
    }
    target = *tensor;
    taken_.insert(std::move(name));
    return absl::OkStatus();
  }

  absl::Status CheckAllTaken(std::string_view ignored_suffix) const {
    for (const TensorView& tensor : checkpoint_.tensors()) {
      if (!taken_.contains(tensor.name) && !tensor.name.ends_with(ignored_suffix)) {
        return Error(tensor.name, "is not used by the model: its feature is not supported");
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(std::string_view name, std::string_view rule) const {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_.label(), ": tensor ", Quote(name), " ", std::string(rule)));
  }

  const Checkpoint& checkpoint_;
  std::set<std::string, std::less<>> taken_;
};

absl::Status TakeLayer(const ModelConfig& config, const TensorNames& names, int layer,
                       TensorTaker& taker, LayerTensors& target) {
  const std::string prefix = absl::StrCat(std::string(names.layer_prefix), layer, ".");
  const auto take = [&](std::string_view name, const std::vector<int64_t>& shape,
                        TensorView& tensor) {
    return taker.Take(prefix + std::string(name), shape, tensor);
  };
  const int64_t d_model = config.d_model;
  const int64_t d_ff = config.d_ff;
  const int64_t q_rows = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  VITRINE_RETURN_IF_ERROR(take(names.attention_norm, {d_model}, target.attention_norm));
  VITRINE_RETURN_IF_ERROR(take(names.q, {q_rows, d_model}, target.q));
  VITRINE_RETURN_IF_ERROR(take(names.k, {kv_rows, d_model}, target.k));
  VITRINE_RETURN_IF_ERROR(take(names.v, {kv_rows, d_model}, target.v));
  VITRINE_RETURN_IF_ERROR(take(names.attention_out, {d_model, q_rows}, target.attention_out));
  VITRINE_RETURN_IF_ERROR(take(names.mlp_norm, {d_model}, target.mlp_norm));
  VITRINE_RETURN_IF_ERROR(take(names.gate, {d_ff, d_model}, target.gate));
  VITRINE_RETURN_IF_ERROR(take(names.up, {d_ff, d_model}, target.up));
  return take(names.down, {d_model, d_ff}, target.down);
}

}  // namespace

absl::StatusOr<ModelTensors> MapTensors(const ModelConfig& config, const Checkpoint& checkpoint,
                                        const TensorNames& names) {
  TensorTaker taker(checkpoint);
  ModelTensors tensors;
  const int64_t d_model = config.d_model;
  VITRINE_RETURN_IF_ERROR(
      taker.Take(std::string(names.embedding), {config.vocabulary, d_model}, tensors.embedding));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    VITRINE_RETURN_IF_ERROR(TakeLayer(config, names, layer, taker, tensors.layers.emplace_back()));
  }
  VITRINE_RETURN_IF_ERROR(taker.Take(std::string(names.final_norm), {d_model}, tensors.final_norm));
  if (checkpoint.Find(names.output_head) != nullptr) {
    VITRINE_RETURN_IF_ERROR(taker.Take(std::string(names.output_head), {config.vocabulary, d_model},
                                       tensors.output_head.emplace()));
  }
  VITRINE_RETURN_IF_ERROR(taker.CheckAllTaken(names.ignored_suffix));
  return tensors;
}

}  // namespace vitrine
