#include "model/tensor_map.h"

#include <algorithm>
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
    // ReadConfig has put them into the frequencies.
    .ignored_suffixes = {"rope_freqs.weight", "rope_factors_long.weight",
                         "rope_factors_short.weight"},
};

namespace {

constexpr std::string_view kE4M3 = "F8_E4M3";
constexpr std::string_view kE5M2 = "F8_E5M2";
constexpr std::string_view kE8M0 = "F8_E8M0";
// What an element of "x.weight" is multiplied by lies in "x" and one of these; the first is
// transformers'.
constexpr std::string_view kScaleSuffixes[] = {"_scale_inv", "_scale"};
constexpr std::string_view kActivationScales[] = {".input_scale", ".activation_scale"};

bool IsFp8(const TensorView& tensor) {
  return tensor.other_type == kE4M3 || tensor.other_type == kE5M2;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Takes tensors out of a checkpoint by name and remembers which ones.
class TensorTaker {
 public:
  // A file of a bare model leaves the base prefix out; the embedding tells.
  TensorTaker(const Checkpoint& checkpoint, const TensorNames& names)
      : checkpoint_(checkpoint),
        prefix_(checkpoint.Find(names.embedding) == nullptr ? names.base_prefix : "") {}

  // A tensor of the base model; without a name there is none, and `target` stays as it is.
  absl::Status Take(std::string_view name, const std::vector<int64_t>& shape, WeightView& target) {
    if (name.empty()) return absl::OkStatus();
    return TakeWhole(absl::StrCat(prefix_, std::string(name)), shape, target);
  }
  // A matrix of a layer, which GPT-2 stores the other way round.
  absl::Status TakeMatrix(std::string_view name, int64_t rows, int64_t columns,
                          const TensorNames& names, WeightView& target) {
    const TensorView* tensor =
        name.empty() ? nullptr : checkpoint_.Find(absl::StrCat(prefix_, std::string(name)));
    if (names.fp8_blocks && tensor != nullptr && IsFp8(*tensor)) {
      return TakeFp8Matrix(*tensor, {rows, columns}, *names.fp8_blocks, target);
    }
    if (!names.is_transposed) return Take(name, {rows, columns}, target);
    VITRINE_RETURN_IF_ERROR(Take(name, {columns, rows}, target));
    if (target.data == nullptr) return absl::OkStatus();
    if (!IsFloat(target.dtype)) return Error(target.name, "is transposed, but not of plain floats");
    std::swap(target.rows, target.columns);
    target.tensor_rows = target.run_rows = target.run_stride = rows;
    target.is_transposed = true;
    return absl::OkStatus();
  }
  // A matrix of one row, which may be stored as a vector.
  absl::Status TakeRow(const std::string& name, int64_t columns, WeightView& target) {
    const TensorView* tensor = checkpoint_.Find(prefix_ + name);
    const bool is_vector = tensor != nullptr && tensor->shape.size() == 1;
    std::vector<int64_t> shape = {columns};
    if (!is_vector) shape.insert(shape.begin(), 1);
    VITRINE_RETURN_IF_ERROR(Take(name, shape, target));
    target.tensor_rows = target.rows = target.run_rows = target.run_stride = 1;
    target.columns = columns;
    return absl::OkStatus();
  }
  absl::Status TakeWhole(std::string name, const std::vector<int64_t>& shape, WeightView& target) {
    const TensorView* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) return Error(name, "is missing");
    VITRINE_RETURN_IF_ERROR(CheckShape(*tensor, shape));
    if (!tensor->other_type.empty()) {
      return absl::UnimplementedError(absl::StrCat(checkpoint_.label(), ": tensor ", Quote(name),
                                                   " has dtype ", std::string(tensor->other_type),
                                                   ", which is not supported"));
    }
    const bool is_vector = shape.size() < 2;
    if (is_vector && !IsFloat(tensor->dtype)) {
      return Error(name, absl::StrCat("has type ", std::string(TraitsOf(tensor->dtype).name),
                                      ", expected F32, F16 or BF16"));
    }
    const int64_t rows = shape.empty() ? 1 : shape.front();
    target = {.name = name,
              .dtype = tensor->dtype,
              .data = tensor->data,
              .tensor_rows = rows,
              .rows = rows,
              .columns = is_vector ? 1 : shape.back(),
              .run_rows = rows,
              .run_stride = rows};
    taken_.insert(std::move(name));
    return absl::OkStatus();
  }

  absl::Status CheckAllTaken(const TensorNames& names) const {
    for (const TensorView& tensor : checkpoint_.tensors()) {
      const auto ends_so = [&](std::string_view suffix) {
        return !suffix.empty() && tensor.name.ends_with(suffix);
      };
      const bool is_ignored = std::ranges::any_of(names.ignored_suffixes, ends_so) ||
                              (names.fp8_blocks && std::ranges::any_of(kActivationScales, ends_so));
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

  absl::Status CheckShape(const TensorView& tensor, const std::vector<int64_t>& shape) const {
    if (tensor.shape == shape) return absl::OkStatus();
    return Error(tensor.name, absl::StrCat("has shape ", ShapeText(tensor.shape), ", expected ",
                                           ShapeText(shape)));
  }

  absl::Status TakeFp8Matrix(const TensorView& tensor, const std::vector<int64_t>& shape,
                             Fp8Blocks blocks, WeightView& target) {
    VITRINE_RETURN_IF_ERROR(CheckShape(tensor, shape));
    const int64_t rows = shape.front();
    const int64_t columns = shape.back();
    const std::string scale_name = ScaleName(tensor.name);
    const TensorView* grid = checkpoint_.Find(scale_name);
    // A single number is the scale of all, whatever is said elsewhere.
    if (grid != nullptr && grid->shape.size() < 2 && grid->elements() == 1) blocks = {};
    Fp8Scales scales = {.is_e5m2 = tensor.other_type == kE5M2,
                        .block_rows = blocks.rows == 0 ? rows : blocks.rows,
                        .block_columns = blocks.columns == 0 ? columns : blocks.columns};
    scales.columns = (columns - 1) / scales.block_columns + 1;
    VITRINE_RETURN_IF_ERROR(TakeScales(scale_name, (rows - 1) / scales.block_rows + 1, scales));
    target = {.name = tensor.name,
              .dtype = DType::kF32,
              .data = tensor.data,
              .tensor_rows = rows,
              .rows = rows,
              .columns = columns,
              .run_rows = rows,
              .run_stride = rows,
              .scales = scales};
    taken_.insert(tensor.name);
    return absl::OkStatus();
  }

  std::string ScaleName(const std::string& matrix) const {
    for (const std::string_view suffix : kScaleSuffixes) {
      std::string name = absl::StrCat(matrix, std::string(suffix));
      if (checkpoint_.Find(name) != nullptr) return name;
    }
    return absl::StrCat(matrix, std::string(kScaleSuffixes[0]));
  }

  // A grid of `rows` rows, whose columns are known.
  absl::Status TakeScales(const std::string& name, int64_t rows, Fp8Scales& scales) {
    const TensorView* grid = checkpoint_.Find(name);
    std::vector<int64_t> shape = {rows, scales.columns};
    if (grid != nullptr && scales.columns == 1) {
      if (grid->shape.size() == 1) shape = {rows};
      if (grid->shape.empty() && rows == 1) shape = {};
    }
    if (grid != nullptr && grid->other_type == kE8M0) {
      VITRINE_RETURN_IF_ERROR(CheckShape(*grid, shape));
      scales.are_powers = true;
      scales.data = grid->data;
      taken_.insert(name);
      return absl::OkStatus();
    }
    WeightView view;
    VITRINE_RETURN_IF_ERROR(TakeWhole(name, shape, view));
    if (!IsFloat(view.dtype)) return Error(view.name, "holds scales, but not as plain floats");
    scales.data = view.data;
    scales.dtype = view.dtype;
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const std::string prefix_;
  std::set<std::string, std::less<>> taken_;
};

// Rows `begin` to `begin + count` of every `stride` rows, of which the view has `groups` times.
WeightView Slice(const WeightView& view, int64_t begin, int64_t count, int64_t stride,
                 int64_t groups) {
  WeightView slice = view;
  if (view.data == nullptr) return slice;
  slice.first_row = begin;
  slice.rows = groups * count;
  slice.run_rows = count;
  slice.run_stride = stride;
  return slice;
}

// One of the matrices of `rows` rows each that are one tensor.
WeightView SliceOfStack(const WeightView& stack, int64_t index, int64_t rows) {
  WeightView slice = stack;
  slice.tensor_rows = stack.tensor_rows * rows;
  slice.first_row = index * rows;
  slice.rows = slice.run_rows = slice.run_stride = rows;
  return slice;
}

struct Qkv {
  WeightView& q;
  WeightView& k;
  WeightView& v;
};

void SplitQkv(const ModelConfig& config, QkvOrder order, const WeightView& fused, Qkv target) {
  const int64_t head_dim = config.head_dim;
  const int64_t groups = order == QkvOrder::kGrouped ? config.num_kv_heads : 1;
  const int64_t q_rows = config.num_heads / groups * head_dim;
  const int64_t kv_rows = config.num_kv_heads / groups * head_dim;
  const int64_t stride = q_rows + 2 * kv_rows;
  target.q = Slice(fused, 0, q_rows, stride, groups);
  target.k = Slice(fused, q_rows, kv_rows, stride, groups);
  target.v = Slice(fused, q_rows + kv_rows, kv_rows, stride, groups);
}

// One vector of a layer: what it is called, its length, and where it goes.
struct VectorRole {
  std::string_view name;
  int64_t length;
  WeightView* target;
};

std::vector<VectorRole> LayerVectors(const ModelConfig& config, const TensorNames& names,
                                     LayerTensors& target) {
  const int64_t q_rows = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  return {
      {names.attention_norm, config.d_model, &target.attention_norm},
      {names.attention_norm_bias, config.d_model, &target.attention_norm_bias},
      {names.q_bias, q_rows, &target.q_bias},
      {names.k_bias, kv_rows, &target.k_bias},
      {names.v_bias, kv_rows, &target.v_bias},
      {names.q_norm_bias, config.head_dim, &target.q_norm_bias},
      {names.k_norm_bias, config.head_dim, &target.k_norm_bias},
      {names.attention_out_bias, config.d_model, &target.attention_out_bias},
      {names.attention_post_norm, config.d_model, &target.attention_post_norm},
      {names.mlp_norm, config.d_model, &target.mlp_norm},
      {names.mlp_norm_bias, config.d_model, &target.mlp_norm_bias},
      {names.gate_bias, config.d_ff, &target.gate_bias},
      {names.up_bias, config.d_ff, &target.up_bias},
      {names.down_bias, config.d_model, &target.down_bias},
      {names.mlp_post_norm, config.d_model, &target.mlp_post_norm},
  };
}

struct MatrixRole {
  std::string_view name;
  int64_t rows;
  int64_t columns;
  WeightView* target;
};

std::vector<MatrixRole> LayerMatrices(const ModelConfig& config, int layer,
                                      const TensorNames& names, LayerTensors& target,
                                      WeightView& qkv, WeightView& gate_up) {
  const bool has_experts = config.has_experts(layer);
  const int64_t d_ff = has_experts ? config.experts.d_shared : config.d_ff;
  const int64_t q_rows = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  return {
      {names.q, q_rows, config.d_model, &target.q},
      {names.k, kv_rows, config.d_model, &target.k},
      {names.v, kv_rows, config.d_model, &target.v},
      {names.qkv, q_rows + 2 * kv_rows, config.d_model, &qkv},
      {names.attention_out, config.d_model, q_rows, &target.attention_out},
      {has_experts ? names.shared_gate : names.gate, d_ff, config.d_model, &target.gate},
      {has_experts ? names.shared_up : names.up, d_ff, config.d_model, &target.up},
      {names.gate_up, 2 * d_ff, config.d_model, &gate_up},
      {has_experts ? names.shared_down : names.down, config.d_model, d_ff, &target.down},
  };
}

// The weights of the norm of `heads` heads, which begin with `name`.
absl::Status TakeHeadNorms(const ModelConfig& config, const std::string& name,
                           std::string_view head_suffix, int heads, TensorTaker& taker,
                           std::vector<WeightView>& target) {
  if (name.empty()) return absl::OkStatus();
  if (!head_suffix.empty()) {
    for (int head = 0; head < heads; ++head) {
      VITRINE_RETURN_IF_ERROR(taker.Take(absl::StrCat(name, head, std::string(head_suffix)),
                                         {config.head_dim}, target.emplace_back()));
    }
    return absl::OkStatus();
  }
  std::vector<int64_t> shape = {config.head_dim};
  if (config.qk_norm == QkNorm::kAllHeads) shape = {int64_t{heads} * config.head_dim};
  if (config.qk_norm == QkNorm::kOwnLayer) shape = {heads, config.head_dim};
  return taker.Take(name, shape, target.emplace_back());
}

// The three matrices of every expert, and what chooses among them. `prefix`: of the layer.
absl::Status TakeExperts(const ModelConfig& config, const TensorNames& names,
                         const std::string& prefix, TensorTaker& taker, LayerTensors& target) {
  const ExpertConfig& experts = config.experts;
  const auto full_name = [&](std::string_view name) { return prefix + std::string(name); };
  VITRINE_RETURN_IF_ERROR(
      taker.Take(full_name(names.router), {experts.count, config.d_model}, target.router));
  if (experts.d_shared > 0) {
    VITRINE_RETURN_IF_ERROR(
        taker.TakeRow(full_name(names.shared_router), config.d_model, target.shared_router));
  }
  target.experts.resize(static_cast<size_t>(experts.count));
  const struct {
    std::string_view name;
    int64_t rows;
    int64_t columns;
    WeightView ExpertTensors::* view;
  } roles[] = {{names.expert_gate, experts.d_ff, config.d_model, &ExpertTensors::gate},
               {names.expert_up, experts.d_ff, config.d_model, &ExpertTensors::up},
               {names.expert_down, config.d_model, experts.d_ff, &ExpertTensors::down}};
  for (const auto& role : roles) {
    WeightView stack;
    if (names.expert_prefix.empty()) {
      VITRINE_RETURN_IF_ERROR(
          taker.Take(full_name(role.name), {experts.count, role.rows, role.columns}, stack));
    }
    for (int e = 0; e < experts.count; ++e) {
      WeightView& view = target.experts[static_cast<size_t>(e)].*role.view;
      if (stack.data != nullptr) {
        view = SliceOfStack(stack, e, role.rows);
        continue;
      }
      const std::string name =
          absl::StrCat(full_name(names.expert_prefix), e, std::string(role.name));
      VITRINE_RETURN_IF_ERROR(taker.TakeMatrix(name, role.rows, role.columns, names, view));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeLayer(const ModelConfig& config, const TensorNames& names, int layer,
                       TensorTaker& taker, LayerTensors& target) {
  const std::string prefix = absl::StrCat(std::string(names.layer_prefix), layer, ".");
  const auto full_name = [&](std::string_view name) {
    return name.empty() ? std::string() : prefix + std::string(name);
  };
  for (const VectorRole& role : LayerVectors(config, names, target)) {
    VITRINE_RETURN_IF_ERROR(taker.Take(full_name(role.name), {role.length}, *role.target));
  }
  VITRINE_RETURN_IF_ERROR(TakeHeadNorms(config, full_name(names.q_norm), names.head_suffix,
                                        config.num_heads, taker, target.q_norms));
  VITRINE_RETURN_IF_ERROR(TakeHeadNorms(config, full_name(names.k_norm), names.head_suffix,
                                        config.num_kv_heads, taker, target.k_norms));
  WeightView qkv;
  WeightView gate_up;
  for (const MatrixRole& role : LayerMatrices(config, layer, names, target, qkv, gate_up)) {
    VITRINE_RETURN_IF_ERROR(
        taker.TakeMatrix(full_name(role.name), role.rows, role.columns, names, *role.target));
  }
  if (qkv.data != nullptr) {
    SplitQkv(config, names.qkv_order, qkv, {target.q, target.k, target.v});
  }
  if (config.has_experts(layer)) {
    VITRINE_RETURN_IF_ERROR(TakeExperts(config, names, prefix, taker, target));
  }
  if (!names.qkv_bias.empty()) {
    WeightView bias;
    VITRINE_RETURN_IF_ERROR(taker.Take(
        full_name(names.qkv_bias),
        {(int64_t{config.num_heads} + 2 * config.num_kv_heads) * config.head_dim}, bias));
    SplitQkv(config, names.qkv_order, bias, {target.q_bias, target.k_bias, target.v_bias});
  }
  target.q.scale = target.q_bias.scale = config.layer(layer).query_scale;
  if (gate_up.data != nullptr) {
    target.gate = Slice(gate_up, 0, config.d_ff, config.d_ff, 1);
    target.up = Slice(gate_up, config.d_ff, config.d_ff, config.d_ff, 1);
  }
  return absl::OkStatus();
}

// Each layer's attention norm to the layer behind it.
void PassNormsOn(ModelTensors& tensors) {
  WeightView weight;  // None in front of the first layer.
  WeightView bias;
  for (LayerTensors& layer : tensors.layers) {
    std::swap(layer.attention_norm, weight);
    std::swap(layer.attention_norm_bias, bias);
  }
  tensors.final_norm = weight;
  tensors.final_norm_bias = bias;
}

absl::Status TakePositionTable(const ModelConfig& config, const TensorNames& names,
                               TensorTaker& taker, WeightView& table) {
  if (names.position_table.empty()) return absl::OkStatus();
  const int64_t positions = config.context_length;
  VITRINE_RETURN_IF_ERROR(taker.Take(names.position_table,
                                     {positions + names.unused_positions, config.d_model}, table));
  table = Slice(table, names.unused_positions, positions, positions, 1);
  return absl::OkStatus();
}

absl::Status TakeOutputHead(const ModelConfig& config, const TensorNames& names,
                            const Checkpoint& checkpoint, TensorTaker& taker,
                            ModelTensors& tensors) {
  if (!names.output_bias.empty()) {
    VITRINE_RETURN_IF_ERROR(
        taker.TakeWhole(std::string(names.output_bias), {config.vocabulary}, tensors.output_bias));
  }
  const bool is_present = checkpoint.Find(names.output_head) != nullptr;
  if (names.output_head_rule != OutputHead::kOwn && !is_present) return absl::OkStatus();
  WeightView head;
  VITRINE_RETURN_IF_ERROR(taker.TakeWhole(std::string(names.output_head),
                                          {config.vocabulary, config.embedding_width()}, head));
  if (names.output_head_rule != OutputHead::kTied) {
    tensors.output_head = head;
    return absl::OkStatus();
  }
  const WeightView& embedding = tensors.embedding;
  const size_t bytes = static_cast<size_t>(head.rows) * RowBytes(head.dtype, head.columns);
  const bool is_copy =
      head.dtype == embedding.dtype && std::memcmp(head.data, embedding.data, bytes) == 0;
  if (is_copy) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(checkpoint.label(), ": tensor ", Quote(head.name),
                                                 " differs from ", Quote(embedding.name),
                                                 ", to which it is said to be tied"));
}

}  // namespace

absl::StatusOr<ModelTensors> MapTensors(const ModelConfig& config, const Checkpoint& checkpoint,
                                        const TensorNames& names) {
  TensorTaker taker(checkpoint, names);
  ModelTensors tensors;
  const int64_t d_model = config.d_model;
  const int64_t width = config.embedding_width();
  VITRINE_RETURN_IF_ERROR(
      taker.Take(names.embedding, {config.vocabulary, width}, tensors.embedding));
  VITRINE_RETURN_IF_ERROR(
      taker.Take(names.embedding_projection, {d_model, width}, tensors.embedding_projection));
  VITRINE_RETURN_IF_ERROR(
      taker.Take(names.output_projection, {width, d_model}, tensors.output_projection));
  VITRINE_RETURN_IF_ERROR(taker.Take(names.embedding_norm, {d_model}, tensors.embedding_norm));
  VITRINE_RETURN_IF_ERROR(
      taker.Take(names.embedding_norm_bias, {d_model}, tensors.embedding_norm_bias));
  VITRINE_RETURN_IF_ERROR(TakePositionTable(config, names, taker, tensors.position_table));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    VITRINE_RETURN_IF_ERROR(TakeLayer(config, names, layer, taker, tensors.layers.emplace_back()));
  }
  VITRINE_RETURN_IF_ERROR(taker.Take(names.final_norm, {d_model}, tensors.final_norm));
  VITRINE_RETURN_IF_ERROR(taker.Take(names.final_norm_bias, {d_model}, tensors.final_norm_bias));
  if (names.holds_next_attention_norm) PassNormsOn(tensors);
  VITRINE_RETURN_IF_ERROR(TakeOutputHead(config, names, checkpoint, taker, tensors));
  VITRINE_RETURN_IF_ERROR(taker.CheckAllTaken(names));
  return tensors;
}

}  // namespace vitrine
