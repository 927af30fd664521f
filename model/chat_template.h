// From a conversation to the prompt that a model was trained to continue, by the template that its
// files bring. Templates are programs of strangers: they run in model/jinja, on a budget, and reach
// nothing but the conversation.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/json.h"
#include "model/tokenizer.h"

namespace vitrine {

// What the files of a model say about chats.
struct ChatTemplateSource {
  struct Named {
    std::string name;  // "default", "tool_use", "rag".
    std::string text;
  };
  std::vector<Named> templates = {};
  // Variables such as bos_token: texts of the model's own tokens.
  std::vector<std::pair<std::string, std::string>> special_tokens = {};
};

struct Conversation {
  JsonValue messages;                 // An array of objects.
  JsonValue tools;                    // An array, or null.
  JsonValue variables;                // An object of further variables, or null.
  bool add_generation_prompt = true;  // Unless `variables` has it.
};

struct RenderedChat {
  std::string text;
  // What no control token may be read from: everything that the template did not write itself.
  // Ascending, disjoint.
  std::vector<ByteRange> plain;
  // [messages] From the first to the last byte of the message's content; empty where it does not
  // appear as such.
  std::vector<ByteRange> contents;
};

// Immutable and thread-safe.
class ChatTemplate {
 public:
  // NOT_FOUND: there is no template. Else the parser's errors (model/jinja/errors.h), which name
  // the line, of the template for chats without tools; those of another one are errors of Render.
  static absl::StatusOr<ChatTemplate> Parse(const ChatTemplateSource& source);
  // The same, and what rendering the shortest conversation shows to be broken.
  static absl::StatusOr<ChatTemplate> Create(const ChatTemplateSource& source);

  // The template "tool_use" where there is one and tools are given, "default" otherwise.
  // Errors as in model/jinja/errors.h; messages hold nothing of the conversation, RaisedText may.
  // `now` is what strftime_now prints.
  absl::StatusOr<RenderedChat> Render(const Conversation& conversation, const std::tm& now) const;

  // Names of the templates, as "default, tool_use".
  std::string Describe() const;

 private:
  using Tree = absl::StatusOr<std::unique_ptr<const jinja::Template>>;
  struct Parsed {
    std::string name;
    Tree tree;
  };

  const Tree& Choose(bool with_tools) const;

  std::vector<Parsed> templates_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

}  // namespace vitrine
