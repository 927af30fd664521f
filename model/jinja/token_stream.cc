#include "model/jinja/token_stream.h"

#include <algorithm>

#include "model/jinja/ast.h"
#include "model/jinja/errors.h"

namespace vitrine::jinja {

const Token& TokenStream::Peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token TokenStream::Next() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::IsOperator(std::string_view op) const {
  return Is(TokenType::kOperator) && current().text == op;
}

bool TokenStream::IsName(std::string_view name) const {
  return Is(TokenType::kName) && current().text == name;
}

bool TokenStream::TakeOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Next();
  return true;
}

bool TokenStream::TakeName(std::string_view name) {
  if (!IsName(name)) return false;
  Next();
  return true;
}

absl::Status TokenStream::ExpectOperator(std::string_view op) {
  if (TakeOperator(op)) return absl::OkStatus();
  return SyntaxError(line(), {"expected '", op, "'"});
}

absl::Status TokenStream::ExpectName(std::string_view name) {
  if (TakeName(name)) return absl::OkStatus();
  return SyntaxError(line(), {"expected '", name, "'"});
}

absl::Status TokenStream::Expect(TokenType type) {
  if (!Is(type)) return Unexpected();
  Next();
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenStream::ExpectAnyName() {
  if (!Is(TokenType::kName)) return SyntaxError(line(), {"expected a name"});
  return Next().text;
}

absl::Status TokenStream::Unexpected() const {
  switch (current().type) {
    case TokenType::kEnd:
      return SyntaxError(line(), {"unexpected end of the template"});
    case TokenType::kVariableEnd:
    case TokenType::kBlockEnd:
      return SyntaxError(line(), {"unexpected end of a tag"});
    default:
      return SyntaxError(line(), {"unexpected '", current().text.substr(0, 32), "'"});
  }
}

SymbolTable::SymbolTable() {
  for (const std::string_view name : {"loop", "caller", "varargs", "kwargs"}) Intern(name);
}

int SymbolTable::Intern(std::string_view name) {
  const auto [entry, is_new] = symbols_.try_emplace(std::string(name), size());
  if (is_new) {
    names_.emplace_back(name);
    reads_.push_back(0);
  }
  return entry->second;
}

void SymbolTable::Read(int symbol) { ++reads_[static_cast<size_t>(symbol)]; }

std::vector<std::string> SymbolTable::ReadNames() const {
  std::vector<std::string> read;
  for (size_t i = kKwargsSymbol + 1; i < names_.size(); ++i) {
    if (reads_[i] > 0) read.push_back(names_[i]);
  }
  std::sort(read.begin(), read.end());
  return read;
}

}  // namespace vitrine::jinja
