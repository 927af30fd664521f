#include "server/request_record.h"

#include <utility>

namespace vitrine::server {
namespace {

// A long prompt or many preemptions must not grow a history without end.
constexpr size_t kMaxEvents = 1000;

GenerationRequest WithoutTrace(GenerationRequest request) {
  request.trace.reset();
  return request;
}

}  // namespace

RequestRecord::RequestRecord(std::string request_id, const GenerationRequest& request,
                             std::chrono::system_clock::time_point arrival)
    : id_(std::move(request_id)), request_(WithoutTrace(request)), arrived_(arrival) {
  view_.choices.resize(static_cast<size_t>(request.num_choices));
  for (Choice& choice : view_.choices) choice.byte_offsets.push_back(0);
  view_.history.push_back(
      {.kind = HistoryEvent::Kind::kQueued, .tokens = static_cast<int>(request.prompt.size())});
}

void RequestRecord::AddEvent(const HistoryEvent& event) {
  std::lock_guard lock(mutex_);
  view_.has_started = true;
  if (view_.history.size() < kMaxEvents) view_.history.push_back(event);
}

void RequestRecord::KeepRow(int choice, int position, std::span<const float> log_sum_exp) {
  std::lock_guard lock(mutex_);
  std::vector<RowCertificate>& kept = view_.choices[static_cast<size_t>(choice)].certificates;
  // The first is that of the prompt and stays; a later row takes the place of the one before it.
  if (kept.size() < 2) kept.emplace_back();
  kept.back().position = position;
  kept.back().log_sum_exp.assign(log_sum_exp.begin(), log_sum_exp.end());
}

void RequestRecord::AddTokens(int choice, std::span<const TokenId> ids,
                              const Tokenizer& tokenizer) {
  std::lock_guard lock(mutex_);
  Choice& kept = view_.choices[static_cast<size_t>(choice)];
  for (const TokenId id : ids.subspan(kept.ids.size())) {
    kept.ids.push_back(id);
    const auto bytes = static_cast<uint32_t>(tokenizer.TokenBytes(id).size());
    kept.byte_offsets.push_back(kept.byte_offsets.back() + bytes);
  }
}

void RequestRecord::EndChoice(const ChoiceEnd& end) {
  std::lock_guard lock(mutex_);
  view_.choices[static_cast<size_t>(end.choice)].reason = end.reason;
}

void RequestRecord::End(const AnswerEnd& end) {
  std::lock_guard lock(mutex_);
  view_.end = end;
  const Timeline& timeline = end.timeline;
  view_.history.push_back({.kind = HistoryEvent::Kind::kEnded,
                           .at_us = timeline.queue_us + timeline.prefill_us + timeline.decode_us,
                           .tokens = end.completion_tokens});
}

RequestRecord::View RequestRecord::Look() const {
  std::lock_guard lock(mutex_);
  return view_;
}

int64_t RequestRecord::bytes() const {
  std::lock_guard lock(mutex_);
  size_t bytes = sizeof(RequestRecord) + view_.history.size() * sizeof(HistoryEvent) +
                 request_.prompt.size() * (sizeof(TokenId) + sizeof(uint32_t));
  for (const Choice& choice : view_.choices) {
    bytes += sizeof(Choice) + choice.ids.size() * (sizeof(TokenId) + sizeof(uint32_t));
    for (const RowCertificate& row : choice.certificates) {
      bytes += row.log_sum_exp.size() * sizeof(float);
    }
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace vitrine::server
