// Tokens with one place of reading, and the names met so far: what both parsers share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/jinja/lexer.h"

namespace vitrine::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  // Token number `ahead` behind the current one.
  const Token& Peek(size_t ahead = 1) const;
  int line() const { return current().line; }
  Token Next();

  bool Is(TokenType type) const { return current().type == type; }
  bool IsOperator(std::string_view op) const;
  bool IsName(std::string_view name) const;
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);

  absl::Status ExpectOperator(std::string_view op);
  absl::Status ExpectName(std::string_view name);
  absl::Status Expect(TokenType type);
  absl::StatusOr<std::string> ExpectAnyName();
  absl::Status Unexpected() const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Numbers for the names of variables.
class SymbolTable {
 public:
  SymbolTable();

  int Intern(std::string_view name);
  int size() const { return static_cast<int>(names_.size()); }
  std::vector<std::string> Take() { return std::move(names_); }

  // How often the template reads a name.
  void Read(int symbol);
  int reads(int symbol) const { return reads_[static_cast<size_t>(symbol)]; }
  std::vector<std::string> ReadNames() const;

 private:
  std::vector<std::string> names_;
  std::vector<int> reads_;
  absl::flat_hash_map<std::string, int> symbols_;
};

}  // namespace vitrine::jinja
