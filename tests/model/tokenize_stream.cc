// Encodes texts as they come, for tokenizer_differential.py: tokenize_stream PATH
//
// Each text on stdin has a line "BYTES PARSE_SPECIAL" in front, decimal and 0 or 1. The answer on
// stdout is a line with the number of ids and the ids themselves, four bytes each in the order of
// the machine; or a line "error: " and why.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "model/tokenizer_files.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: tokenize_stream PATH\n", stderr);
    return 2;
  }
  const auto tokenizer = vitrine::OpenTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  std::ios::sync_with_stdio(false);
  size_t bytes = 0;
  int parse_special = 0;
  while (std::cin >> bytes >> parse_special) {
    std::cin.get();
    std::string text(bytes, '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(bytes));
    const auto encoding = (*tokenizer)->Encode(text, {.parse_special = parse_special != 0});
    if (!encoding.ok()) {
      std::cout << "error: " << encoding.status().message() << '\n';
    } else {
      const std::vector<vitrine::TokenId>& ids = encoding->ids;
      std::cout << ids.size() << '\n';
      const size_t size = ids.size() * sizeof(vitrine::TokenId);
      std::cout.write(reinterpret_cast<const char*>(ids.data()),
                      static_cast<std::streamsize>(size));
    }
    std::cout.flush();
  }
  return 0;
}
