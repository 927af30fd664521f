#include "model/tensor_map.h"

#include <cstdint>
#include <cstring>
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
      const bool is_ignored = !ignored_suffix.empty() && tensor.name.ends_with(ignored_suffix);
      if (!taken_.contains(tensor.name) && !is_ignored) {
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

// Rows `begin` to `begin + count` of a matrix, or elements of a vector.
TensorView Slice(const TensorView& tensor, int64_t begin, int64_t count) {
  TensorView slice = tensor;
  const size_t row_bytes = tensor.bytes / static_cast<size_t>(tensor.shape.front());
  slice.shape.front() = count;
  slice.data += static_cast<size_t>(begin) * row_bytes;
  slice.bytes = static_cast<size_t>(count) * row_bytes;
  return slice;
}

// One tensor of a layer: what it is called, its shape, and where it goes.
struct Role {
  std::string_view name;
  std::vector<int64_t> shape;
  TensorView* target;
};

std::vector<Role> LayerRoles(const ModelConfig& config, const TensorNames& names,
                             LayerTensors& target) {
  const int64_t d_model = config.d_model;
  const int64_t d_ff = config.d_ff;
  const int64_t q_rows = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  const bool is_norm_of_all = config.qk_norm == QkNorm::kAllHeads;
  return {
      {names.attention_norm, {d_model}, &target.attention_norm},
      {names.q, {q_rows, d_model}, &target.q},
      {names.k, {kv_rows, d_model}, &target.k},
      {names.v, {kv_rows, d_model}, &target.v},
      {names.q_bias, {q_rows}, &target.q_bias},
      {names.k_bias, {kv_rows}, &target.k_bias},
      {names.v_bias, {kv_rows}, &target.v_bias},
      {names.q_norm, {is_norm_of_all ? q_rows : config.head_dim}, &target.q_norm},
      {names.k_norm, {is_norm_of_all ? kv_rows : config.head_dim}, &target.k_norm},
      {names.attention_out, {d_model, q_rows}, &target.attention_out},
      {names.attention_out_bias, {d_model}, &target.attention_out_bias},
      {names.attention_post_norm, {d_model}, &target.attention_post_norm},
      {names.mlp_norm, {d_model}, &target.mlp_norm},
      {names.gate, {d_ff, d_model}, &target.gate},
      {names.up, {d_ff, d_model}, &target.up},
      {names.gate_bias, {d_ff}, &target.gate_bias},
      {names.up_bias, {d_ff}, &target.up_bias},
      {names.down, {d_model, d_ff}, &target.down},
      {names.down_bias, {d_model}, &target.down_bias},
      {names.mlp_post_norm, {d_model}, &target.mlp_post_norm},
  };
}

absl::Status TakeLayer(const ModelConfig& config, const TensorNames& names, int layer,
                       TensorTaker& taker, LayerTensors& target) {
  const std::string prefix = absl::StrCat(std::string(names.layer_prefix), layer, ".");
  for (const Role& role : LayerRoles(config, names, target)) {
    if (role.name.empty()) continue;
    VITRINE_RETURN_IF_ERROR(taker.Take(prefix + std::string(role.name), role.shape, *role.target));
  }
  const int64_t d_model = config.d_model;
  const int64_t d_ff = config.d_ff;
  const int64_t q_rows = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  TensorView fused;
  if (!names.qkv.empty()) {
    VITRINE_RETURN_IF_ERROR(
        taker.Take(prefix + std::string(names.qkv), {q_rows + 2 * kv_rows, d_model}, fused));
    target.q = Slice(fused, 0, q_rows);
    target.k = Slice(fused, q_rows, kv_rows);
    target.v = Slice(fused, q_rows + kv_rows, kv_rows);
  }
  if (!names.gate_up.empty()) {
    VITRINE_RETURN_IF_ERROR(
        taker.Take(prefix + std::string(names.gate_up), {2 * d_ff, d_model}, fused));
    target.gate = Slice(fused, 0, d_ff);
    target.up = Slice(fused, d_ff, d_ff);
  }
  return absl::OkStatus();
}

absl::Status TakeOutputHead(const ModelConfig& config, const TensorNames& names,
                            const Checkpoint& checkpoint, TensorTaker& taker,
                            ModelTensors& tensors) {
  const bool is_present = checkpoint.Find(names.output_head) != nullptr;
  if (names.output_head_rule != OutputHead::kOwn && !is_present) return absl::OkStatus();
  TensorView head;
  VITRINE_RETURN_IF_ERROR(
      taker.Take(std::string(names.output_head), {config.vocabulary, config.d_model}, head));
  if (names.output_head_rule != OutputHead::kTied) {
    tensors.output_head = head;
    return absl::OkStatus();
  }
  const TensorView& embedding = tensors.embedding;
  const bool is_copy =
      head.dtype == embedding.dtype && std::memcmp(head.data, embedding.data, head.bytes) == 0;
  if (is_copy) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(checkpoint.label(), ": tensor ", Quote(head.name),
                                                 " differs from ", Quote(embedding.name),
                                                 ", to which it is said to be tied"));
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
  VITRINE_RETURN_IF_ERROR(TakeOutputHead(config, names, checkpoint, taker, tensors));
  VITRINE_RETURN_IF_ERROR(taker.CheckAllTaken(names.ignored_suffix));
  return tensors;
}

}  // namespace vitrine
