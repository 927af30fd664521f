#include "client/bench_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace vitrine::client {
namespace {

using std::chrono::nanoseconds;

double Milliseconds(nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

nanoseconds Ttft(const RequestRecord& record) {
  return record.messages.front().at - record.arrival;
}

nanoseconds EndToEnd(const RequestRecord& record) {
  return record.messages.back().at - record.arrival;
}

uint64_t Tokens(const RequestRecord& record) {
  uint64_t tokens = 0;
  for (const TokenMessage& message : record.messages) tokens += message.tokens;
  return tokens;
}

// 0 below two tokens, as goodput counts them.
nanoseconds Tpot(const RequestRecord& record) {
  const uint64_t tokens = Tokens(record);
  if (tokens < 2) return nanoseconds(0);
  return (EndToEnd(record) - Ttft(record)) / static_cast<int64_t>(tokens - 1);
}

bool IsGood(const RequestRecord& record, const ServiceLevel& level) {
  if (record.messages.empty()) return true;
  return (!level.ttft || Ttft(record) <= *level.ttft) &&
         (!level.tpot || Tpot(record) <= *level.tpot);
}

// All samples of a test.
struct Samples {
  std::vector<nanoseconds> ttft;
  std::vector<nanoseconds> tpot;
  std::vector<nanoseconds> itl;
  std::vector<nanoseconds> e2e;
  std::vector<nanoseconds> refusal;
  std::vector<nanoseconds> server_queue;
  std::vector<nanoseconds> server_prefill;
};

void AddCompleted(const RequestRecord& record, Samples* samples, BenchReport* report) {
  ++report->completed;
  const v1::Usage& usage = record.done.usage();
  report->prompt_tokens += usage.prompt_tokens();
  report->cached_prompt_tokens += usage.cached_prompt_tokens();
  report->output_tokens += Tokens(record);
  report->answers_hash += record.done.token_hash();
  samples->server_queue.emplace_back(std::chrono::microseconds(record.done.timings().queue_us()));
  samples->server_prefill.emplace_back(
      std::chrono::microseconds(record.done.timings().prefill_us()));
  if (record.messages.empty()) return;
  samples->ttft.push_back(Ttft(record));
  samples->e2e.push_back(EndToEnd(record));
  if (Tokens(record) >= 2) samples->tpot.push_back(Tpot(record));
  for (size_t i = 0; i < record.messages.size(); ++i) {
    if (record.messages[i].tokens > 1) ++report->coalesced_messages;
    if (i > 0) samples->itl.push_back(record.messages[i].at - record.messages[i - 1].at);
  }
}

void AddFailed(const RequestRecord& record, Samples* samples, BenchReport* report) {
  if (absl::IsResourceExhausted(record.status)) {
    ++report->refused;
    samples->refusal.push_back(record.end - record.arrival);
  } else {
    ++report->errors[absl::StatusCodeToString(record.status.code())];
  }
}

nanoseconds LongestGap(const std::vector<RequestRecord>& records, nanoseconds begin,
                       nanoseconds end) {
  nanoseconds longest{0};
  for (const RequestRecord& record : records) {
    if (!record.label.empty()) continue;
    for (size_t i = 1; i < record.messages.size(); ++i) {
      const nanoseconds before = record.messages[i - 1].at;
      const nanoseconds after = record.messages[i].at;
      if (after > begin && before < end) longest = std::max(longest, after - before);
    }
  }
  return longest;
}

LabelledResult Labelled(const RequestRecord& record, const std::vector<RequestRecord>& records) {
  LabelledResult result = {.label = record.label,
                           .status = absl::StatusCodeToString(record.status.code())};
  if (record.messages.empty()) return result;
  result.ttft_ms = Milliseconds(Ttft(record));
  result.e2e_ms = Milliseconds(EndToEnd(record));
  const v1::Timings& timings = record.done.timings();
  result.prefill_steps = timings.prefill_chunks();
  if (result.prefill_steps > 0) {
    result.mean_step_ms = static_cast<double>(timings.prefill_us()) / 1e3 / result.prefill_steps;
  }
  result.longest_step_ms = static_cast<double>(timings.longest_step_us()) / 1e3;
  result.longest_gap_ms =
      Milliseconds(LongestGap(records, record.arrival, record.messages.front().at));
  return result;
}

std::string PercentilesJson(const Percentiles& p) {
  return absl::StrFormat(R"({"p50":%.3f,"p90":%.3f,"p99":%.3f,"max":%.3f,"count":%d})", p.p50,
                         p.p90, p.p99, p.max, p.count);
}

void AppendRow(const char* name, const Percentiles& p, std::string* text) {
  if (p.count == 0) return;
  absl::StrAppendFormat(text, "%-16s %9.2f %9.2f %9.2f %9.2f %9d\n", name, p.p50, p.p90, p.p99,
                        p.max, p.count);
}

// In units of steps, since what is promised is a number of them.
void AppendSteps(const LabelledResult& result, std::string* text) {
  if (result.prefill_steps == 0 || result.mean_step_ms == 0.0 || result.longest_step_ms == 0.0) {
    return;
  }
  absl::StrAppendFormat(
      text,
      "  prompt in %d steps, mean %.2f ms, longest %.2f ms: TTFT = %.1f mean steps\n"
      "  longest gap of the load meanwhile %.2f ms = %.1f longest steps, %.1f mean steps\n",
      result.prefill_steps, result.mean_step_ms, result.longest_step_ms,
      result.ttft_ms / result.mean_step_ms, result.longest_gap_ms,
      result.longest_gap_ms / result.longest_step_ms, result.longest_gap_ms / result.mean_step_ms);
}

}  // namespace

Percentiles PercentilesOf(std::vector<nanoseconds> samples) {
  Percentiles result = {.count = samples.size()};
  if (samples.empty()) return result;
  std::sort(samples.begin(), samples.end());
  const auto rank = [&samples](double share) {
    const double position = std::ceil(share * static_cast<double>(samples.size()));
    return Milliseconds(samples[std::max<size_t>(static_cast<size_t>(position), 1) - 1]);
  };
  result.p50 = rank(0.50);
  result.p90 = rank(0.90);
  result.p99 = rank(0.99);
  result.max = Milliseconds(samples.back());
  return result;
}

size_t BenchReport::failed() const {
  size_t failed = 0;
  for (const auto& [code, count] : errors) failed += count;
  return failed;
}

BenchReport MakeReport(std::string load, const std::vector<RequestRecord>& records,
                       const ServiceLevel& level) {
  BenchReport report;
  report.load = std::move(load);
  Samples samples;
  nanoseconds first = nanoseconds::max();
  nanoseconds last{0};
  size_t good = 0;
  for (const RequestRecord& record : records) {
    if (!record.label.empty()) {
      report.labelled.push_back(Labelled(record, records));
      continue;
    }
    ++report.requests;
    first = std::min(first, record.arrival);
    last = std::max(last, record.end);
    if (!record.status.ok()) {
      AddFailed(record, &samples, &report);
      continue;
    }
    AddCompleted(record, &samples, &report);
    if (IsGood(record, level)) ++good;
  }
  if (report.prompt_tokens > 0) {
    report.computed_prompt_share =
        static_cast<double>(report.prompt_tokens - report.cached_prompt_tokens) /
        static_cast<double>(report.prompt_tokens);
  }
  report.ttft = PercentilesOf(std::move(samples.ttft));
  report.tpot = PercentilesOf(std::move(samples.tpot));
  report.itl = PercentilesOf(std::move(samples.itl));
  report.e2e = PercentilesOf(std::move(samples.e2e));
  report.refusal = PercentilesOf(std::move(samples.refusal));
  report.server_queue = PercentilesOf(std::move(samples.server_queue));
  report.server_prefill = PercentilesOf(std::move(samples.server_prefill));
  if (last <= first) return report;
  report.wall_s = Milliseconds(last - first) / 1e3;
  report.output_tokens_per_s = static_cast<double>(report.output_tokens) / report.wall_s;
  report.total_tokens_per_s =
      static_cast<double>(report.output_tokens + report.prompt_tokens) / report.wall_s;
  report.requests_per_s = static_cast<double>(report.completed) / report.wall_s;
  report.goodput_requests_per_s = static_cast<double>(good) / report.wall_s;
  return report;
}

std::string ReportText(const BenchReport& report) {
  std::string text = absl::StrFormat(
      "%s: %d requests in %.2f s, %d completed, %d refused, %d errors\n", report.load,
      report.requests, report.wall_s, report.completed, report.refused, report.failed());
  for (const auto& [code, count] : report.errors) {
    absl::StrAppendFormat(&text, "  %d x %s\n", count, code);
  }
  absl::StrAppendFormat(&text,
                        "%.1f output tokens/s, %.1f total tokens/s, %.2f requests/s, "
                        "%.2f good requests/s\n"
                        "%d prompt tokens (%d cached: %.1f %% computed), %d output tokens, "
                        "hash of answers %016x\n",
                        report.output_tokens_per_s, report.total_tokens_per_s,
                        report.requests_per_s, report.goodput_requests_per_s, report.prompt_tokens,
                        report.cached_prompt_tokens, 100.0 * report.computed_prompt_share,
                        report.output_tokens, report.answers_hash);
  absl::StrAppendFormat(&text, "%-16s %9s %9s %9s %9s %9s\n", "milliseconds", "p50", "p90", "p99",
                        "max", "samples");
  AppendRow("TTFT", report.ttft, &text);
  AppendRow("TPOT", report.tpot, &text);
  AppendRow(report.coalesced_messages == 0 ? "ITL" : "between messages", report.itl, &text);
  AppendRow("E2E", report.e2e, &text);
  AppendRow("refusal", report.refusal, &text);
  AppendRow("server queue", report.server_queue, &text);
  AppendRow("server prefill", report.server_prefill, &text);
  for (const LabelledResult& result : report.labelled) {
    absl::StrAppendFormat(&text, "%s: %s, TTFT %.2f ms, E2E %.2f ms\n", result.label, result.status,
                          result.ttft_ms, result.e2e_ms);
    AppendSteps(result, &text);
  }
  return text;
}

std::string ReportJson(const BenchReport& report) {
  std::string errors;
  for (const auto& [code, count] : report.errors) {
    absl::StrAppendFormat(&errors, R"(%s"%s":%d)", errors.empty() ? "" : ",", code, count);
  }
  std::string injected;
  for (const LabelledResult& result : report.labelled) {
    absl::StrAppendFormat(
        &injected,
        R"(%s{"label":"%s","status":"%s","ttft_ms":%.3f,"e2e_ms":%.3f,"prefill_steps":%d,)"
        R"("mean_step_ms":%.3f,"longest_step_ms":%.3f,"longest_gap_ms":%.3f})",
        injected.empty() ? "" : ",", result.label, result.status, result.ttft_ms, result.e2e_ms,
        result.prefill_steps, result.mean_step_ms, result.longest_step_ms, result.longest_gap_ms);
  }
  return absl::StrFormat(
      R"({"load":"%s","requests":%d,"completed":%d,"refused":%d,"failed":%d,"errors":{%s},)"
      R"("wall_s":%.6f,"output_tokens":%d,"prompt_tokens":%d,"cached_prompt_tokens":%d,)"
      R"("computed_prompt_share":%.4f,"answers_hash":"%016x",)"
      R"("output_tokens_per_s":%.3f,"total_tokens_per_s":%.3f,"requests_per_s":%.4f,)"
      R"("goodput_requests_per_s":%.4f,"coalesced_messages":%d,"ttft_ms":%s,"tpot_ms":%s,)"
      R"("itl_ms":%s,"e2e_ms":%s,"refusal_ms":%s,"server_queue_ms":%s,"server_prefill_ms":%s,)"
      R"("injected":[%s]})",
      report.load, report.requests, report.completed, report.refused, report.failed(), errors,
      report.wall_s, report.output_tokens, report.prompt_tokens, report.cached_prompt_tokens,
      report.computed_prompt_share, report.answers_hash, report.output_tokens_per_s,
      report.total_tokens_per_s, report.requests_per_s, report.goodput_requests_per_s,
      report.coalesced_messages, PercentilesJson(report.ttft), PercentilesJson(report.tpot),
      PercentilesJson(report.itl), PercentilesJson(report.e2e), PercentilesJson(report.refusal),
      PercentilesJson(report.server_queue), PercentilesJson(report.server_prefill), injected);
}

}  // namespace vitrine::client
