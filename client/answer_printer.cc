#include "client/answer_printer.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/logprobs_table.h"
#include "client/output.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

absl::Status AnswerPrinter::Print(const v1::GenerateEvent& event) {
  if (event.has_accepted()) {
    NoteAccepted(event.accepted());
  } else if (event.has_tokens()) {
    for (const v1::Token& token : event.tokens().tokens()) {
      NoteLogprobs(token);
      if (absl::Status status = Append(token.choice(), TokenText(token)); !status.ok()) {
        return status;
      }
    }
  } else if (event.has_choice_finished()) {
    return Finish(event.choice_finished());
  } else if (event.has_done()) {
    done_ = true;
    usage_ = event.done().usage();
    timings_ = event.done().timings();
  }
  return absl::OkStatus();
}

absl::Status AnswerPrinter::Print(const v1::GenerateResponse& response) {
  NoteAccepted(response.accepted());
  for (const v1::Choice& choice : response.choices()) {
    std::string text = choice.text();
    for (const v1::Token& token : choice.tokens()) {
      NoteLogprobs(token);
      if (token_ids_only_) text += TokenText(token);
    }
    absl::Status status = Append(choice.index(), text);
    if (status.ok()) status = Finish(choice.finished());
    if (!status.ok()) return status;
  }
  done_ = response.has_done();
  usage_ = response.done().usage();
  timings_ = response.done().timings();
  return absl::OkStatus();
}

void AnswerPrinter::EndLine(bool always) {
  if (at_line_start_) return;
  if (always || isatty(STDOUT_FILENO) != 0) static_cast<void>(WriteOut("\n"));
}

void AnswerPrinter::PrintLogprobs() const {
  std::fputs(prompt_logprobs_.c_str(), stderr);
  for (const auto& [choice, lines] : logprobs_) {
    if (logprobs_.size() > 1) std::fprintf(stderr, "[choice %u]\n", choice);
    std::fputs(lines.c_str(), stderr);
  }
}

void AnswerPrinter::PrintUsage() const {
  if (!done_) return;
  std::string line = absl::StrCat("[", usage_.prompt_tokens(), " prompt tokens");
  if (usage_.cached_prompt_tokens() > 0) {
    absl::StrAppend(&line, " (", usage_.cached_prompt_tokens(), " cached)");
  }
  absl::StrAppend(&line, ", ", usage_.completion_tokens(), " generated");
  for (const v1::FinishReason reason : reasons_) {
    constexpr size_t kPrefix = std::string_view("FINISH_REASON_").size();
    const std::string& name = v1::FinishReason_Name(reason);
    absl::StrAppend(&line, ", ", name.size() > kPrefix ? name.substr(kPrefix) : "?");
  }
  absl::StrAppendFormat(&line, ", first after %.0f ms",
                        static_cast<double>(timings_.queue_us() + timings_.prefill_us()) / 1e3);
  const uint64_t later_tokens = usage_.completion_tokens() > 0 ? usage_.completion_tokens() - 1 : 0;
  if (later_tokens > 0 && timings_.decode_us() > 0) {
    absl::StrAppendFormat(
        &line, ", then %.1f tokens/s",
        static_cast<double>(later_tokens) * 1e6 / static_cast<double>(timings_.decode_us()));
  }
  std::fprintf(stderr, "%s, seed %llu]\n", line.c_str(), static_cast<unsigned long long>(seed_));
}

void AnswerPrinter::NoteAccepted(const v1::Accepted& accepted) {
  seed_ = accepted.seed();
  for (int i = 0; i < accepted.prompt_logprobs_size(); ++i) {
    prompt_logprobs_ += FormatLogprobs(accepted.prompt_logprobs(i), i);
  }
}

void AnswerPrinter::NoteLogprobs(const v1::Token& token) {
  if (token.has_logprob()) logprobs_[token.choice()] += FormatLogprobs(token);
}

std::string AnswerPrinter::TokenText(const v1::Token& token) {
  if (!token_ids_only_) return token.text();
  const bool first = started_.insert(token.choice()).second;
  return absl::StrCat(first ? "" : " ", token.id());
}

absl::Status AnswerPrinter::Append(uint32_t choice, std::string_view text) {
  if (choice != current_) {
    waiting_[choice].append(text);
    return absl::OkStatus();
  }
  const std::string shown = absl::StrCat(needs_separator_ ? "\n" : "", std::string(text));
  needs_separator_ = false;
  if (shown.empty()) return absl::OkStatus();
  at_line_start_ = shown.back() == '\n';
  if (WriteOut(shown)) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("cannot write the answer: ", std::strerror(errno)));
}

absl::Status AnswerPrinter::Finish(const v1::ChoiceFinished& finished) {
  reasons_.push_back(finished.reason());
  absl::Status status = Append(finished.choice(), finished.tail_text());
  finished_.insert(finished.choice());
  while (status.ok() && finished_.contains(current_)) {
    ++current_;
    needs_separator_ = true;
    const auto next = waiting_.find(current_);
    if (next != waiting_.end()) status = Append(current_, next->second);
  }
  return status;
}

}  // namespace vitrine::client
