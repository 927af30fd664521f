#include "server/validate_sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/status.h"
#include "server/field_error.h"

namespace vitrine::server {
namespace {

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

// Keeps `fallback` where the field is unset.
absl::StatusOr<float> ReadFloat(std::string_view field, bool is_set, float value, float fallback,
                                const FloatRange& range) {
  if (!is_set) return fallback;
  VITRINE_RETURN_IF_ERROR(CheckFloat(field, value, range));
  return value;
}

absl::Status ReadFilters(const v1::SamplingOptions& sampling, const ServedModel& model,
                         SamplingParams& params) {
  if (sampling.has_temperature()) params.temperature = sampling.temperature();
  VITRINE_RETURN_IF_ERROR(CheckFloat("sampling.temperature", params.temperature, {0, 100}));
  if (sampling.has_top_k()) {
    if (sampling.top_k() < -1) {
      return FieldError("sampling.top_k",
                        std::string(absl::StrCat("must be at least -1, is ", sampling.top_k())));
    }
    params.top_k = std::clamp(sampling.top_k(), 0, model.vocabulary);
  }
  VITRINE_ASSIGN_OR_RETURN(params.typical_p,
                           ReadFloat("sampling.typical_p", sampling.has_typical_p(),
                                     sampling.typical_p(), params.typical_p, {0, 1, false}));
  VITRINE_ASSIGN_OR_RETURN(params.top_p, ReadFloat("sampling.top_p", sampling.has_top_p(),
                                                   sampling.top_p(), params.top_p, {0, 1, false}));
  VITRINE_ASSIGN_OR_RETURN(params.min_p,
                           ReadFloat("sampling.min_p", sampling.has_min_p(), sampling.min_p(),
                                     params.min_p, {0, 1, true, false}));
  return absl::OkStatus();
}

absl::Status ReadPenalties(const v1::SamplingOptions& sampling, SamplingParams& params) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  VITRINE_ASSIGN_OR_RETURN(
      params.repetition_penalty,
      ReadFloat("sampling.repetition_penalty", sampling.has_repetition_penalty(),
                sampling.repetition_penalty(), params.repetition_penalty,
                {0, kInfinity, false, false}));
  VITRINE_ASSIGN_OR_RETURN(
      params.presence_penalty,
      ReadFloat("sampling.presence_penalty", sampling.has_presence_penalty(),
                sampling.presence_penalty(), params.presence_penalty, {-2, 2}));
  VITRINE_ASSIGN_OR_RETURN(
      params.frequency_penalty,
      ReadFloat("sampling.frequency_penalty", sampling.has_frequency_penalty(),
                sampling.frequency_penalty(), params.frequency_penalty, {-2, 2}));
  if (sampling.has_penalty_window()) {
    if (sampling.penalty_window() != -1 && sampling.penalty_window() < 1) {
      return FieldError(
          "sampling.penalty_window",
          std::string(absl::StrCat("must be -1 or at least 1, is ", sampling.penalty_window())));
    }
    params.penalty_window = sampling.penalty_window();
  }
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const v1::SamplingOptions& sampling, const ServedModel& model,
                           const RequestLimits& limits, SamplingParams& params) {
  constexpr std::string_view kField = "sampling.logit_bias";
  if (sampling.logit_bias_size() > limits.max_logit_biases) {
    return FieldError(
        kField, std::string(absl::StrCat("at most ", limits.max_logit_biases, " entries, are ",
                                         sampling.logit_bias_size())));
  }
  for (const v1::LogitBias& entry : sampling.logit_bias()) {
    VITRINE_RETURN_IF_ERROR(CheckTokenId(kField, entry.token_id(), model));
    if (!std::isfinite(entry.bias())) {
      return FieldError(kField, std::string(absl::StrCat("bias of token ", entry.token_id(),
                                                         " must be finite, is ", entry.bias())));
    }
    params.logit_bias.push_back(
        {.token_id = static_cast<TokenId>(entry.token_id()), .bias = entry.bias()});
  }
  std::ranges::sort(params.logit_bias, {}, &TokenBias::token_id);
  const auto twice = std::ranges::adjacent_find(params.logit_bias, {}, &TokenBias::token_id);
  if (twice == params.logit_bias.end()) return absl::OkStatus();
  return FieldError(kField, std::string(absl::StrCat("token ", twice->token_id, " comes twice")));
}

// Ids in ascending order, each once.
absl::StatusOr<std::vector<TokenId>> ReadIds(std::string_view field,
                                             const google::protobuf::RepeatedField<uint32_t>& ids,
                                             const ServedModel& model) {
  if (ids.size() > model.vocabulary) {
    return FieldError(
        field, std::string(absl::StrCat("at most ", model.vocabulary, " ids, are ", ids.size())));
  }
  std::vector<TokenId> read;
  for (const uint32_t id : ids) {
    VITRINE_RETURN_IF_ERROR(CheckTokenId(field, id, model));
    read.push_back(static_cast<TokenId>(id));
  }
  std::ranges::sort(read);
  read.erase(std::unique(read.begin(), read.end()), read.end());
  return read;
}

// What the model's makers advise; otherwise what changes nothing.
SamplingParams Defaults(const ServedModel& model) {
  const SamplingDefaults& advised = model.sampling;
  SamplingParams params;
  params.temperature = advised.temperature.value_or(1.0f);
  params.top_k = std::min(advised.top_k.value_or(0), model.vocabulary);
  params.typical_p = advised.typical_p.value_or(params.typical_p);
  params.top_p = advised.top_p.value_or(params.top_p);
  params.min_p = advised.min_p.value_or(params.min_p);
  params.repetition_penalty = advised.repetition_penalty.value_or(params.repetition_penalty);
  return params;
}

uint64_t FreshSeed() {
  std::random_device entropy;
  return (uint64_t{entropy()} << 32) | entropy();
}

}  // namespace

absl::StatusOr<SamplingParams> ValidateSampling(const v1::SamplingOptions& sampling,
                                                const ServedModel& model,
                                                const RequestLimits& limits) {
  SamplingParams params = Defaults(model);
  VITRINE_RETURN_IF_ERROR(ReadFilters(sampling, model, params));
  VITRINE_RETURN_IF_ERROR(ReadPenalties(sampling, params));
  VITRINE_RETURN_IF_ERROR(ReadLogitBias(sampling, model, limits, params));
  VITRINE_ASSIGN_OR_RETURN(
      params.allowed, ReadIds("sampling.allowed_token_ids", sampling.allowed_token_ids(), model));
  VITRINE_ASSIGN_OR_RETURN(
      params.banned, ReadIds("sampling.banned_token_ids", sampling.banned_token_ids(), model));
  params.seed = sampling.has_seed() ? sampling.seed() : FreshSeed();
  return params;
}

absl::Status CheckSomeTokenIsLeft(const SamplingParams& sampling, const StopRules& stop,
                                  const ServedModel& model) {
  const auto is_left = [&](TokenId id) {
    return !std::ranges::binary_search(sampling.banned, id) &&
           !std::ranges::binary_search(stop.withheld, id);
  };
  bool any = false;
  if (sampling.allowed.empty()) {
    const size_t most = sampling.banned.size() + stop.withheld.size();
    any = most < static_cast<size_t>(model.vocabulary);
    for (TokenId id = 0; !any && id < model.vocabulary; ++id) any = is_left(id);
  } else {
    any = std::ranges::any_of(sampling.allowed, is_left);
  }
  if (any) return absl::OkStatus();
  if (!stop.withheld.empty()) {
    return FieldError("stop.min_tokens", "no token is left that does not end the answer");
  }
  return FieldError(
      sampling.allowed.empty() ? "sampling.banned_token_ids" : "sampling.allowed_token_ids",
      "no token is left");
}

absl::Status CheckTokenId(std::string_view field, uint32_t id, const ServedModel& model) {
  if (id < static_cast<uint32_t>(model.vocabulary)) return absl::OkStatus();
  return FieldError(field,
                    std::string(absl::StrCat("token id ", id, " is not below the vocabulary of ",
                                             model.vocabulary)));
}

}  // namespace vitrine::server
