// Errors of templates, and the budget that a rendering may spend. The code of the status is the
// kind of the error:
//   INVALID_ARGUMENT    the template breaks the grammar (found by Parse)
//   UNIMPLEMENTED       the template uses a feature that this interpreter lacks (found by Parse)
//   FAILED_PRECONDITION an expression cannot be evaluated, such as an attribute of an undefined
//                       value
//   ABORTED             the template called raise_exception; RaisedText is its text
//   RESOURCE_EXHAUSTED  a limit of the budget was reached
// Messages hold names and literals of the template, never bytes of the conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace vitrine::jinja {

// `parts` one after the other.
std::string Concat(std::initializer_list<std::string_view> parts);

absl::Status SyntaxError(int line, std::initializer_list<std::string_view> parts);
absl::Status MissingFeature(int line, std::initializer_list<std::string_view> parts);
absl::Status EvaluationError(std::initializer_list<std::string_view> parts);
absl::Status OverBudget(std::initializer_list<std::string_view> parts);

// `literal_text` is the message without what came from data; `text` is the whole of it.
absl::Status Raised(std::string_view literal_text, std::string_view text);
// What the template said, whole: it may quote the conversation.
std::optional<std::string> RaisedText(const absl::Status& status);

// `status` with "line N: " in front, other parts unchanged.
absl::Status AtLine(const absl::Status& status, int line);

struct Limits {
  int64_t steps = 1'000'000;           // Nodes evaluated, elements visited.
  int64_t bytes = int64_t{256} << 20;  // Of all strings and lists made, whether still alive or not.
  int64_t output_bytes = int64_t{32} << 20;
  int depth = 256;  // Of nested expressions, blocks and macro calls together.
};

// What is left of the limits. One rendering, one thread.
class Budget {
 public:
  explicit Budget(const Limits& limits) : left_(limits), depth_limit_(limits.depth) {}

  // Takes steps without a check: for work that is bounded by memory already paid for. The next
  // Step fails when it was too much.
  void Charge(int64_t steps) { left_.steps -= steps; }
  absl::Status Step() {
    if (--left_.steps >= 0) return absl::OkStatus();
    return StepsExhausted();
  }
  // Before `bytes` are allocated. Filling them costs steps too.
  absl::Status Allocate(size_t bytes);
  absl::Status Output(size_t bytes);

  // One level deeper. The caller leaves it with Leave, also after an error.
  absl::Status Enter();
  void Leave() { --depth_; }

 private:
  static absl::Status StepsExhausted();

  Limits left_;
  int depth_limit_;
  int depth_ = 0;
};

}  // namespace vitrine::jinja
