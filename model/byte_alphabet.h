// GPT-2's printable stand-ins for bytes: files write the tokens of a byte-level vocabulary as text
// in which each character stands for one byte (Radford et al., 2019, encoder.py). Printable ASCII
// and Latin-1 characters stand for themselves, U+0100 and up for the other 68 bytes in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine {

// The bytes that `text`, well-formed UTF-8, stands for; nullopt when a character is no stand-in.
std::optional<std::string> DecodeByteAlphabet(std::string_view text);

// The stand-in for one byte, as UTF-8.
std::string EncodeByteAlphabet(uint8_t byte);

}  // namespace vitrine
