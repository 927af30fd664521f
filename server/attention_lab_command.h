// The offline command attention-lab: no model, no server.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vitrine::server {

// A flag of the lab that was set; empty: none. For other commands, which have to refuse it.
std::string LabFlagInUse();

// `arguments`: the name of an example, or nothing. Prints steps, the sweep or a quiz as the flags
// say; without any argument or flag it takes commands on standard input. INVALID_ARGUMENT names the
// flag and the rule.
absl::Status RunAttentionLab(const std::vector<std::string>& arguments, bool json);

}  // namespace vitrine::server
