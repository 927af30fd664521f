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
#include "model/token_logprobs.h"
#include "server/clock.h"
#include "server/trace_credit.h"
#include "server/trace_spec.h"

namespace vitrine::server {

struct SamplingParams {
  float temperature = 0.0f;
  int32_t top_k = 0;  // 0: off.
  float typical_p = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int penalty_window = -1;  // Most recent tokens that the penalties see; -1: all.
  // Lists hold no id twice.
  std::vector<TokenBias> logit_bias = {};
  std::vector<TokenId> allowed = {};  // Empty: all.
  std::vector<TokenId> banned = {};
  uint64_t seed = 0;

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

struct StopRules {
  // Length of prompt and answer together at which the answer ends; at least the prompt's. Equal to
  // it: prefill only.
  int max_length = 0;
  bool max_length_is_context = false;  // CONTEXT_FULL rather than MAX_TOKENS at max_length.
  int min_tokens = 0;                  // Nothing else ends the answer before it has so many.
  bool ignore_eos = false;
  std::vector<TokenId> eos_ids;
  std::vector<TokenId> stop_token_ids;
  std::vector<TokenId>
      withheld;  // Never drawn before min_tokens, as they would end it; no id twice.
  std::vector<std::string> stop_strings;
  bool include_stop_string = false;
};

// Answers to one prompt.
inline constexpr int kMaxChoices = 8;

struct OutputRules {
  bool return_token_ids_only = false;
  int logprobs = -1;  // Alternatives per token of the answer; -1: no log-probabilities.
  bool logprobs_are_processed = false;
  int prompt_logprobs = -1;  // Alternatives per token of the prompt; -1: no log-probabilities.
};

// The tokens of one turn of a chat prompt.
struct PromptRoleSpan {
  std::string role;
  int message = 0;  // Index.
  KeyRange tokens;  // Those that hold a byte of its content.
};

// The log-sum-exp of the attention of one row, as the engine first computed it.
struct RowCertificate {
  int position = 0;
  std::vector<float> log_sum_exp;  // [layers, num_heads]
};

struct GenerationRequest {
  std::vector<TokenId> prompt;
  // Of prompts with text: first byte per token, and length. Empty: given as ids.
  std::vector<uint32_t> prompt_byte_offsets;
  int64_t prompt_bytes = 0;
  std::vector<PromptRoleSpan> role_spans;  // Of chat prompts.
  std::shared_ptr<const TraceSpec> trace;  // Null: nobody asks for attention.
  int num_choices = 1;                     // Choice i draws from (seed, i, position).
  SamplingParams sampling;
  StopRules stop;
  OutputRules output;
  int priority = 0;               // Higher goes first.
  std::string cache_salt;         // Partition of the prefix cache, within the caller's own.
  std::string client_request_id;  // For the log and the archive only.
  std::string caller;             // Whose request it is; empty where callers have no identity.
  // Of a replay: rows whose log-sum-exp is compared with what was kept. Empty: not a replay.
  std::vector<RowCertificate> certificates;
  int64_t arrival_us = 0;          // Monotonic, as the two below.
  int64_t deadline_us = kNever;    // Then it has expired: no answer.
  int64_t time_limit_us = kNever;  // Then it ends with what it has.
};

// How a choice, and so its request, leaves the server: exactly one of these. A request whose
// choices differ takes the last of them in this order.
enum class Ending { kFinished, kShutDown, kCancelled, kExpired, kFailed, kDeviceFailed };

// What clients are told from then on.
inline constexpr char kDeviceFailedText[] = "the device that computes failed";

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

// What happened to a request, all choices together, and when.
struct Timeline {
  int64_t queue_us = 0;    // Arrival to first step.
  int64_t prefill_us = 0;  // First step to first token.
  int64_t decode_us = 0;   // First token to last.
  int cached_prompt_tokens = 0;
  int prefill_chunks = 0;
  int preemptions = 0;
  int steps = 0;               // That held at least one of its choices.
  int64_t step_sequences = 0;  // Sum over its steps of the sequences in the step.
  int64_t longest_step_us = 0;

  double mean_batch_size() const {
    return steps == 0 ? 0.0 : static_cast<double>(step_sequences) / steps;
  }
};

// How the engine saw one choice end.
struct ChoiceEnding {
  Ending ending = Ending::kFinished;
  FinishReason reason = FinishReason::kUnspecified;
  TokenId stop_token = -1;  // With kEos and kStopToken.
};

class TokenSink;
class AnswerSet;
class RequestRecord;
class RequestTrace;
struct TracedStep;

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
  // of a choice (one bit each) is complete because a stop string matched; a choice failed, and with
  // it the request.
  std::atomic<bool> cancelled = false;
  std::atomic<uint32_t> text_stops = 0;
  std::atomic<bool> failed = false;

  // Where its history is kept; null: nowhere. Set before it is queued. Thread-safe.
  std::shared_ptr<RequestRecord> record;

  // With request.trace: what is on its way to its reader.
  std::shared_ptr<TraceCredit> trace_credit;

  // Engine thread until the end of the choice, or of all for the timeline, is posted to delivery;
  // delivery thread from then on.
  std::vector<ChoiceEnding> endings;  // [num_choices]
  Timeline timeline;

  // Engine thread. Times are monotonic; -1: not yet.
  struct Progress {
    int64_t first_step_us = -1;
    int64_t first_token_us = -1;
    int64_t last_token_us = -1;
    int64_t last_step = -1;          // Number of the last step that held one of its choices,
    int64_t last_prefill_step = -1;  // and of the last that computed a part of its prompt.
    int open_choices = 0;            // Without an end.
  };
  Progress progress;

  // Delivery thread.
  std::shared_ptr<TokenSink> sink;
  std::unique_ptr<AnswerSet> answers;
  std::unique_ptr<RequestTrace> trace;
};

// What the engine tells delivery: a token of a choice, or its end, or rows of its attention. Per
// choice: tokens in order, the rows that led to them before them, then one end.
struct StepEvent {
  std::shared_ptr<ActiveRequest> request = {};
  int choice = 0;
  TokenId token = -1;
  std::unique_ptr<TokenLogprobs> logprobs = {};  // Of the token, where they were asked for.
  // Of the prompt's tokens but the first, instead of a token; before every token.
  std::unique_ptr<std::vector<TokenLogprobs>> prompt_logprobs = {};
  bool is_end = false;
  std::shared_ptr<TracedStep> traced = {};  // Then neither a token nor an end.
};

}  // namespace vitrine::server
