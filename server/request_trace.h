// The trace of one request on its way out: holds rows back until the token that they led to is out,
// and turns them into chunks. Delivery thread only.
//
// The row of a generated token exists for the consumer exactly when the token that it predicted
// does; what the engine computed past a text stop is dropped here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/attention_plan.h"
#include "server/trace_chunk.h"
#include "server/trace_credit.h"
#include "server/trace_spec.h"
#include "server/trace_sums.h"

namespace vitrine::server {

class TokenSink;

// Rows of one step of one choice, with the bytes that they are counted for.
struct TracedStep {
  int choice = 0;
  std::vector<AttentionPiece> pieces = {};
  int64_t added_us = 0;
  float lse_delta = 0.0f;  // Of a replay, against what was kept.
  CreditHold hold = {};
};

class RequestTrace {
 public:
  struct Rectangle;

  // `spec` must outlive the object; chunks are counted against `credit`.
  RequestTrace(const TraceSpec& spec, std::shared_ptr<TraceCredit> credit);

  // Rows of the prompt go out at once, the others wait for Release.
  void Add(TracedStep step, TokenSink& sink);
  // Tokens of a choice before position `end` are out: hands over the rows that led to them.
  void Release(int choice, int64_t end, TokenSink& sink);
  // The choice has ended. Rows whose token never came out belong to it if it ended by itself, and
  // do not exist if a text stop cut it.
  void EndChoice(int choice, bool is_cut, TokenSink& sink);
  // Every choice has ended: what is summed over rows, then the end of the trace.
  void Finish(TokenSink& sink);

  uint64_t bytes() const { return bytes_; }

 private:
  struct Block;

  void SendStep(const TracedStep& step, TokenSink& sink);
  void SendRows(const Block& block, TraceOutputKind kind, size_t width,
                std::span<const float> numbers, TokenSink& sink);
  void SendTopK(const Block& block, TokenSink& sink);
  void SendDense(const Block& block, bool is_f16, TokenSink& sink);
  TraceChunk DenseChunk(const Block& block, const Rectangle& part, int first_key,
                        bool is_f16) const;
  void SendColumnSums(TokenSink& sink);
  void SendTiles(TokenSink& sink);
  Block SumBlock(const Rectangle& whole) const;
  TraceChunk Head(const Block& block, const Rectangle& part, TraceOutputKind kind) const;
  void Send(TraceChunk chunk, TokenSink& sink);

  const TraceSpec& spec_;
  const std::shared_ptr<TraceCredit> credit_;
  std::vector<TracedStep> held_;     // In order of computation.
  std::unique_ptr<TraceSums> sums_;  // Where an output is summed over rows.
  float max_row_sum_error_ = 0.0f;   // Of all rows sent.
  float max_lse_delta_ = 0.0f;       // The same, and of rows that were only compared.
  uint64_t next_sequence_number_ = 0;
  uint64_t rows_ = 0;
  uint64_t bytes_ = 0;
  int64_t added_us_ = 0;
};

}  // namespace vitrine::server
