// The texts of tokens that stand for one byte in vocabularies of characters: <0x00> to <0xFF>.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine {

std::string ByteTokenText(uint8_t byte);

// The byte that a text of this form names, with upper-case digits; else nullopt.
std::optional<uint8_t> ParseByteToken(std::string_view text);

}  // namespace vitrine
