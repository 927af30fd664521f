// The sampling part of ValidateGenerate.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/options.h"
#include "server/request.h"
#include "server/served_model.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::server {

// INVALID_ARGUMENT names the field. A seed that is unset is drawn.
absl::StatusOr<SamplingParams> ValidateSampling(const v1::SamplingOptions& sampling,
                                                const ServedModel& model,
                                                const RequestLimits& limits);

// INVALID_ARGUMENT where bans, allowed ids and what min_tokens withholds leave no token to draw.
absl::Status CheckSomeTokenIsLeft(const SamplingParams& sampling, const StopRules& stop,
                                  const ServedModel& model);

absl::Status CheckTokenId(std::string_view field, uint32_t id, const ServedModel& model);

}  // namespace vitrine::server
