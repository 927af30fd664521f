// Renders chats as they come, for chat_template_differential.py.
//
// Each line on stdin is a JSON object {template, messages, tools, variables}. For each a line
// {"text": ...} or {"error": ..., "kind": ...} on stdout.
#include <iostream>
#include <string>

#include "model/chat_template.h"
#include "nlohmann/json.hpp"
#include "tests/model/chat_cases.h"

namespace vitrine {
namespace {

constexpr size_t kMaxValues = 10'000'000;

absl::StatusOr<RenderedChat> Render(const std::string& line) {
  const absl::StatusOr<JsonValue> row = ParseJson(line, "stdin", kMaxValues);
  if (!row.ok()) return row.status();
  const auto chat_template =
      ChatTemplate::Parse({.templates = {{"default", *row->Find("template")->AsString()}}});
  if (!chat_template.ok()) return chat_template.status();
  return chat_template->Render({.messages = *row->Find("messages"),
                                .tools = *row->Find("tools"),
                                .variables = *row->Find("variables")},
                               GoldenTime());
}

}  // namespace
}  // namespace vitrine

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto chat = vitrine::Render(line);
    nlohmann::json answer;
    if (chat.ok()) {
      answer["text"] = chat->text;
    } else {
      const std::string message(chat.status().message());
      answer["error"] = vitrine::jinja::RaisedText(chat.status()).value_or(message);
      answer["kind"] = vitrine::ErrorKind(chat.status());
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
