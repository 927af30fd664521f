// Answers on stdout as they come, one after the other; everything else on stderr.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// Not thread-safe. The first choice shows token by token; each further one follows on a new line
// once those before it are complete.
class AnswerPrinter {
 public:
  // Prints ids with spaces between instead of text.
  explicit AnswerPrinter(bool token_ids_only) : token_ids_only_(token_ids_only) {}

  // UNKNOWN when stdout takes no more.
  absl::Status Print(const v1::GenerateEvent& event);
  absl::Status Print(const v1::GenerateResponse& response);

  // Ends the line, where it is not empty and stdout is a terminal (or always).
  void EndLine(bool always);

  // One line on stderr per token with log-probabilities, those of the prompt first; nothing where
  // none were asked for.
  void PrintLogprobs() const;

  // One line on stderr about counts, times and reasons; nothing when there was no Done.
  void PrintUsage() const;

 private:
  void NoteAccepted(const v1::Accepted& accepted);
  void NoteLogprobs(const v1::Token& token);
  std::string TokenText(const v1::Token& token);
  absl::Status Append(uint32_t choice, std::string_view text);
  absl::Status Finish(const v1::ChoiceFinished& finished);

  const bool token_ids_only_;
  uint32_t current_ = 0;                     // The choice that shows.
  std::map<uint32_t, std::string> waiting_;  // Text of choices that do not show yet.
  std::set<uint32_t> finished_;
  std::set<uint32_t> started_;    // Choices with a token already; for spaces between ids.
  bool needs_separator_ = false;  // The next text is the first of a further choice.
  bool at_line_start_ = true;
  std::vector<v1::FinishReason> reasons_;
  uint64_t seed_ = 0;
  std::string prompt_logprobs_;               // Lines, ready to print.
  std::map<uint32_t, std::string> logprobs_;  // By choice.
  bool done_ = false;
  v1::Usage usage_;
  v1::Timings timings_;
};

}  // namespace vitrine::client
