// The interpreter of templates: against jinja2 on many small templates
// (tests/data/chat_templates/expressions.jsonl), its budgets, and what it must never do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "model/jinja/errors.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/parser.h"
#include "tests/model/chat_cases.h"

namespace vitrine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<std::string> Render(std::string_view text, const JsonValue& variables = {}) {
  const auto parsed = ChatTemplate::Parse({.templates = {{"default", std::string(text)}}});
  if (!parsed.ok()) return parsed.status();
  auto chat = parsed->Render(
      {.messages = JsonValue(JsonValue::Array()), .tools = {}, .variables = variables},
      GoldenTime());
  if (!chat.ok()) return chat.status();
  return std::move(chat->text);
}

TEST(JinjaTest, AgreesWithJinja2) {
  const std::vector<JsonValue> rows = ReadChatCases("chat_templates/expressions.jsonl");
  ASSERT_GT(rows.size(), 700);
  const JsonValue& variables = *rows[0].Find("variables");
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string& text = *rows[i].Find("template")->AsString();
    SCOPED_TRACE(text);
    const absl::StatusOr<std::string> got = Render(text, variables);
    if (const JsonValue* expected = rows[i].Find("expected")) {
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, *expected->AsString());
    } else {
      EXPECT_EQ(ErrorKind(got.status()), *rows[i].Find("error")->AsString()) << got.status();
    }
  }
}

TEST(JinjaTest, NamesWhatIsMissingAtLoad) {
  struct Case {
    std::string_view text;
    std::string_view message;
  };
  for (const auto& [text, message] :
       std::vector<Case>{{"\n{{ x | pprint }}", "line 2: the filter 'pprint'"},
                         {"{% if x %}{{ x | random }}{% endif %}", "line 1: the filter 'random'"},
                         {"{% include 'x' %}", "line 1: the statement 'include'"},
                         {"{% extends 'x' %}", "the statement 'extends'"},
                         {"{{ x.encode('utf-8') }}", "the method 'encode'"},
                         {"{{ lipsum() }}", "the function 'lipsum'"}}) {
    const absl::Status status = jinja::Parse(text).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(message)));
  }
}

TEST(JinjaTest, ErrorsNameTheLine) {
  const auto message = [](std::string_view text) {
    return std::string(Render(text).status().message());
  };
  EXPECT_THAT(message("a\n{{ x.y }}"), StartsWith("line 2: 'x' is undefined"));
  EXPECT_THAT(message("{% for a in [1] %}\n\n{{ 1 / 0 }}{% endfor %}"), StartsWith("line 3: "));
  EXPECT_THAT(message("{{ 1 }}\n{{ (1 }}"), StartsWith("line 2: "));
}

// Each would run for minutes, fill the memory or exhaust the stack.
TEST(JinjaTest, StopsWhatCostsTooMuch) {
  const std::string deep_list =
      "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}";
  for (const std::string& text : std::vector<std::string>{
           "{% for i in range(25000) %}{% for j in range(25000) %}x{% endfor %}{% endfor %}",
           "{{ range(1000000000) | length }}", "{{ 'x' * 1000000000 }}", "{{ ['x'] * 1000000000 }}",
           "{{ 'x' * 9000000000000000000 }}",
           "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
           "{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}"
           "{% endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f() %}{% call f() %}x{% endcall %}{{ caller() }}{% endmacro %}{{ f() }}",
           deep_list, "{% set x = 'y' * 30000000 %}{% for i in range(99) %}{{ x }}{% endfor %}",
           "{{ 'ab'.center(100000000000) }}", "{{ ('a ' * 8000000).split() | length }}",
           "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{{ [1] | slice(100000000) | list }}"}) {
    const absl::Status status = Render(text).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << text.substr(0, 80) << ": " << status;
  }
  for (const std::string& nested :
       {"{{ " + std::string(20000, '(') + "1" + std::string(20000, ')') + " }}",
        "{{ " + std::string(20000, '[') + std::string(20000, ']') + " }}",
        "{{ " + std::string(20000, '-') + "1 }}",
        [] {
          std::string text = "{{ 1";
          for (int i = 0; i < 5000; ++i) text += " + 1";
          return text + " }}";
        }(),
        [] {
          std::string text;
          for (int i = 0; i < 5000; ++i) text += "{% if x %}";
          return text;
        }()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Render(nested).status())) << nested.substr(0, 40);
  }
}

// What refers back to itself is taken apart at the end (the leak checker watches).
TEST(JinjaTest, CirclesAreFreed) {
  EXPECT_TRUE(Render("{% set ns = namespace() %}{% set ns.me = [ns] %}"
                     "{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}"
                     "{% for i in [1] recursive %}{% set ns.loop = loop %}{% endfor %}")
                  .ok());
}

// Payloads that have left the sandboxes of others.
TEST(JinjaTest, ReachesNoHost) {
  for (const std::string_view text :
       {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ x.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ self._TemplateReference__context.cycler.__init__ }}",
        "{{ ''['__class__']['__base__'] }}", "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ '{0.__class__.__mro__}'.format('') }}", "{{ namespace.__init__.__globals__ }}",
        "{{ config.items() }}", "{{ request.application }}", "{{ open('/etc/passwd') }}",
        "{{ ().__class__.__bases__[0].__subclasses__()[40]('x').read() }}"}) {
    const absl::StatusOr<std::string> got = Render(text);
    EXPECT_TRUE(!got.ok() || *got == "") << text << " gave " << *got;
  }
}

}  // namespace
}  // namespace vitrine
