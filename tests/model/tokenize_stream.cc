// Encodes texts as they come, for tokenizer_differential.py: tokenize_stream PATH
//
// Each text on stdin has a line "BYTES PARSE_SPECIAL" in front, decimal and 0 or 1. For each a line
// of ids on stdout, or "error: " and why.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

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
    std::string line;
    if (!encoding.ok()) {
      line = "error: " + std::string(encoding.status().message());
    } else {
      for (const vitrine::TokenId id : encoding->ids) line += std::to_string(id) + ' ';
    }
    line += '\n';
    std::cout.write(line.data(), static_cast<std::streamsize>(line.size()));
    std::cout.flush();
  }
  return 0;
}
