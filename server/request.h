// A generation request in native form: already valid, no protobuf, ids instead of text.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/batch.h"
#include "server/clock.h"

namespace vitrine::server {

struct SamplingParams {
  float temperature = 0.0f;
  int32_t top_k = 0;  // 0: off.
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
};

struct StopRules {
  // Length of prompt and answer together at which the answer ends; at least the prompt's. Equal to
  // it: prefill only.
  int max_length = 0;
  bool max_length_is_context = false;  // CONTEXT_FULL rather than MAX_TOKENS at max_length.
  bool ignore_eos = false;
  std::vector<TokenId> eos_ids;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool include_stop_string = false;
};

struct GenerationRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  StopRules stop;
  int priority = 0;               // Higher goes first.
  std::string cache_salt;         // Partition of the prefix cache.
  std::string client_request_id;  // For the log only.
  bool return_token_ids_only = false;
  int64_t arrival_us = 0;          // Monotonic, as the two below.
  int64_t deadline_us = kNever;    // Then it has expired: no answer.
  int64_t time_limit_us = kNever;  // Then it ends with what it has.
};

// How a request leaves the server: exactly one of these.
enum class Ending { kFinished, kCancelled, kExpired, kShutDown, kFailed };

// Why an answer that is kFinished (or kShutDown) is complete; numbered as on the wire.
enum class FinishReason {
  kUnspecified = 0,
  kEos = 1,
  kStopToken = 2,
  kStopString = 3,
  kMaxTokens = 4,
  kContextFull = 5,
  kTimeLimit = 6,
  kShutdown = 7,
};

// What happened to a request, and when. The engine thread writes it until the request has ended.
struct Timeline {
  int64_t queue_us = 0;    // Arrival to first step.
  int64_t prefill_us = 0;  // First step to first token.
  int64_t decode_us = 0;   // First token to last.
  int cached_prompt_tokens = 0;
  int prefill_chunks = 0;
  int preemptions = 0;
  int steps = 0;
  int64_t step_sequences = 0;  // Sum over its steps of the sequences in the step.

  double mean_batch_size() const {
    return steps == 0 ? 0.0 : static_cast<double>(step_sequences) / steps;
  }
};

struct RequestEnd {
  Ending ending = Ending::kFinished;
  FinishReason reason = FinishReason::kUnspecified;
  TokenId stop_token = -1;  // With kEos and kStopToken.
  Timeline timeline = {};
};

class TokenSink;
class AnswerAssembler;

// A request from acceptance to its end, shared by the three threads.
struct ActiveRequest {
  ActiveRequest(std::string request_id, GenerationRequest valid_request,
                std::shared_ptr<TokenSink> consumer);
  ~ActiveRequest();
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  const std::string id;
  const GenerationRequest request;

  // All that travels backwards, read by the engine between steps: the client is gone; the answer
  // is complete because a stop string matched.
  std::atomic<bool> cancelled = false;
  std::atomic<bool> text_stop = false;

  // Engine thread until the end is posted to delivery, delivery thread from then on.
  RequestEnd end;

  // Delivery thread.
  std::shared_ptr<TokenSink> sink;
  std::unique_ptr<AnswerAssembler> assembler;
};

// What the engine tells delivery: a token of an answer, or its end. Per request: tokens in order,
// then one end.
struct StepEvent {
  std::shared_ptr<ActiveRequest> request = {};
  TokenId token = -1;
  bool is_end = false;
};

}  // namespace vitrine::server
