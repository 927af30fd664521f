// Checks what the protocol promises of a stream, so that a lost or doubled message is never taken
// for an answer.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// One per stream; not thread-safe.
class StreamCheck {
 public:
  // DATA_LOSS names the broken promise: Accepted first, sequence numbers without gaps, positions
  // without gaps, the hash of all token ids in Done, nothing after it.
  absl::Status Add(const v1::GenerateEvent& event);

  // For a stream that ended with OK: DATA_LOSS when Done has not come.
  absl::Status End() const;

 private:
  absl::Status AddTokens(const v1::Tokens& tokens);
  uint64_t TokenHash() const;

  uint64_t next_sequence_number_ = 0;
  uint32_t prompt_tokens_ = 0;
  bool done_ = false;
  std::map<uint32_t, std::vector<uint32_t>> choices_;  // Token ids by choice.
};

}  // namespace vitrine::client
