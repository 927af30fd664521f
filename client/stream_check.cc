#include "client/stream_check.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

absl::Status StreamCheck::Add(const v1::GenerateEvent& event) {
  if (event.sequence_number() != next_sequence_number_) {
    return absl::DataLossError(absl::StrCat("message ", next_sequence_number_,
                                            " of the stream is missing; got message ",
                                            event.sequence_number()));
  }
  if (done_) return absl::DataLossError("the stream goes on after its last message");
  if ((event.event_case() == v1::GenerateEvent::kAccepted) != (next_sequence_number_ == 0)) {
    return absl::DataLossError("the stream does not begin with exactly one Accepted");
  }
  ++next_sequence_number_;
  if (event.has_accepted()) prompt_tokens_ = event.accepted().prompt_token_count();
  if (event.has_tokens()) return AddTokens(event.tokens());
  if (event.has_done()) {
    done_ = true;
    if (event.done().token_hash() != TokenHash()) {
      return absl::DataLossError("the tokens received are not those that the server sent");
    }
  }
  return absl::OkStatus();
}

absl::Status StreamCheck::AddTokens(const v1::Tokens& tokens) {
  for (const v1::Token& token : tokens.tokens()) {
    std::vector<uint32_t>& ids = choices_[token.choice()];
    const uint64_t expected = uint64_t{prompt_tokens_} + ids.size();
    if (token.position() != expected) {
      return absl::DataLossError(absl::StrCat("choice ", token.choice(), ": token at position ",
                                              token.position(), " instead of ", expected));
    }
    ids.push_back(token.id());
  }
  return absl::OkStatus();
}

absl::Status StreamCheck::End() const {
  return done_ ? absl::OkStatus()
               : absl::DataLossError("the stream ended without its last message");
}

uint64_t StreamCheck::TokenHash() const {
  // FNV-1a, 64 bits.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& [choice, ids] : choices_) {
    for (const uint32_t id : ids) {
      for (int shift = 0; shift < 32; shift += 8) {
        hash = (hash ^ ((id >> shift) & 0xffu)) * 0x100000001b3u;
      }
    }
  }
  return hash;
}

}  // namespace vitrine::client
