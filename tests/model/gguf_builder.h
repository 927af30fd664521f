// Builds GGUF files in memory, valid ones and, through its public fields, broken ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/gguf.h"

namespace vitrine {

// Little-endian bytes of a number.
template <class T>
std::string Encode(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string EncodeString(std::string_view text) {
  return Encode<uint64_t>(text.size()) + std::string(text);
}

template <class T>
std::string EncodeArray(GgufType type, const std::vector<T>& values) {
  std::string bytes = Encode(type) + Encode<uint64_t>(values.size());
  for (const T& value : values) {
    if constexpr (std::is_arithmetic_v<T>) {
      bytes += Encode(value);
    } else {
      bytes += EncodeString(value);
    }
  }
  return bytes;
}

class GgufBuilder {
 public:
  struct Key {
    std::string name;
    GgufType type;
    std::string value;  // As the file stores it.
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dimensions;  // Innermost first, as in the file.
    uint32_t type = 0;                 // As in ggml.h.
    std::string data;
    std::optional<uint64_t> offset;  // None: after the tensor before.
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;              // Of the layout; the key general.alignment is set apart.
  std::optional<uint64_t> num_keys;     // None: as many as there are.
  std::optional<uint64_t> num_tensors;  // None: as many as there are.
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  GgufBuilder& Set(const std::string& name, GgufType type, std::string value) {
    for (Key& key : keys) {
      if (key.name != name) continue;
      key = {name, type, std::move(value)};
      return *this;
    }
    keys.push_back({name, type, std::move(value)});
    return *this;
  }
  GgufBuilder& SetUint(const std::string& name, uint32_t value) {
    return Set(name, GgufType::kUint32, Encode(value));
  }
  GgufBuilder& SetFloat(const std::string& name, float value) {
    return Set(name, GgufType::kFloat32, Encode(value));
  }
  GgufBuilder& SetBool(const std::string& name, bool value) {
    return Set(name, GgufType::kBool, Encode<uint8_t>(value ? 1 : 0));
  }
  GgufBuilder& SetString(const std::string& name, std::string_view value) {
    return Set(name, GgufType::kString, EncodeString(value));
  }
  GgufBuilder& SetStrings(const std::string& name, const std::vector<std::string>& values) {
    return Set(name, GgufType::kArray, EncodeArray(GgufType::kString, values));
  }
  GgufBuilder& SetInts(const std::string& name, const std::vector<int32_t>& values) {
    return Set(name, GgufType::kArray, EncodeArray(GgufType::kInt32, values));
  }
  GgufBuilder& Drop(const std::string& name) {
    std::erase_if(keys, [&](const Key& key) { return key.name == name; });
    return *this;
  }

  GgufBuilder& AddTensor(const std::string& name, std::vector<uint64_t> dimensions, uint32_t type,
                         std::string data) {
    tensors.push_back({name, std::move(dimensions), type, std::move(data), std::nullopt});
    return *this;
  }
  // F32 values near `center` that differ from each other.
  GgufBuilder& AddFloats(const std::string& name, std::vector<uint64_t> dimensions, float center) {
    uint64_t size = 1;
    for (const uint64_t dimension : dimensions) size *= dimension;
    std::string data;
    for (uint64_t i = 0; i < size; ++i) {
      const auto phase = static_cast<float>(i + 31 * tensors.size());
      data += Encode(center + 0.25f * std::sin(phase));
    }
    return AddTensor(name, std::move(dimensions), 0, std::move(data));
  }
  Tensor& tensor(std::string_view name) {
    for (Tensor& candidate : tensors) {
      if (candidate.name == name) return candidate;
    }
    throw std::out_of_range(std::string(name));
  }

  std::string Bytes() const {
    std::string bytes = Header();
    const auto pad = [&] { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment); };
    for (const Tensor& tensor : tensors) {
      pad();
      bytes += tensor.data;
    }
    return bytes;
  }

  std::string Header() const {
    std::string bytes = magic + Encode(version) + Encode(num_tensors.value_or(tensors.size())) +
                        Encode(num_keys.value_or(keys.size()));
    for (const Key& key : keys) bytes += EncodeString(key.name) + Encode(key.type) + key.value;
    uint64_t next_offset = 0;
    for (const Tensor& tensor : tensors) {
      bytes += EncodeString(tensor.name) + Encode(static_cast<uint32_t>(tensor.dimensions.size()));
      for (const uint64_t dimension : tensor.dimensions) bytes += Encode(dimension);
      bytes += Encode(tensor.type) + Encode(tensor.offset.value_or(next_offset));
      next_offset += (tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    return bytes;
  }
};

// A llama that loads: 2 layers, width 32, 4 heads and 2 for keys and values, 8 tokens, tied head.
inline GgufBuilder TinyLlama() {
  GgufBuilder builder;
  builder.SetString("general.architecture", "llama")
      .SetString("general.name", "tiny")
      .SetUint("llama.block_count", 2)
      .SetUint("llama.context_length", 64)
      .SetUint("llama.embedding_length", 32)
      .SetUint("llama.feed_forward_length", 48)
      .SetUint("llama.attention.head_count", 4)
      .SetUint("llama.attention.head_count_kv", 2)
      .SetFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .SetFloat("llama.rope.freq_base", 10000.0f)
      .SetString("tokenizer.ggml.model", "gpt2")
      .SetString("tokenizer.ggml.pre", "gpt-2")
      .SetStrings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "ab", "cd", "abcd", "<|end|>"})
      .SetInts("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 1, 3})
      .SetStrings("tokenizer.ggml.merges", {"a b", "c d", "ab cd"})
      .SetUint("tokenizer.ggml.eos_token_id", 7);
  builder.AddFloats("token_embd.weight", {32, 8}, 0.0f);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    builder.AddFloats(layer + "attn_norm.weight", {32}, 1.0f)
        .AddFloats(layer + "attn_q.weight", {32, 32}, 0.0f)
        .AddFloats(layer + "attn_k.weight", {32, 16}, 0.0f)
        .AddFloats(layer + "attn_v.weight", {32, 16}, 0.0f)
        .AddFloats(layer + "attn_output.weight", {32, 32}, 0.0f)
        .AddFloats(layer + "ffn_norm.weight", {32}, 1.0f)
        .AddFloats(layer + "ffn_gate.weight", {32, 48}, 0.0f)
        .AddFloats(layer + "ffn_up.weight", {32, 48}, 0.0f)
        .AddFloats(layer + "ffn_down.weight", {48, 32}, 0.0f);
  }
  builder.AddFloats("output_norm.weight", {32}, 1.0f);
  return builder;
}

}  // namespace vitrine
