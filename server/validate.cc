#include "server/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "google/protobuf/unknown_field_set.h"
#include "model/detokenizer.h"
#include "model/kv_cache.h"
#include "model/status.h"
#include "server/field_error.h"

namespace vitrine::server {
namespace {

constexpr std::string_view kNotYet = "is not supported yet";

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

struct FloatRange {
  float low = 0;
  float high = 0;
  bool has_low = true;  // The bound itself is allowed.
  bool has_high = true;
};

absl::Status CheckFloat(std::string_view field, float value, const FloatRange& range) {
  // Written so that NaN fails.
  const bool above = range.has_low ? value >= range.low : value > range.low;
  const bool below = range.has_high ? value <= range.high : value < range.high;
  if (above && below) return absl::OkStatus();
  return FieldError(
      field, std::string(absl::StrCat("must be in ", range.has_low ? "[" : "(", range.low, ", ",
                                      range.high, range.has_high ? "]" : ")", ", is ", value)));
}

// Options that this version can only honour at the value that changes nothing.
absl::Status CheckNeutral(std::string_view field, float value, float neutral,
                          const FloatRange& range) {
  VITRINE_RETURN_IF_ERROR(CheckFloat(field, value, range));
  return value == neutral ? absl::OkStatus() : FieldError(field, kNotYet);
}

absl::Status CheckTokenId(std::string_view field, uint32_t id, const ServedModel& model) {
  if (id < static_cast<uint32_t>(model.vocabulary)) return absl::OkStatus();
  return FieldError(field,
                    std::string(absl::StrCat("token id ", id, " is not below the vocabulary of ",
                                             model.vocabulary)));
}

absl::Status CheckUnsupportedSampling(const v1::SamplingOptions& sampling) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (sampling.has_typical_p()) {
    VITRINE_RETURN_IF_ERROR(
        CheckNeutral("sampling.typical_p", sampling.typical_p(), 1.0f, {0, 1, false}));
  }
  if (sampling.has_repetition_penalty()) {
    VITRINE_RETURN_IF_ERROR(CheckNeutral("sampling.repetition_penalty",
                                         sampling.repetition_penalty(), 1.0f,
                                         {0, kInfinity, false, false}));
  }
  if (sampling.has_presence_penalty()) {
    VITRINE_RETURN_IF_ERROR(
        CheckNeutral("sampling.presence_penalty", sampling.presence_penalty(), 0.0f, {-2, 2}));
  }
  if (sampling.has_frequency_penalty()) {
    VITRINE_RETURN_IF_ERROR(
        CheckNeutral("sampling.frequency_penalty", sampling.frequency_penalty(), 0.0f, {-2, 2}));
  }
  if (sampling.has_penalty_window() && sampling.penalty_window() != -1) {
    return FieldError("sampling.penalty_window", kNotYet);
  }
  if (sampling.logit_bias_size() > 0) return FieldError("sampling.logit_bias", kNotYet);
  if (sampling.allowed_token_ids_size() > 0) {
    return FieldError("sampling.allowed_token_ids", kNotYet);
  }
  if (sampling.banned_token_ids_size() > 0) {
    return FieldError("sampling.banned_token_ids", kNotYet);
  }
  return absl::OkStatus();
}

uint64_t FreshSeed() {
  std::random_device entropy;
  return (uint64_t{entropy()} << 32) | entropy();
}

absl::StatusOr<SamplingParams> ValidateSampling(const v1::SamplingOptions& sampling,
                                                const ServedModel& model) {
  VITRINE_RETURN_IF_ERROR(CheckUnsupportedSampling(sampling));
  SamplingParams params;
  params.top_k = std::min(model.sampling.top_k.value_or(0), model.vocabulary);
  params.top_p = model.sampling.top_p.value_or(1.0f);
  params.min_p = model.sampling.min_p.value_or(0.0f);
  params.temperature = sampling.has_temperature() ? sampling.temperature()
                                                  : model.sampling.temperature.value_or(1.0f);
  VITRINE_RETURN_IF_ERROR(CheckFloat("sampling.temperature", params.temperature, {0, 100}));
  if (sampling.has_top_k()) {
    if (sampling.top_k() < -1) {
      return FieldError("sampling.top_k",
                        std::string(absl::StrCat("must be at least -1, is ", sampling.top_k())));
    }
    params.top_k = std::clamp(sampling.top_k(), 0, model.vocabulary);
  }
  if (sampling.has_top_p()) {
    params.top_p = sampling.top_p();
    VITRINE_RETURN_IF_ERROR(CheckFloat("sampling.top_p", params.top_p, {0, 1, false}));
  }
  if (sampling.has_min_p()) {
    params.min_p = sampling.min_p();
    VITRINE_RETURN_IF_ERROR(CheckFloat("sampling.min_p", params.min_p, {0, 1, true, false}));
  }
  params.seed = sampling.has_seed() ? sampling.seed() : FreshSeed();
  return params;
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
  VITRINE_RETURN_IF_ERROR(ValidateLength(stop, model, static_cast<int64_t>(request.prompt.size()),
                                         request.num_choices, rules));
  if (stop.has_min_tokens() && stop.min_tokens() != 0)
    return FieldError("stop.min_tokens", kNotYet);
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
  return rules;
}

absl::Status ValidateOutput(const v1::OutputOptions& output, const RequestLimits& limits,
                            bool has_stop_strings, GenerationRequest& request) {
  if (output.has_logprobs()) return FieldError("output.logprobs", kNotYet);
  if (output.logprobs_mode() != v1::LOGPROBS_MODE_UNSPECIFIED) {
    return FieldError("output.logprobs_mode", kNotYet);
  }
  if (output.has_prompt_logprobs()) return FieldError("output.prompt_logprobs", kNotYet);
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
  request.return_token_ids_only = output.return_token_ids_only();
  if (request.return_token_ids_only && has_stop_strings) {
    return FieldError("stop.stop_strings", "cannot be matched with output.return_token_ids_only");
  }
  return absl::OkStatus();
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

absl::StatusOr<std::vector<TokenId>> ValidatePrompt(const v1::GenerateRequest& message,
                                                    const ServedModel& model) {
  using Prompt = v1::GenerateRequest::PromptCase;
  if (message.prompt_case() != Prompt::kText && message.parse_special()) {
    return FieldError("parse_special", "applies to text only");
  }
  std::vector<TokenId> ids;
  switch (message.prompt_case()) {
    case Prompt::kText: {
      VITRINE_ASSIGN_OR_RETURN(
          Encoding encoding,
          EncodeText("text", message.text(), message.parse_special(), model.context_length, model));
      ids = std::move(encoding.ids);
      if (ids.empty() && model.tokenizer->bos_id() >= 0) ids.push_back(model.tokenizer->bos_id());
      if (ids.empty()) return FieldError("text", "is empty and the model has no begin token");
      return ids;
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
      return ids;
    case Prompt::kChat:
      return FieldError("chat", kNotYet);
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
  if (message.has_attention()) {
    return absl::FailedPreconditionError("attention: inspection is off");
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
  VITRINE_ASSIGN_OR_RETURN(request.sampling, ValidateSampling(message.sampling(), model));
  VITRINE_RETURN_IF_ERROR(
      ValidateOutput(message.output(), limits, message.stop().stop_strings_size() > 0, request));
  if (message.stop().has_time_limit()) {
    VITRINE_ASSIGN_OR_RETURN(request.time_limit_us, ValidateTimeLimit(message.stop().time_limit()));
  }
  // The tokenizer last: all else is cheap.
  VITRINE_ASSIGN_OR_RETURN(request.prompt, ValidatePrompt(message, model));
  VITRINE_ASSIGN_OR_RETURN(request.stop, ValidateStop(message.stop(), model, limits, request));
  return request;
}

absl::StatusOr<Encoding> ValidateTokenize(const v1::TokenizeRequest& message,
                                          const ServedModel& model) {
  VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(message));
  VITRINE_RETURN_IF_ERROR(CheckModel(message.model(), model));
  switch (message.input_case()) {
    case v1::TokenizeRequest::kText:
      return EncodeText("text", message.text(), message.parse_special(),
                        std::numeric_limits<int64_t>::max(), model);
    case v1::TokenizeRequest::kChat:
      return FieldError("chat", kNotYet);
    case v1::TokenizeRequest::INPUT_NOT_SET:
      break;
  }
  return FieldError("input", "one of text and chat must be set");
}

absl::StatusOr<std::string> ValidateDetokenize(const v1::DetokenizeRequest& message,
                                               const ServedModel& model) {
  VITRINE_RETURN_IF_ERROR(CheckNoUnknownFields(message));
  VITRINE_RETURN_IF_ERROR(CheckModel(message.model(), model));
  std::string bytes;
  for (int i = 0; i < message.token_ids_size(); ++i) {
    VITRINE_RETURN_IF_ERROR(
        CheckTokenId(std::string(absl::StrCat("token_ids[", i, "]")), message.token_ids(i), model));
    bytes += model.tokenizer->TokenBytes(static_cast<TokenId>(message.token_ids(i)));
  }
  return bytes;
}

std::vector<std::string> SupportedRequestFields() {
  return {"model",
          "text",
          "token_ids",
          "sampling.temperature",
          "sampling.top_k",
          "sampling.top_p",
          "sampling.min_p",
          "sampling.seed",
          "stop.max_tokens",
          "stop.stop_strings",
          "stop.include_stop_string",
          "stop.stop_token_ids",
          "stop.ignore_eos",
          "stop.time_limit",
          "output.n",
          "output.return_token_ids_only",
          "output.return_prompt_token_ids",
          "priority",
          "cache_salt",
          "client_request_id",
          "parse_special"};
}

}  // namespace vitrine::server
