#include "model/chat_template.h"

#include <algorithm>

#include "absl/status/status.h"
#include "model/jinja/errors.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/operators.h"
#include "model/jinja/parser.h"
#include "model/jinja/text.h"
#include "model/jinja/value.h"
#include "model/status.h"

namespace vitrine {
namespace {

using jinja::Value;

// Beside the base of jinja::Limits, so that long conversations are not refused for their length.
constexpr int64_t kStepsPerMessage = 2000;
constexpr int64_t kBytesPerInputByte = 32;

// Roles that templates build control tokens from, as in '<|' + role + '|>'. Whoever may choose the
// role may open such a turn anyway. Any other text stays plain, also as a role.
constexpr std::string_view kRoles[] = {"assistant", "developer", "function", "ipython",
                                       "model",     "system",    "tool",     "user"};

// Turns JSON into values whose strings know that they are data, and counts their bytes.
class Importer {
 public:
  Value Import(const JsonValue& json, jinja::Source source = jinja::kData) {
    ++values_;
    if (const bool* value = json.AsBool()) return Value::Bool(*value);
    if (const int64_t* value = json.AsInt()) return Value::Int(*value);
    if (const double* value = json.AsFloat()) return Value::Float(*value);
    if (const std::string* text = json.AsString()) {
      bytes_ += static_cast<int64_t>(text->size());
      return Value::String(jinja::Text(*text, source));
    }
    if (const JsonValue::Array* array = json.AsArray()) {
      std::vector<Value> items;
      items.reserve(array->size());
      for (const JsonValue& item : *array) items.push_back(Import(item, source));
      return Value::List(std::move(items));
    }
    if (const JsonValue::Object* object = json.AsObject()) {
      jinja::DictNode dict;
      for (const auto& [key, member] : *object) {
        bytes_ += static_cast<int64_t>(key.size());
        dict.Set(Value::Data(key), Import(member, source));
      }
      return Value::Dict(std::move(dict));
    }
    return Value::None();
  }

  // A message, whose content has a source of its own.
  Value ImportMessage(const JsonValue& json, size_t index) {
    const JsonValue::Object* const object = json.AsObject();
    if (object == nullptr) return Import(json);
    jinja::DictNode dict;
    for (const auto& [key, member] : *object) {
      jinja::Source source = jinja::kData;
      const std::string* const text = member.AsString();
      if (key == "content") source = jinja::kFirstContent + static_cast<jinja::Source>(index);
      if (key == "role" && text != nullptr &&
          std::find(std::begin(kRoles), std::end(kRoles), *text) != std::end(kRoles)) {
        source = jinja::kTemplate;
      }
      dict.Set(Value::Data(key), Import(member, source));
    }
    return Value::Dict(std::move(dict));
  }

  int64_t bytes() const { return bytes_ + 64 * values_; }

 private:
  int64_t bytes_ = 0;
  int64_t values_ = 0;
};

RenderedChat Finish(const jinja::Text& text, size_t messages) {
  RenderedChat chat;
  chat.text = text.bytes();
  chat.contents.resize(messages);
  size_t begin = 0;
  for (const jinja::Text::Run& run : text.runs()) {
    if (run.source != jinja::kTemplate) {
      if (!chat.plain.empty() && chat.plain.back().end == begin) {
        chat.plain.back().end = run.end;
      } else {
        chat.plain.push_back({begin, run.end});
      }
    }
    const auto message = static_cast<size_t>(run.source - jinja::kFirstContent);
    if (run.source >= jinja::kFirstContent && message < messages) {
      ByteRange& content = chat.contents[message];
      if (content.end == 0) content.begin = begin;
      content.end = run.end;
    }
    begin = run.end;
  }
  return chat;
}

// One user, one word: whatever a template needs beyond that it can tell by raise_exception.
Conversation ShortestConversation() {
  JsonValue::Object message;
  message.emplace_back("role", JsonValue(std::string("user")));
  message.emplace_back("content", JsonValue(std::string("hello")));
  JsonValue::Array messages;
  messages.emplace_back(std::move(message));
  return {.messages = JsonValue(std::move(messages)), .tools = {}, .variables = {}};
}

std::tm AnyDay() {
  std::tm day = {};
  day.tm_year = 125;
  day.tm_mday = 1;
  return day;
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(const ChatTemplateSource& source) {
  if (source.templates.empty()) return absl::NotFoundError("the model has no chat template");
  ChatTemplate result;
  result.special_tokens_ = source.special_tokens;
  for (const ChatTemplateSource::Named& named : source.templates) {
    result.templates_.push_back({named.name, jinja::Parse(named.text)});
  }
  VITRINE_RETURN_IF_ERROR(result.Choose(/*with_tools=*/false).status());
  return result;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const ChatTemplateSource& source) {
  VITRINE_ASSIGN_OR_RETURN(ChatTemplate result, Parse(source));
  const absl::Status probe = result.Render(ShortestConversation(), AnyDay()).status();
  if (!probe.ok() && !jinja::RaisedText(probe)) return probe;
  return result;
}

const ChatTemplate::Tree& ChatTemplate::Choose(bool with_tools) const {
  const auto find = [&](std::string_view name) {
    return std::find_if(templates_.begin(), templates_.end(),
                        [&](const Parsed& parsed) { return parsed.name == name; });
  };
  auto chosen = with_tools ? find("tool_use") : templates_.end();
  if (chosen == templates_.end()) chosen = find("default");
  return chosen == templates_.end() ? templates_.front().tree : chosen->tree;
}

std::string ChatTemplate::Describe() const {
  std::string names;
  for (const Parsed& parsed : templates_) {
    if (!names.empty()) names += ", ";
    names += parsed.name;
  }
  return names;
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const Conversation& conversation,
                                                  const std::tm& now) const {
  Importer importer;
  std::vector<Value> messages;
  const JsonValue::Array* const given = conversation.messages.AsArray();
  if (given == nullptr) return absl::InvalidArgumentError("messages must be an array");
  for (size_t i = 0; i < given->size(); ++i) {
    messages.push_back(importer.ImportMessage((*given)[i], i));
  }
  const JsonValue::Array* const tools = conversation.tools.AsArray();
  const bool has_tools = tools != nullptr && !tools->empty();
  const size_t count = messages.size();
  const Tree& tree = Choose(has_tools);
  VITRINE_RETURN_IF_ERROR(tree.status());

  jinja::Variables variables;
  for (const auto& [name, text] : special_tokens_)
    variables.emplace_back(name, Value::Literal(text));
  variables.emplace_back("messages", Value::List(std::move(messages)));
  variables.emplace_back("tools", has_tools ? importer.Import(conversation.tools) : Value::None());
  variables.emplace_back("documents", Value::None());
  variables.emplace_back("add_generation_prompt", Value::Bool(conversation.add_generation_prompt));
  // The last of equal names counts.
  if (const JsonValue::Object* further = conversation.variables.AsObject()) {
    for (const auto& [name, value] : *further) variables.emplace_back(name, importer.Import(value));
  }
  jinja::Limits limits;
  limits.steps += kStepsPerMessage * static_cast<int64_t>(count);
  limits.bytes += kBytesPerInputByte * importer.bytes();
  jinja::Interpreter interpreter(**tree, limits, now);
  VITRINE_ASSIGN_OR_RETURN(const jinja::Text text, interpreter.Run(variables));
  return Finish(text, count);
}

}  // namespace vitrine
