// A llama file of random weights whose shapes the matrix kernels of every backend take: two
// layers, width 128, four heads of 32 and two for keys and values, a byte-level vocabulary.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/block_formats.h"
#include "kernels/dtype.h"
#include "model/byte_alphabet.h"
#include "tests/model/gguf_builder.h"

namespace vitrine {

// As ggml.h numbers the types that QuantizeRow offers.
constexpr uint32_t GgmlType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 8;
    case DType::kBF16:
      return 30;
    default:
      return 0;  // F32
  }
}

// Adds normal values of the given deviation.
inline void AddNormal(GgufBuilder& builder, const std::string& name, DType dtype, int rows,
                      int columns, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(static_cast<size_t>(columns));
  std::string data;
  for (int r = 0; r < rows; ++r) {
    for (float& value : row) value = normal(random);
    std::vector<std::byte> bytes(RowBytes(dtype, columns));
    QuantizeRow(dtype, row.data(), columns, bytes.data());
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  builder.AddTensor(name, {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)},
                    GgmlType(dtype), std::move(data));
}

// Matrices of type `dtype`, scaled so that logits spread by about 2.5 and attention has peaks.
inline GgufBuilder RandomLlama(DType dtype) {
  constexpr int kWidth = 128, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kHidden = 256;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(EncodeByteAlphabet(static_cast<uint8_t>(byte)));
  }
  std::vector<int32_t> types(tokens.size(), 1);
  tokens.emplace_back("</s>");
  types.push_back(3);

  GgufBuilder builder;
  builder.SetString("general.architecture", "llama")
      .SetString("general.name", "random")
      .SetUint("llama.block_count", 2)
      .SetUint("llama.context_length", 1024)
      .SetUint("llama.embedding_length", kWidth)
      .SetUint("llama.feed_forward_length", kHidden)
      .SetUint("llama.attention.head_count", kHeads)
      .SetUint("llama.attention.head_count_kv", kKvHeads)
      .SetFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .SetFloat("llama.rope.freq_base", 10000.0f)
      .SetString("tokenizer.ggml.model", "gpt2")
      .SetString("tokenizer.ggml.pre", "gpt-2")
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetInts("tokenizer.ggml.token_type", types)
      .SetStrings("tokenizer.ggml.merges", {})
      .SetUint("tokenizer.ggml.eos_token_id", 256);

  std::mt19937 random(static_cast<uint32_t>(dtype) + 1);
  const auto matrix = [&](const std::string& name, int rows, int columns, float gain) {
    AddNormal(builder, name, dtype, rows, columns, gain / std::sqrt(static_cast<float>(columns)),
              random);
  };
  const int vocabulary = static_cast<int>(tokens.size());
  matrix("token_embd.weight", vocabulary, kWidth, std::sqrt(static_cast<float>(kWidth)));
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    builder.AddFloats(layer + "attn_norm.weight", {kWidth}, 1.0f);
    matrix(layer + "attn_q.weight", kHeads * kHeadDim, kWidth, 1.5f);
    matrix(layer + "attn_k.weight", kKvHeads * kHeadDim, kWidth, 1.5f);
    matrix(layer + "attn_v.weight", kKvHeads * kHeadDim, kWidth, 1.0f);
    matrix(layer + "attn_output.weight", kWidth, kHeads * kHeadDim, 1.0f);
    builder.AddFloats(layer + "ffn_norm.weight", {kWidth}, 1.0f);
    matrix(layer + "ffn_gate.weight", kHidden, kWidth, 1.0f);
    matrix(layer + "ffn_up.weight", kHidden, kWidth, 1.0f);
    matrix(layer + "ffn_down.weight", kWidth, kHidden, 1.0f);
  }
  builder.AddFloats("output_norm.weight", {kWidth}, 1.0f);
  matrix("output.weight", vocabulary, kWidth, 2.5f);
  return builder;
}

}  // namespace vitrine
