// A kept request computed again for its attention: the tokens are known, so it is one prefill per
// choice, which finds in the prefix cache what is still there of it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/request.h"
#include "server/request_record.h"
#include "server/served_model.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::server {

// Served behind everything else.
inline constexpr int kReplayPriority = INT32_MIN;

// What to compute, one request per choice that has rows to show; none: there is nothing. Errors are
// those of ValidateAttention, with the path "spec"; the size is that of all choices together.
absl::StatusOr<std::vector<GenerationRequest>> PlanReplay(const v1::AttentionSpec& spec,
                                                          const RequestRecord& record,
                                                          const ServedModel& model);

}  // namespace vitrine::server
