// The rules between the numbers of attention heads, wherever a file keeps them.
#pragma once

#include <cmath>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/config.h"
#include "model/status.h"

namespace vitrine {

// What a format calls the four numbers.
struct HeadKeys {
  std::string_view d_model;
  std::string_view num_heads;
  std::string_view num_kv_heads;
  std::string_view head_dim;
};

// Reads num_heads, num_kv_heads and head_dim, of which the last two have a default (as many heads;
// the width divided by the heads), and sets attention_scale; d_model is set already. `Reader` is a
// GgufConfigReader or a JsonConfigReader.
template <class Reader>
absl::Status ReadHeads(Reader& reader, const HeadKeys& keys, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.num_heads, reader.Int(keys.num_heads, 1, kMaxHeads));
  VITRINE_ASSIGN_OR_RETURN(config.num_kv_heads,
                           reader.Int(keys.num_kv_heads, 1, config.num_heads, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return reader.Error(keys.num_kv_heads,
                        absl::StrCat("is ", config.num_kv_heads, ", which does not divide ",
                                     config.num_heads, " heads"));
  }
  if (!reader.Has(keys.head_dim) && config.d_model % config.num_heads != 0) {
    return reader.Error(keys.d_model,
                        absl::StrCat("is ", config.d_model, ", which is not a multiple of ",
                                     config.num_heads, " heads"));
  }
  VITRINE_ASSIGN_OR_RETURN(config.head_dim, reader.Int(keys.head_dim, 1, kMaxHeadDim,
                                                       config.d_model / config.num_heads));
  if (config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    return reader.Error(reader.Has(keys.head_dim) ? keys.head_dim : keys.num_heads,
                        absl::StrCat("makes heads of ", config.head_dim,
                                     " dimensions, expected an even number up to ", kMaxHeadDim));
  }
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(config.head_dim));
  return absl::OkStatus();
}

}  // namespace vitrine
