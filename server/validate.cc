#include "server/validate.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "google/protobuf/unknown_field_set.h"
#include "model/detokenizer.h"
#include "model/kv_cache.h"
#include "model/status.h"
#include "server/chat_messages.h"
#include "server/field_error.h"
#include "server/validate_attention.h"
#include "server/validate_sampling.h"

namespace vitrine::server {
namespace {

absl::Status CheckModel(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return absl::NotFoundError("model: no such model is served here");
}

// A field of a later protocol is an option that this server would ignore.
absl::Status CheckNoUnknownFields(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return FieldError(
        message.GetDescriptor()->name(),
        std::string(absl::StrCat("unknown field number ", unknown.field(0).number())));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(reflection.GetMessage(message, field)));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      VITRINE_RETURN_IF_ERROR(
          CheckNoUnknownFields(reflection.GetRepeatedMessage(message, field, i)));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateStopStrings(const v1::StopOptions& stop, const RequestLimits& limits,
                                 StopRules& rules) {
  if (stop.stop_strings_size() > limits.max_stop_strings) {
    return FieldError("stop.stop_strings",
                      std::string(absl::StrCat("at most ", limits.max_stop_strings, ", are ",
                                               stop.stop_strings_size())));
  }
  for (const std::string& text : stop.stop_strings()) {
    if (text.empty() || static_cast<int>(text.size()) > limits.max_stop_string_bytes) {
      return FieldError("stop.stop_strings",
                        std::string(absl::StrCat("must hold 1 to ", limits.max_stop_string_bytes,
                                                 " bytes each, one has ", text.size())));
    }
    rules.stop_strings.push_back(text);
  }
  rules.include_stop_string = stop.include_stop_string();
  return absl::OkStatus();
}

// Of `choices` that share the whole blocks of the prompt but for its last token.
int64_t KvTokensNeeded(int64_t prompt_tokens, int64_t stored_tokens, int choices) {
  const int64_t shared = (prompt_tokens - 1) / kKvBlockTokens * kKvBlockTokens;
  const int64_t own = stored_tokens - shared;
  return choices == 1 ? stored_tokens : shared + choices * BlocksFor(own) * kKvBlockTokens;
}

// Where the answer ends for lack of room or by wish.
absl::Status ValidateLength(const v1::StopOptions& stop, const ServedModel& model,
                            int64_t prompt_tokens, int choices, StopRules& rules) {
  if (prompt_tokens > model.context_length) {
    return FieldError("prompt",
                      std::string(absl::StrCat("has ", prompt_tokens, " tokens, the context holds ",
                                               model.context_length)));
  }
  const bool wants_none = stop.has_max_tokens() && stop.max_tokens() == 0;
  if (prompt_tokens == model.context_length && !wants_none) {
    return FieldError(
        "prompt", std::string(absl::StrCat("has ", prompt_tokens, " tokens and the context holds ",
                                           model.context_length, ": no room for one more")));
  }
  int64_t length = model.context_length;
  bool is_context = true;
  if (stop.has_max_tokens() && prompt_tokens + stop.max_tokens() <= model.context_length) {
    length = prompt_tokens + stop.max_tokens();
    is_context = false;
  }
  // The last token drawn is never stored.
  const int64_t needed =
      KvTokensNeeded(prompt_tokens, std::max(prompt_tokens, length - 1), choices);
  if (needed > model.kv_tokens) {
    if (!is_context || KvTokensNeeded(prompt_tokens, prompt_tokens, choices) > model.kv_tokens) {
      return absl::ResourceExhaustedError(
          absl::StrCat(choices == 1 ? "prompt and answer need " : "prompt and answers need ",
                       needed, " tokens of key and value cache, there are ", model.kv_tokens));
    }
    const int64_t shared = (prompt_tokens - 1) / kKvBlockTokens * kKvBlockTokens;
    const int64_t own = (model.kv_tokens - shared) / choices / kKvBlockTokens * kKvBlockTokens;
    length = shared + own + 1;
  }
  rules.max_length = static_cast<int>(length);
  rules.max_length_is_context = is_context;
  return absl::OkStatus();
}

absl::Status ValidateMinTokens(const v1::StopOptions& stop, int64_t prompt_tokens,
                               StopRules& rules) {
  const int64_t room = rules.max_length - prompt_tokens;
  if (stop.min_tokens() > room) {
    return FieldError(
        "stop.min_tokens",
        std::string(absl::StrCat(
            "is ", stop.min_tokens(), ", at most ", room,
            rules.max_length_is_context ? " fit the context" : " are generated: stop.max_tokens")));
  }
  rules.min_tokens = static_cast<int>(stop.min_tokens());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ValidateTimeLimit(const google::protobuf::Duration& limit) {
  constexpr int64_t kMaxSeconds = 365 * 86400;
  const bool is_valid = limit.seconds() >= 0 && limit.seconds() <= kMaxSeconds &&
                        limit.nanos() >= 0 && limit.nanos() < 1'000'000'000;
  const int64_t micros = is_valid ? limit.seconds() * 1'000'000 + limit.nanos() / 1000 : 0;
  if (!is_valid || (limit.seconds() == 0 && limit.nanos() == 0)) {
    return FieldError("stop.time_limit", "must be a valid duration above 0 and at most a year");
  }
  return micros;
}

absl::StatusOr<StopRules> ValidateStop(const v1::StopOptions& stop, const ServedModel& model,
                                       const RequestLimits& limits,
                                       const GenerationRequest& request) {
  StopRules rules;
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  VITRINE_RETURN_IF_ERROR(ValidateLength(stop, model, prompt_tokens, request.num_choices, rules));
  VITRINE_RETURN_IF_ERROR(ValidateMinTokens(stop, prompt_tokens, rules));
  VITRINE_RETURN_IF_ERROR(ValidateStopStrings(stop, limits, rules));
  if (stop.stop_token_ids_size() > limits.max_stop_token_ids) {
    return FieldError("stop.stop_token_ids",
                      std::string(absl::StrCat("at most ", limits.max_stop_token_ids, ", are ",
                                               stop.stop_token_ids_size())));
  }
  for (const uint32_t id : stop.stop_token_ids()) {
    VITRINE_RETURN_IF_ERROR(CheckTokenId("stop.stop_token_ids", id, model));
    rules.stop_token_ids.push_back(static_cast<TokenId>(id));
  }
  rules.ignore_eos = stop.ignore_eos();
  rules.eos_ids = model.tokenizer->eos_ids();
  if (rules.min_tokens > 0) {
    rules.withheld = rules.stop_token_ids;
    if (!rules.ignore_eos) {
      rules.withheld.insert(rules.withheld.end(), rules.eos_ids.begin(), rules.eos_ids.end());
    }
    std::ranges::sort(rules.withheld);
    rules.withheld.erase(std::unique(rules.withheld.begin(), rules.withheld.end()),
                         rules.withheld.end());
  }
  return rules;
}

absl::StatusOr<int> ReadAlternatives(std::string_view field, uint32_t count) {
  if (count <= kMaxTopLogprobs) return static_cast<int>(count);
  return FieldError(field,
                    std::string(absl::StrCat("must be in [0, ", kMaxTopLogprobs, "], is ", count)));
}

absl::Status ValidateOutput(const v1::OutputOptions& output, const RequestLimits& limits,
                            bool has_stop_strings, GenerationRequest& request) {
  if (output.has_logprobs()) {
    VITRINE_ASSIGN_OR_RETURN(request.output.logprobs,
                             ReadAlternatives("output.logprobs", output.logprobs()));
  }
  switch (output.logprobs_mode()) {
    case v1::LOGPROBS_MODE_UNSPECIFIED:
      break;
    case v1::LOGPROBS_MODE_RAW:
    case v1::LOGPROBS_MODE_PROCESSED:
      if (!output.has_logprobs())
        return FieldError("output.logprobs_mode", "needs output.logprobs");
      break;
    default:
      return FieldError("output.logprobs_mode", "is not a known mode");
  }
  request.output.logprobs_are_processed = output.logprobs_mode() == v1::LOGPROBS_MODE_PROCESSED;
  if (output.has_prompt_logprobs()) {
    VITRINE_ASSIGN_OR_RETURN(request.output.prompt_logprobs,
                             ReadAlternatives("output.prompt_logprobs", output.prompt_logprobs()));
  }
  if (output.has_n()) {
    if (output.n() < 1 || output.n() > static_cast<uint32_t>(kMaxChoices)) {
      return FieldError("output.n", std::string(absl::StrCat("must be in [1, ", kMaxChoices,
                                                             "], is ", output.n())));
    }
    request.num_choices = static_cast<int>(output.n());
    if (request.num_choices > limits.max_running_sequences) {
      return absl::ResourceExhaustedError(
          absl::StrCat("output.n of ", output.n(), " needs as many sequences at once, there are ",
                       limits.max_running_sequences));
    }
  }
  request.output.return_token_ids_only = output.return_token_ids_only();
  if (request.output.return_token_ids_only && has_stop_strings) {
    return FieldError("stop.stop_strings", "cannot be matched with output.return_token_ids_only");
  }
  return absl::OkStatus();
}

// All prompt log-probabilities travel in one message: what it may take is known beforehand.
absl::Status CheckPromptLogprobs(const GenerationRequest& request, const ServedModel& model,
                                 const RequestLimits& limits) {
  if (request.output.prompt_logprobs < 0) return absl::OkStatus();
  constexpr int64_t kTokenBytes = 24;        // Tags, id, logprob and rank at their longest.
  constexpr int64_t kAlternativeBytes = 20;  // The same, but for the token's bytes.
  const int64_t bytes_each =
      kTokenBytes + request.output.prompt_logprobs * (kAlternativeBytes + model.longest_token);
  const int64_t bytes = static_cast<int64_t>(request.prompt.size()) * bytes_each;
  if (bytes <= limits.max_prompt_logprobs_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("output.prompt_logprobs: ", request.prompt.size(), " tokens may take ", bytes,
                   " bytes, at most ", limits.max_prompt_logprobs_bytes, " are sent"));
}

absl::StatusOr<Encoding> EncodeText(std::string_view field, std::string_view text,
                                    bool parse_special, int64_t max_tokens,
                                    const ServedModel& model) {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return FieldError(field, std::string(absl::StrCat("invalid UTF-8 at byte ", bad)));
  }
  // Too long even if every token were the longest: not worth the tokenizer's time.
  const int64_t least = static_cast<int64_t>(text.size()) / model.longest_token;
  if (least > max_tokens) {
    return FieldError(field, std::string(absl::StrCat("has at least ", least, " tokens, at most ",
                                                      max_tokens, " can be used")));
  }
  VITRINE_ASSIGN_OR_RETURN(Encoding encoding,
                           model.tokenizer->Encode(text, {.parse_special = parse_special}));
  return encoding;
}

absl::Status ValidatePrompt(const v1::GenerateRequest& message, const ServedModel& model,
                            GenerationRequest& request) {
  using Prompt = v1::GenerateRequest::PromptCase;
  if (message.prompt_case() != Prompt::kText && message.parse_special()) {
    return FieldError("parse_special", "applies to text only");
  }
  std::vector<TokenId>& ids = request.prompt;
  switch (message.prompt_case()) {
    case Prompt::kText: {
      VITRINE_ASSIGN_OR_RETURN(
          Encoding encoding,
          EncodeText("text", message.text(), message.parse_special(), model.context_length, model));
      ids = std::move(encoding.ids);
      request.prompt_byte_offsets = std::move(encoding.byte_offsets);
      request.prompt_bytes = static_cast<int64_t>(message.text().size());
      if (ids.empty() && model.tokenizer->bos_id() >= 0) {
        ids.push_back(model.tokenizer->bos_id());
        request.prompt_byte_offsets.push_back(0);
      }
      if (ids.empty()) return FieldError("text", "is empty and the model has no begin token");
      return absl::OkStatus();
    }
    case Prompt::kTokenIds:
      if (message.token_ids().ids_size() > model.context_length) {
        return FieldError("token_ids", std::string(absl::StrCat(
                                           "has ", message.token_ids().ids_size(),
                                           " tokens, the context holds ", model.context_length)));
      }
      for (int i = 0; i < message.token_ids().ids_size(); ++i) {
        const uint32_t id = message.token_ids().ids(i);
        VITRINE_RETURN_IF_ERROR(
            CheckTokenId(std::string(absl::StrCat("token_ids.ids[", i, "]")), id, model));
        ids.push_back(static_cast<TokenId>(id));
      }
      if (ids.empty()) return FieldError("token_ids", "must not be empty");
      return absl::OkStatus();
    case Prompt::kChat: {
      VITRINE_ASSIGN_OR_RETURN(ChatPrompt prompt,
                               EncodeChat(message.chat(), model, model.context_length));
      if (prompt.encoding.ids.empty()) return FieldError("chat", "renders to an empty prompt");
      for (const ContentTokens& content : FindContents(prompt)) {
        request.role_spans.push_back(
            {.role = message.chat().messages(content.message).role(),
             .message = content.message,
             .tokens = {static_cast<int>(content.begin), static_cast<int>(content.end)}});
      }
      ids = std::move(prompt.encoding.ids);
      request.prompt_byte_offsets = std::move(prompt.encoding.byte_offsets);
      request.prompt_bytes = static_cast<int64_t>(prompt.rendered.text.size());
      return absl::OkStatus();
    }
    case Prompt::PROMPT_NOT_SET:
      break;
  }
  return FieldError("prompt", "one of text, token_ids and chat must be set");
}

absl::Status CheckClientRequestId(const std::string& id, const RequestLimits& limits) {
  const bool is_printable = std::ranges::all_of(id, [](char c) { return c >= ' ' && c <= '~'; });
  if (is_printable && static_cast<int>(id.size()) <= limits.max_client_request_id_bytes) {
    return absl::OkStatus();
  }
  return FieldError("client_request_id",
                    std::string(absl::StrCat("must be at most ", limits.max_client_request_id_bytes,
                                             " printable ASCII characters")));
}

absl::StatusOr<std::shared_ptr<const TraceSpec>> ValidateTrace(const v1::AttentionSpec& spec,
                                                               const ServedModel& model,
                                                               const GenerationRequest& request) {
  const auto prompt = static_cast<int>(request.prompt.size());
  const TraceSubject subject = {.prompt_tokens = prompt,
                                .end_row = std::max(prompt, request.stop.max_length - 1),
                                .choices = request.num_choices,
                                .byte_offsets = request.prompt_byte_offsets,
                                .prompt_bytes = request.prompt_bytes,
                                .role_spans = request.role_spans};
  VITRINE_ASSIGN_OR_RETURN(TraceSpec trace, ValidateAttention(spec, "attention", subject, model,
                                                              model.inspection_bytes));
  return std::make_shared<const TraceSpec>(std::move(trace));
}

}  // namespace

int LongestToken(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (TokenId id = 0; id < tokenizer.vocabulary(); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(id).size());
  }
  return static_cast<int>(longest);
}

absl::StatusOr<GenerationRequest> ValidateGenerate(const v1::GenerateRequest& message,
                                                   const ServedModel& model,
                                                   const RequestLimits& limits) {
  VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(message));
  VITRINE_RETURN_IF_ERROR(CheckModel(message.model(), model));
  if (message.has_attention() && model.inspection_bytes == 0) {
    return absl::FailedPreconditionError(
        "attention: inspection is off; the server's flag --allow_inspection turns it on");
  }
  GenerationRequest request;
  VITRINE_RETURN_IF_ERROR(CheckClientRequestId(message.client_request_id(), limits));
  request.client_request_id = message.client_request_id();
  if (static_cast<int>(message.cache_salt().size()) > limits.max_cache_salt_bytes) {
    return FieldError("cache_salt",
                      std::string(absl::StrCat("at most ", limits.max_cache_salt_bytes,
                                               " bytes, has ", message.cache_salt().size())));
  }
  request.cache_salt = message.cache_salt();
  request.priority = message.priority();
  VITRINE_ASSIGN_OR_RETURN(request.sampling, ValidateSampling(message.sampling(), model, limits));
  VITRINE_RETURN_IF_ERROR(
      ValidateOutput(message.output(), limits, message.stop().stop_strings_size() > 0, request));
  if (message.stop().has_time_limit()) {
    VITRINE_ASSIGN_OR_RETURN(request.time_limit_us, ValidateTimeLimit(message.stop().time_limit()));
  }
  // The tokenizer last: all else is cheap.
  VITRINE_RETURN_IF_ERROR(ValidatePrompt(message, model, request));
  VITRINE_ASSIGN_OR_RETURN(request.stop, ValidateStop(message.stop(), model, limits, request));
  VITRINE_RETURN_IF_ERROR(CheckPromptLogprobs(request, model, limits));
  VITRINE_RETURN_IF_ERROR(CheckSomeTokenIsLeft(request.sampling, request.stop, model));
  if (message.has_attention()) {
    VITRINE_ASSIGN_OR_RETURN(request.trace, ValidateTrace(message.attention(), model, request));
  }
  return request;
}

absl::StatusOr<Encoding> ValidateTokenize(const v1::TokenizeRequest& message,
                                          const ServedModel& model, size_t& text_bytes) {
  text_bytes = message.text().size();
  VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(message));
  VITRINE_RETURN_IF_ERROR(CheckModel(message.model(), model));
  switch (message.input_case()) {
    case v1::TokenizeRequest::kText:
      return EncodeText("text", message.text(), message.parse_special(),
                        std::numeric_limits<int64_t>::max(), model);
    case v1::TokenizeRequest::kChat: {
      if (message.parse_special()) return FieldError("parse_special", "applies to text only");
      VITRINE_ASSIGN_OR_RETURN(ChatPrompt prompt, EncodeChat(message.chat(), model,
                                                             std::numeric_limits<int64_t>::max()));
      text_bytes = prompt.rendered.text.size();
      return std::move(prompt.encoding);
    }
    case v1::TokenizeRequest::INPUT_NOT_SET:
      break;
  }
  return FieldError("input", "one of text and chat must be set");
}

absl::StatusOr<ChatPrompt> ValidateRenderChat(const v1::RenderChatRequest& message,
                                              const ServedModel& model) {
  VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(message));
  VITRINE_RETURN_IF_ERROR(CheckModel(message.model(), model));
  return EncodeChat(message.chat(), model, std::numeric_limits<int64_t>::max());
}

absl::StatusOr<std::string> ValidateDetokenize(const v1::DetokenizeRequest& message,
                                               const ServedModel& model) {
  VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(message));
  VITRINE_RETURN_IF_ERROR(CheckModel(message.model(), model));
  std::vector<TokenId> ids;
  for (int i = 0; i < message.token_ids_size(); ++i) {
    VITRINE_RETURN_IF_ERROR(
        CheckTokenId(std::string(absl::StrCat("token_ids[", i, "]")), message.token_ids(i), model));
    ids.push_back(static_cast<TokenId>(message.token_ids(i)));
  }
  return model.tokenizer->Decode(ids);
}

std::vector<std::string> SupportedRequestFields() {
  return {"model",
          "text",
          "token_ids",
          "chat",
          "sampling.temperature",
          "sampling.top_k",
          "sampling.top_p",
          "sampling.min_p",
          "sampling.typical_p",
          "sampling.repetition_penalty",
          "sampling.presence_penalty",
          "sampling.frequency_penalty",
          "sampling.penalty_window",
          "sampling.logit_bias",
          "sampling.allowed_token_ids",
          "sampling.banned_token_ids",
          "sampling.seed",
          "stop.max_tokens",
          "stop.min_tokens",
          "stop.stop_strings",
          "stop.include_stop_string",
          "stop.stop_token_ids",
          "stop.ignore_eos",
          "stop.time_limit",
          "output.logprobs",
          "output.logprobs_mode",
          "output.prompt_logprobs",
          "output.n",
          "output.return_token_ids_only",
          "output.return_prompt_token_ids",
          "priority",
          "cache_salt",
          "client_request_id",
          "parse_special"};
}

}  // namespace vitrine::server
