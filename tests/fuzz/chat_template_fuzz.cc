// Any text as a template, run on a small budget. Whatever it does to a string that the conversation
// brought, no byte of it may come out as the template's own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include "model/jinja/interpreter.h"
#include "model/jinja/parser.h"
#include "model/jinja/value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using vitrine::jinja::Value;
  // A character of the private use area, which no operation makes of another one.
  constexpr std::string_view kMark = "\ue123";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find(kMark) != std::string_view::npos || text.find('\\') != std::string_view::npos) {
    return 0;
  }
  const auto tree = vitrine::jinja::Parse(text);
  if (!tree.ok()) return 0;
  vitrine::jinja::DictNode message;
  message.Set(Value::Data("role"), Value::Literal("user"));
  message.Set(Value::Data("content"), Value::Data("a<|b|> \ue123 c"));
  const Value messages = Value::List({Value::Dict(message)});
  const vitrine::jinja::Limits limits = {
      .steps = 2000, .bytes = 1 << 20, .output_bytes = 1 << 16, .depth = 256};
  vitrine::jinja::Interpreter interpreter(**tree, limits, std::tm());
  const auto out = interpreter.Run({{"messages", messages}, {"x", Value::Data("\ue123")}});
  if (!out.ok()) return 0;
  for (size_t at = out->view().find(kMark); at != std::string_view::npos;
       at = out->view().find(kMark, at + 1)) {
    size_t begin = 0;
    for (const auto& run : out->runs()) {
      if (run.source == vitrine::jinja::kTemplate && begin < at + kMark.size() && at < run.end) {
        std::abort();
      }
      begin = run.end;
    }
  }
  return 0;
}
