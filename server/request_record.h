// What is kept of one request for those who look at it later: enough to compute it again. Written
// by the RPC thread that made it, the engine and delivery; read by anyone. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "server/request.h"
#include "server/token_sink.h"

namespace vitrine::server {

// A point of a request's life.
struct HistoryEvent {
  // Numbered as on the wire.
  enum class Kind {
    kQueued = 1,
    kAdmitted = 2,
    kPrefillChunk = 3,
    kFirstToken = 4,
    kPreempted = 5,
    kEnded = 6,
  };
  Kind kind = Kind::kQueued;
  int64_t at_us = 0;  // Since arrival.
  int tokens = 0;
  int batch_size = 0;
};

class RequestRecord {
 public:
  struct Choice {
    std::vector<TokenId> ids;            // Delivered.
    std::vector<uint32_t> byte_offsets;  // [ids + 1]
    FinishReason reason = FinishReason::kUnspecified;
    // At most two rows: the last of the prompt, and the last that chose a token.
    std::vector<RowCertificate> certificates;
  };

  // One consistent look.
  struct View {
    std::vector<Choice> choices;
    std::vector<HistoryEvent> history;
    std::optional<AnswerEnd> end;  // Unset while it lives.
    bool has_started = false;
  };

  // Copies what is kept of `request`.
  RequestRecord(std::string request_id, const GenerationRequest& request,
                std::chrono::system_clock::time_point arrival);

  const std::string& id() const { return id_; }
  const GenerationRequest& request() const { return request_; }  // Without its trace.
  std::chrono::system_clock::time_point arrived() const { return arrived_; }

  void AddEvent(const HistoryEvent& event);
  // The row that chose the token behind it.
  void KeepRow(int choice, int position, std::span<const float> log_sum_exp);
  // The ids delivered so far; those that are new are kept. `tokenizer` tells their bytes.
  void AddTokens(int choice, std::span<const TokenId> ids, const Tokenizer& tokenizer);
  void EndChoice(const ChoiceEnd& end);
  void End(const AnswerEnd& end);

  View Look() const;
  // Roughly what it occupies.
  int64_t bytes() const;

 private:
  const std::string id_;
  const GenerationRequest request_;
  const std::chrono::system_clock::time_point arrived_;

  mutable std::mutex mutex_;
  View view_;  // Guarded by mutex_.
};

}  // namespace vitrine::server
