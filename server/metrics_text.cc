#include "server/metrics_text.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace vitrine::server {
namespace {

struct Sample {
  absl::string_view labels;  // With braces; empty: none.
  double value = 0;
};

void Add(std::string& text, absl::string_view type, absl::string_view name, absl::string_view help,
         std::initializer_list<Sample> samples) {
  absl::StrAppend(&text, "# HELP vitrine_", name, " ", help, "\n");
  absl::StrAppend(&text, "# TYPE vitrine_", name, " ", type, "\n");
  for (const Sample& sample : samples) {
    // Counts are whole below 2^53, and are printed so.
    const auto whole = static_cast<int64_t>(sample.value);
    absl::StrAppend(&text, "vitrine_", name, sample.labels, " ");
    if (static_cast<double>(whole) == sample.value) {
      absl::StrAppend(&text, whole, "\n");
    } else {
      absl::StrAppend(&text, sample.value, "\n");
    }
  }
}

double Count(uint64_t value) { return static_cast<double>(value); }

}  // namespace

std::string MetricsText(const MetricsView& view) {
  const RequestCounters::Counts& requests = view.requests;
  const EngineLoad& engine = view.engine;
  const int64_t oldest_us = std::min(engine.oldest_arrival_us, view.now_us);
  std::string text;
  Add(text, "counter", "requests_accepted_total", "Requests that entered the queue.",
      {{"", Count(requests.accepted)}});
  Add(text, "counter", "requests_ended_total", "Accepted requests that have ended, by how.",
      {{"{outcome=\"finished\"}", Count(requests.finished)},
       {"{outcome=\"cancelled\"}", Count(requests.cancelled)},
       {"{outcome=\"expired\"}", Count(requests.expired)},
       {"{outcome=\"failed\"}", Count(requests.failed)}});
  Add(text, "counter", "requests_refused_total", "Requests turned away before the queue.",
      {{"", Count(requests.refused)}});
  Add(text, "gauge", "requests_live", "Accepted requests that have not ended.",
      {{"", Count(requests.live())}});
  Add(text, "gauge", "requests_queued", "Requests that wait for their first step.",
      {{"", static_cast<double>(view.queue.requests)}});
  Add(text, "gauge", "prompt_tokens_queued", "Prompt tokens of these.",
      {{"", static_cast<double>(view.queue.prompt_tokens)}});
  Add(text, "gauge", "oldest_wait_seconds", "How long the oldest waiting sequence has waited.",
      {{"", 1e-6 * static_cast<double>(view.now_us - oldest_us)}});
  Add(text, "gauge", "sequences_running", "Sequences in the batch.",
      {{"", static_cast<double>(engine.running_sequences)}});
  Add(text, "gauge", "kv_blocks", "Blocks of the key and value cache, by state.",
      {{"{state=\"free\"}", static_cast<double>(engine.blocks_free)},
       {"{state=\"owned\"}", static_cast<double>(engine.blocks_owned)},
       {"{state=\"cached\"}", static_cast<double>(engine.blocks_cached)}});
  Add(text, "counter", "steps_total", "Steps of the engine.", {{"", Count(engine.steps)}});
  Add(text, "counter", "preemptions_total", "Sequences set aside to be recomputed.",
      {{"", static_cast<double>(engine.preemptions)}});
  Add(text, "counter", "generated_tokens_total", "Tokens of answers.",
      {{"", static_cast<double>(engine.generated.total())}});
  Add(text, "counter", "prefilled_tokens_total", "Prompt tokens computed.",
      {{"", static_cast<double>(engine.prefilled.total())}});
  Add(text, "gauge", "draining", "1 while new requests are refused.",
      {{"", view.is_draining ? 1.0 : 0.0}});
  return text;
}

}  // namespace vitrine::server
