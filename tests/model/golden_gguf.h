// Writes a tiny model of the folder form as the GGUF file that llama.cpp's converter makes of it
// (convert_hf_to_gguf.py and conversion/): other names, other keys, other orders of rows.
#pragma once

#include <string>

namespace vitrine {

// Whether ToGguf knows the folder's model_type and the file holds all that its config.json says.
bool HasGgufForm(const std::string& folder);

// The bytes of the file: f32 throughout, without a tokenizer. `folder` has one model.safetensors.
std::string ToGguf(const std::string& folder);

}  // namespace vitrine
