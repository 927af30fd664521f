// The narrow interface through which the server computes: one step at a time, ids in, ids out.
// Abstract, so that the engine is tested with a model that is a hash of its history.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "model/batch.h"
#include "model/token_logprobs.h"

namespace vitrine {

struct RunnerLimits {
  int max_step_rows = 0;       // Rows of one step.
  int max_step_sequences = 0;  // Sequences, and sampled rows, of one step.
  int num_blocks = 0;          // KV blocks of kKvBlockTokens tokens.
  int context_length = 0;      // Tokens of one sequence, prompt and answer together.
  int vocabulary = 0;
  bool runs_ahead = false;  // Whether it is worth saying which sequences continue.
  // Of inspection; 0 where it is off.
  int max_traced_rows = 0;  // Rows of Batch::traces in one step.
  int num_layers = 0;
  int num_heads = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;

  virtual const RunnerLimits& limits() const = 0;

  // Computes the batch, which is within limits(), and writes one token per sampled row to `next`
  // ([batch.sampling.size()]; kNoToken where the logits were not finite). Blocks until the tokens
  // are known; the next step of batch.continuing may be under way then. Only the engine thread
  // calls it.
  virtual void Step(const Batch& batch, std::span<TokenId> next) = 0;

  // Of the last step's batch.logprobs, one each; valid until the next step. Those of a sample
  // without a token mean nothing.
  virtual std::span<const TokenLogprobs> logprobs() const = 0;
  // The same of batch.scored.
  virtual std::span<const TokenLogprobs> prompt_logprobs() const = 0;

  // After a Step and before the next, with its batch: appends what batch.traces asks for, in the
  // order of traces, and writes the log-sum-exp of batch.certified_rows to `values`, [certified,
  // layers, num_heads]. Only with max_traced_rows above 0.
  virtual void ReadAttention(const Batch& batch, std::vector<AttentionPiece>& pieces) = 0;
  virtual void ReadLogSumExp(const Batch& batch, std::span<float> values) = 0;

  // Not OK once the device has failed (see Backend::status): what Step has written since is
  // garbage. Any thread.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

}  // namespace vitrine
