// Bytes of tokens as a person can read them: spaces, line ends and stray bytes shown, one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine::client {

// `ascii`: the marks for spaces and line ends are ASCII ("_", "\n") instead of a raised dot and an
// arrow; characters of the text itself stay as they are. Bytes that are no UTF-8, and controls, are
// given as \xNN.
std::string VisibleText(std::string_view bytes, bool ascii);

// Columns that a terminal gives the text, which must be UTF-8: 2 for wide characters, 0 for those
// that combine.
size_t DisplayWidth(std::string_view text);

// Exactly `width` columns: padded on the right, or cut with a mark at the end.
std::string FitWidth(std::string_view text, size_t width, bool ascii);

// The first character of `text`, which must be UTF-8 and not empty.
std::string_view FirstCharacter(std::string_view text);

}  // namespace vitrine::client
