#include "client/request_flags.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/command_line.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

constexpr int64_t kMinInt32 = std::numeric_limits<int32_t>::min();
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// "ID:BIAS".
FlagSetter TakesLogitBias(v1::SamplingOptions* sampling) {
  return [sampling](std::string_view value) {
    const size_t colon = value.find(':');
    v1::LogitBias bias;
    absl::Status status = absl::InvalidArgumentError("takes ID:BIAS, such as 42:-1.5");
    if (colon == std::string_view::npos) return status;
    const FlagSetter set_id = TakesUint32([&bias](uint32_t v) { bias.set_token_id(v); });
    const FlagSetter set_bias = TakesFloat([&bias](float v) { bias.set_bias(v); });
    if (!set_id(value.substr(0, colon)).ok() || !set_bias(value.substr(colon + 1)).ok()) {
      return status;
    }
    *sampling->add_logit_bias() = bias;
    return absl::OkStatus();
  };
}

std::string ReadStandardInput() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, count);
  }
  return text;
}

void AddMessage(std::string role, std::string content, v1::Chat* chat) {
  v1::ChatMessage* message = chat->add_messages();
  message->set_role(std::move(role));
  message->set_content(std::move(content));
}

absl::Status ReadChat(const PromptFlags& flags, const std::string* last, v1::Chat* chat) {
  if (!flags.system.empty()) AddMessage("system", flags.system, chat);
  for (const std::string& message : flags.messages) {
    const size_t colon = message.find(':');
    if (colon == std::string::npos || colon == 0) {
      return absl::InvalidArgumentError("--message takes ROLE:TEXT, such as user:Hello");
    }
    AddMessage(message.substr(0, colon), message.substr(colon + 1), chat);
  }
  if (last != nullptr) AddMessage("user", *last, chat);
  if (chat->messages().empty()) {
    return absl::InvalidArgumentError("--chat needs a prompt or a --message");
  }
  chat->set_tools(flags.tools);
  chat->set_template_variables(flags.template_variables);
  if (flags.add_generation_prompt) chat->set_add_generation_prompt(*flags.add_generation_prompt);
  return absl::OkStatus();
}

}  // namespace

void AddPromptFlags(CommandLine* command_line, PromptFlags* flags) {
  command_line->Section("Prompt");
  command_line->Add(
      {.name = "token_ids",
       .placeholder = "ID,...",
       .help = "Token ids instead of text; nothing is added to them.",
       .set = TakesIds([flags](const std::vector<uint32_t>& v) { flags->token_ids = v; })});
  command_line->Add({.name = "chat",
                     .placeholder = "",
                     .help = "The prompt is a user's message for the model's chat template.",
                     .set = TakesSwitch([flags](bool v) { flags->chat = v; })});
  command_line->Add({.name = "system",
                     .placeholder = "TEXT",
                     .help = "System message in front of the conversation; implies --chat.",
                     .set = TakesText([flags](const std::string& v) { flags->system = v; })});
  command_line->Add(
      {.name = "message",
       .placeholder = "ROLE:TEXT",
       .help = "A message before the prompt; implies --chat.",
       .set = TakesText([flags](const std::string& v) { flags->messages.push_back(v); }),
       .repeatable = true});
  command_line->Add({.name = "tools",
                     .placeholder = "JSON",
                     .help = "Array of tool definitions for the chat template.",
                     .set = TakesText([flags](const std::string& v) { flags->tools = v; })});
  command_line->Add(
      {.name = "template_variables",
       .placeholder = "JSON",
       .help = "Object of further variables for the chat template.",
       .set = TakesText([flags](const std::string& v) { flags->template_variables = v; })});
  command_line->Add(
      {.name = "add_generation_prompt",
       .placeholder = "",
       .help = "Opens the assistant's turn at the end of the conversation; default true.",
       .set = TakesSwitch([flags](bool v) { flags->add_generation_prompt = v; })});
}

void AddSamplingFlags(CommandLine* command_line, v1::SamplingOptions* sampling) {
  command_line->Section("Sampling (unset: the model's own settings, else off)");
  struct FloatFlag {
    const char* name;
    const char* help;
    void (v1::SamplingOptions::*set)(float);
  };
  const FloatFlag float_flags[] = {
      {"temperature", "0 = always the most probable token; default 1.",
       &v1::SamplingOptions::set_temperature},
      {"top_p", "Keeps the most probable tokens with this share in all, above 0 to 1.",
       &v1::SamplingOptions::set_top_p},
      {"min_p", "Drops tokens below this share of the best one's, 0 to below 1.",
       &v1::SamplingOptions::set_min_p},
      {"typical_p", "Locally typical sampling, above 0 to 1.", &v1::SamplingOptions::set_typical_p},
      {"repetition_penalty", "Divides the logits of tokens seen, above 0.",
       &v1::SamplingOptions::set_repetition_penalty},
      {"presence_penalty", "Subtracted once from tokens generated, -2 to 2.",
       &v1::SamplingOptions::set_presence_penalty},
      {"frequency_penalty", "Subtracted per occurrence from tokens generated, -2 to 2.",
       &v1::SamplingOptions::set_frequency_penalty},
  };
  for (const FloatFlag& flag : float_flags) {
    command_line->Add(
        {.name = flag.name,
         .placeholder = "NUMBER",
         .help = flag.help,
         .set = TakesFloat([sampling, set = flag.set](float v) { (sampling->*set)(v); })});
  }
  command_line->Add({.name = "top_k",
                     .placeholder = "COUNT",
                     .help = "Keeps the most probable tokens; 0 or -1 = all.",
                     .set = TakesInteger(kMinInt32, kMaxInt32, [sampling](int64_t v) {
                       sampling->set_top_k(static_cast<int32_t>(v));
                     })});
  command_line->Add({.name = "penalty_window",
                     .placeholder = "COUNT",
                     .help = "Tokens that the penalties look back; -1 = all.",
                     .set = TakesInteger(kMinInt32, kMaxInt32, [sampling](int64_t v) {
                       sampling->set_penalty_window(static_cast<int32_t>(v));
                     })});
  command_line->Add({.name = "logit_bias",
                     .placeholder = "ID:BIAS",
                     .help = "Added to a token's logit.",
                     .set = TakesLogitBias(sampling),
                     .repeatable = true});
  command_line->Add({.name = "allowed_token_ids",
                     .placeholder = "ID,...",
                     .help = "Only these may be chosen.",
                     .set = TakesIds([sampling](const std::vector<uint32_t>& v) {
                       sampling->mutable_allowed_token_ids()->Assign(v.begin(), v.end());
                     })});
  command_line->Add({.name = "banned_token_ids",
                     .placeholder = "ID,...",
                     .help = "These are never chosen.",
                     .set = TakesIds([sampling](const std::vector<uint32_t>& v) {
                       sampling->mutable_banned_token_ids()->Assign(v.begin(), v.end());
                     })});
  command_line->Add({.name = "seed",
                     .placeholder = "NUMBER",
                     .help = "The same seed gives the same answer; unset = a fresh one.",
                     .set = TakesUint64([sampling](uint64_t v) { sampling->set_seed(v); })});
}

void AddStopFlags(CommandLine* command_line, v1::StopOptions* stop) {
  command_line->Section("End of the answer");
  command_line->Add({.name = "max_tokens",
                     .placeholder = "COUNT",
                     .help = "Most tokens to generate; unset = up to the context limit.",
                     .set = TakesUint32([stop](uint32_t v) { stop->set_max_tokens(v); })});
  command_line->Add({.name = "min_tokens",
                     .placeholder = "COUNT",
                     .help = "No stop before this many tokens.",
                     .set = TakesUint32([stop](uint32_t v) { stop->set_min_tokens(v); })});
  command_line->Add({.name = "stop",
                     .placeholder = "TEXT",
                     .help = "Ends the answer in front of this text, 1 to 256 bytes.",
                     .set = TakesText([stop](const std::string& v) { stop->add_stop_strings(v); }),
                     .repeatable = true});
  command_line->Add({.name = "include_stop_string",
                     .placeholder = "",
                     .help = "Keeps the text that ended the answer.",
                     .set = TakesSwitch([stop](bool v) { stop->set_include_stop_string(v); })});
  command_line->Add({.name = "stop_token_ids",
                     .placeholder = "ID,...",
                     .help = "Tokens that end the answer besides the model's own.",
                     .set = TakesIds([stop](const std::vector<uint32_t>& v) {
                       stop->mutable_stop_token_ids()->Assign(v.begin(), v.end());
                     })});
  command_line->Add({.name = "ignore_eos",
                     .placeholder = "",
                     .help = "Goes on past the model's own end.",
                     .set = TakesSwitch([stop](bool v) { stop->set_ignore_eos(v); })});
  command_line->Add({.name = "time_limit",
                     .placeholder = "TIME",
                     .help = "Ends the answer, without an error, after this time (2s, 500ms).",
                     .set = TakesDuration([stop](std::chrono::nanoseconds v) {
                       constexpr int64_t kPerSecond = 1'000'000'000;
                       stop->mutable_time_limit()->set_seconds(v.count() / kPerSecond);
                       stop->mutable_time_limit()->set_nanos(
                           static_cast<int32_t>(v.count() % kPerSecond));
                     })});
}

void AddOutputFlags(CommandLine* command_line, v1::OutputOptions* output) {
  command_line->Section("Output");
  command_line->Add(
      {.name = "logprobs",
       .placeholder = "COUNT",
       .help = "Log-probability of each token and so many others, 0 to 20; on stderr.",
       .set = TakesUint32([output](uint32_t v) { output->set_logprobs(v); })});
  command_line->Add({.name = "logprobs_mode",
                     .placeholder = "MODE",
                     .help = "raw (the model's own; default) or processed (what was drawn from).",
                     .set = TakesOneOf({"raw", "processed"}, [output](size_t v) {
                       output->set_logprobs_mode(v == 0 ? v1::LOGPROBS_MODE_RAW
                                                        : v1::LOGPROBS_MODE_PROCESSED);
                     })});
  command_line->Add({.name = "prompt_logprobs",
                     .placeholder = "COUNT",
                     .help = "The same for the prompt's tokens, 0 to 20.",
                     .set = TakesUint32([output](uint32_t v) { output->set_prompt_logprobs(v); })});
  command_line->Add({.name = "n",
                     .placeholder = "COUNT",
                     .help = "Answers to the same prompt, 1 to 8.",
                     .set = TakesUint32([output](uint32_t v) { output->set_n(v); }),
                     .short_name = 'n'});
  command_line->Add(
      {.name = "return_token_ids_only",
       .placeholder = "",
       .help = "Prints token ids instead of text.",
       .set = TakesSwitch([output](bool v) { output->set_return_token_ids_only(v); })});
  command_line->Add(
      {.name = "return_prompt_token_ids",
       .placeholder = "",
       .help = "Sends the prompt's ids back (--json).",
       .set = TakesSwitch([output](bool v) { output->set_return_prompt_token_ids(v); })});
}

absl::Status ReadPrompt(const PromptFlags& flags, const std::vector<std::string>& arguments,
                        v1::GenerateRequest* request) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes one prompt, not ", arguments.size(), "; quote it"));
  }
  const bool is_chat = flags.chat || !flags.system.empty() || !flags.messages.empty();
  if (!is_chat && (!flags.tools.empty() || !flags.template_variables.empty() ||
                   flags.add_generation_prompt.has_value())) {
    return absl::InvalidArgumentError(
        "--tools, --template_variables and --add_generation_prompt go with --chat");
  }
  if (!flags.token_ids.empty()) {
    if (is_chat || !arguments.empty()) {
      return absl::InvalidArgumentError("--token_ids excludes any other prompt");
    }
    request->mutable_token_ids()->mutable_ids()->Assign(flags.token_ids.begin(),
                                                        flags.token_ids.end());
    return absl::OkStatus();
  }
  std::string text;
  if (!arguments.empty()) text = arguments[0] == "-" ? ReadStandardInput() : arguments[0];
  if (is_chat) return ReadChat(flags, arguments.empty() ? nullptr : &text, request->mutable_chat());
  if (arguments.empty()) {
    return absl::InvalidArgumentError("needs a prompt: as an argument, or - for standard input");
  }
  request->set_text(std::move(text));
  return absl::OkStatus();
}

}  // namespace vitrine::client
