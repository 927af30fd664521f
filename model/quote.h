// Bytes of a file or a request inside an error message.
#pragma once

#include <string>
#include <string_view>

namespace vitrine {

// `text` in double quotes: at most 48 bytes of it (then "..."), and everything outside printable
// ASCII as \xNN.
std::string Quote(std::string_view text);

}  // namespace vitrine
