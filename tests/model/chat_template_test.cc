// Prompts from conversations: stored cases of transformers' own rendering
// (tests/data/chat_templates/cases.jsonl), and who wrote which byte.
#include "model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/chat_template_files.h"
#include "model/jinja/errors.h"
#include "tests/model/chat_cases.h"
#include "tests/model/gguf_builder.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChatTemplate MustParse(const std::string& text) {
  auto parsed =
      ChatTemplate::Parse({.templates = {{"default", text}},
                           .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
  if (!parsed.ok()) throw std::runtime_error(parsed.status().ToString());
  return *std::move(parsed);
}

Conversation MakeConversation(std::string_view messages, std::string_view tools = "null",
                              std::string_view variables = "null") {
  const auto parse = [](std::string_view text) {
    auto value = ParseJson(text, "test", 1'000'000);
    if (!value.ok()) throw std::runtime_error(value.status().ToString());
    return *std::move(value);
  };
  return {.messages = parse(messages), .tools = parse(tools), .variables = parse(variables)};
}

RenderedChat MustRender(const std::string& text, const Conversation& conversation) {
  auto chat = MustParse(text).Render(conversation, GoldenTime());
  if (!chat.ok()) throw std::runtime_error(chat.status().ToString());
  return *std::move(chat);
}

// The text with [ and ] around what counts as plain.
std::string Marked(const RenderedChat& chat) {
  std::string marked = chat.text;
  for (size_t i = chat.plain.size(); i-- > 0;) {
    marked.insert(chat.plain[i].end, "]");
    marked.insert(chat.plain[i].begin, "[");
  }
  return marked;
}

TEST(ChatTemplateTest, AgreesWithStoredCases) {
  const std::vector<JsonValue> rows = ReadChatCases("chat_templates/cases.jsonl");
  ASSERT_EQ(rows.size(), 69);
  for (const JsonValue& row : rows) {
    SCOPED_TRACE(*row.Find("id")->AsString());
    Conversation conversation = {.messages = *row.Find("messages"), .tools = {}, .variables = {}};
    if (const JsonValue* tools = row.Find("tools")) conversation.tools = *tools;
    conversation.variables = *row.Find("variables");
    const auto parsed =
        ChatTemplate::Parse({.templates = {{"default", *row.Find("template")->AsString()}}});
    const auto chat = parsed.ok() ? parsed->Render(conversation, GoldenTime())
                                  : absl::StatusOr<RenderedChat>(parsed.status());
    if (const JsonValue* expected = row.Find("expected")) {
      ASSERT_TRUE(chat.ok()) << chat.status();
      EXPECT_EQ(chat->text, *expected->AsString());
      continue;
    }
    const JsonValue& error = *row.Find("error");
    EXPECT_EQ(ErrorKind(chat.status()), *error.Find("kind")->AsString()) << chat.status();
    if (const auto raised = jinja::RaisedText(chat.status())) {
      EXPECT_EQ(*raised, *error.Find("message")->AsString());
    }
  }
}

TEST(ChatTemplateTest, OnlyTheTemplatesOwnBytesAreNotPlain) {
  struct Case {
    std::string text;
    std::string marked;
  };
  const Conversation conversation = MakeConversation(
      R"([{"role": "user", "content": " <|end|>x</think>Y ", "name": "<|end|>"},
          {"role": "<|system|>", "content": ["a", "<|end|>"]}])",
      R"([{"name": "<|end|>"}])", R"({"date": "<|end|>"})");
  for (const auto& [text, marked] : std::vector<Case>{
           {"{{ bos_token }}<|{{ messages[0].role }}|>", "<s><|user|>"},
           {"{{ messages[1].role }}", "[<|system|>]"},
           {"{{ '<|a|>' + messages[0].content + '<|b|>' }}", "<|a|>[ <|end|>x</think>Y ]<|b|>"},
           {"{{ messages[0].content | trim }}.", "[<|end|>x</think>Y]."},
           {"{{ messages[0]['content'].split('</think>')[-1].strip() }}.", "[Y]."},
           {"{{ (' a' ~ messages[0].content ~ 'b ') | trim }}", "a[ <|end|>x</think>Y ]b"},
           {"{{ ('a' ~ messages[0].content ~ 'b')[:3] }}", "a[ <]"},
           {"{{ messages[0].content | upper }}.", "[ <|END|>X</THINK>Y ]."},
           {"{{ messages[0].content | replace('x', '<|b|>') }}", "[ <|end|><|b|></think>Y ]"},
           {"{{ '<|a|>{x}' | replace('{x}', messages[0].name) }}", "<|a|>[<|end|>]"},
           {"{{ '<|a|>%s<|b|>' | format(messages[0].name) }}", "<|a|>[<|end|>]<|b|>"},
           {"{{ '<|a|>{}'.format(messages[0].name) }}", "<|a|>[<|end|>]"},
           {"{{ messages | map(attribute='role') | join('<|b|>') }}", "user<|b|>[<|system|>]"},
           {"{{ tools | tojson }}", R"([[{"name": "<|end|>"}]])"},
           {"{{ messages[1].content }}", "[['a', '<|end|>']]"},
           {"{{ messages[0] }}",
            "[{'role': 'user', 'content': ' <|end|>x</think>Y ', "
            "'name': '<|end|>'}]"},
           {"{{ date }}{{ date | e }}", "[<|end|>&lt;|end|&gt;]"},
           {"{% for k in tools[0] %}{{ k }}{% endfor %}", "[name]"},
           {"{% set x %}<|a|>{{ date }}{% endset %}{{ x }}", "<|a|>[<|end|>]"},
           {"{% macro f(x) %}<|a|>{{ x }}{% endmacro %}{{ f(date) }}", "<|a|>[<|end|>]"},
           {"{{ date * 2 }}{{ '<|a|>' * 2 }}", "[<|end|><|end|>]<|a|><|a|>"},
           {"{{ date | reverse }}{{ [date] }}", "[>|dne|<['<|end|>']]"},
           {"{{ ('<|a|>' ~ date) | indent(2) }}", "<|a|>[<|end|>]"},
           {"{{ ('<|a|>' ~ date) | title }}", "[<|a|><|end|>]"}}) {
    EXPECT_EQ(Marked(MustRender(text, conversation)), marked) << text;
  }
}

TEST(ChatTemplateTest, FindsTheContentOfEachMessage) {
  const std::string text =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}";
  const RenderedChat chat =
      MustRender(text, MakeConversation(R"([{"role": "system", "content": " one "},
                                 {"role": "user", "content": ""},
                                 {"role": "user", "content": [{"type": "text", "text": "two"}]},
                                 {"role": "user", "content": "three"}])"));
  std::vector<std::string> contents;
  for (const ByteRange& range : chat.contents) {
    contents.push_back(chat.text.substr(range.begin, range.end - range.begin));
  }
  // A list is printed as Python would: nobody's content as such.
  EXPECT_THAT(contents, ElementsAre("one", "", "", "three"));
}

TEST(ChatTemplateTest, ErrorsAreSilentAboutTheConversation) {
  const Conversation conversation =
      MakeConversation(R"([{"role": "critic", "content": "secret"}])");
  const auto raised = MustParse("{{ raise_exception('Unknown role: ' ~ messages[0].role ~ '!') }}")
                          .Render(conversation, GoldenTime());
  EXPECT_EQ(raised.status().message(), "Unknown role: ...!");
  EXPECT_EQ(jinja::RaisedText(raised.status()), "Unknown role: critic!");
  for (const std::string text :
       {"{{ messages[0].content + 1 }}", "{{ messages[0].content.nope.x }}",
        "{{ messages[0][messages[0].content].x }}", "{{ {}[messages[0].content].x }}",
        "{{ [1] | map(messages[0].content) | list }}", "{{ dict(**{messages[0].content: 1}).x.y }}",
        "{{ (messages[0].content ~ '%d') % 'x' }}", "{{ messages[0].content | attr('x') + 1 }}",
        "{% macro f() %}{% endmacro %}{{ f(**{messages[0].content: 1}) }}"}) {
    const auto chat = MustParse(text).Render(conversation, GoldenTime());
    ASSERT_FALSE(chat.ok()) << text;
    EXPECT_THAT(std::string(chat.status().message()), Not(HasSubstr("secret"))) << text;
  }
}

TEST(ChatTemplateTest, ChoosesByTools) {
  const auto parsed = ChatTemplate::Parse(
      {.templates = {{"rag", "rag"}, {"default", "default {{ tools }}"}, {"tool_use", "tools"}}});
  ASSERT_TRUE(parsed.ok());
  const auto render = [&](std::string_view tools) {
    return parsed->Render(MakeConversation("[]", tools), GoldenTime())->text;
  };
  EXPECT_EQ(render("null"), "default None");
  EXPECT_EQ(render("[]"), "default None");
  EXPECT_EQ(render(R"([{"a": 1}])"), "tools");
  EXPECT_EQ(parsed->Describe(), "rag, default, tool_use");
}

TEST(ChatTemplateTest, ABrokenTemplateRefusesItsOwnChatsOnly) {
  const auto broken_tools =
      ChatTemplate::Create({.templates = {{"default", "plain"}, {"tool_use", "{{ tools"}}});
  ASSERT_TRUE(broken_tools.ok());
  EXPECT_EQ(broken_tools->Render(MakeConversation("[]"), GoldenTime())->text, "plain");
  const auto with_tools = MakeConversation("[]", R"([{"a": 1}])");
  EXPECT_TRUE(absl::IsInvalidArgument(broken_tools->Render(with_tools, GoldenTime()).status()));
  const auto broken_default =
      ChatTemplate::Create({.templates = {{"default", "{{ tools"}, {"tool_use", "tools"}}});
  EXPECT_TRUE(absl::IsInvalidArgument(broken_default.status()));
}

TEST(ChatTemplateTest, ProbesAtLoad) {
  const auto create = [](std::string text) {
    return ChatTemplate::Create({.templates = {{"default", std::move(text)}}}).status();
  };
  EXPECT_TRUE(absl::IsNotFound(ChatTemplate::Create({}).status()));
  EXPECT_TRUE(create("{{ messages[0].content }}").ok());
  EXPECT_TRUE(create("{{ raise_exception('needs a system message') }}").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(create("{{ messages[0].content.nope() }}")));
  EXPECT_TRUE(absl::IsResourceExhausted(
      create("{% for i in range(25000) %}{% for j in range(25000) %}x{% endfor %}{% endfor %}")));
  EXPECT_TRUE(absl::IsInvalidArgument(create("{{ messages")));
  EXPECT_TRUE(absl::IsUnimplemented(create("{{ messages | xmlattr }}")));
}

TEST(ChatTemplateTest, LongConversationsAreNotRefusedForTheirLength) {
  std::string messages = "[";
  for (int i = 0; i < 10000; ++i) {
    messages += i == 0 ? "" : ",";
    messages += i % 2 == 0 ? R"({"role": "user", "content": "question"})"
                           : R"({"role": "assistant", "content": "answer"})";
  }
  const RenderedChat chat = MustRender(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('order') }}{% endif %}"
      "{{ '<|' + m['role'] + '|>' + m['content'] | trim }}{% endfor %}",
      MakeConversation(messages + "]"));
  EXPECT_EQ(chat.text.size(), 5000 * (std::string("<|user|>question<|assistant|>answer").size()));
}

TEST(ChatTemplateTest, ReadsGgufFiles) {
  GgufBuilder builder = TinyLlama();
  builder.SetString("tokenizer.chat_template", "{{ bos_token }}default")
      .SetStrings("tokenizer.chat_templates", {"default", "tool_use"})
      .SetString("tokenizer.chat_template.tool_use", "{{ bos_token }}tools")
      .SetString("tokenizer.chat_template.default", "unused")
      .SetUint("tokenizer.ggml.bos_token_id", 1);
  const std::string bytes = builder.Bytes();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto source = ReadGgufChatTemplates(**file);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(source->templates.size(), 2);
  const auto parsed = ChatTemplate::Create(*source);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const std::string bos((*(*file)->StringArray("tokenizer.ggml.tokens"))[1]);
  EXPECT_EQ(parsed->Render(MakeConversation("[]"), GoldenTime())->text, bos + "default");
  EXPECT_EQ(parsed->Render(MakeConversation("[]", "[1]"), GoldenTime())->text, bos + "tools");
}

class FolderTest : public testing::Test {
 protected:
  FolderTest() : folder_(testing::TempDir() + "/chat_template_folder") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << text;
  }

  const std::string folder_;
};

TEST_F(FolderTest, ReadsFilesBeforeTheConfig) {
  Write("tokenizer_config.json",
        R"({"chat_template": "config", "bos_token": {"content": "<s>"}, "eos_token": "</s>",
            "pad_token": null})");
  auto source = ReadFolderChatTemplates(folder_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->templates.front().text, "config");
  EXPECT_THAT(source->special_tokens,
              ElementsAre(std::pair<std::string, std::string>("bos_token", "<s>"),
                          std::pair<std::string, std::string>("eos_token", "</s>")));

  Write("chat_template.jinja", "file");
  Write("additional_chat_templates/rag.jinja", "rag");
  source = ReadFolderChatTemplates(folder_);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(source->templates.size(), 2);
  EXPECT_EQ(source->templates[0].text, "file");
  EXPECT_EQ(source->templates[1].name, "rag");
}

TEST_F(FolderTest, ReadsListsAndRefusesWhatIsNone) {
  EXPECT_TRUE(ReadFolderChatTemplates(folder_)->templates.empty());
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "a"},
                                                       {"name": "tool_use", "template": "b"}]})");
  EXPECT_EQ(ReadFolderChatTemplates(folder_)->templates.size(), 2);
  for (const char* bad : {R"({"chat_template": 1})", R"({"chat_template": [1]})",
                          R"({"chat_template": [{"name": "a"}]})", "{"}) {
    Write("tokenizer_config.json", bad);
    EXPECT_TRUE(absl::IsInvalidArgument(ReadFolderChatTemplates(folder_).status())) << bad;
  }
}

}  // namespace
}  // namespace vitrine
