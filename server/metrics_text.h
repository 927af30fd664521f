// What the server counts, as text for Prometheus.
// https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
#pragma once

#include <cstdint>
#include <string>

#include "server/engine.h"
#include "server/metrics.h"
#include "server/request_queue.h"

namespace vitrine::server {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// One look at each part; `now_us` as in GenerationRequest::arrival_us. Counters are since start,
// durations in seconds.
struct MetricsView {
  RequestCounters::Counts requests;
  RequestQueue::Load queue;
  EngineLoad engine;
  bool is_draining = false;
  int64_t now_us = 0;
};

std::string MetricsText(const MetricsView& view);

}  // namespace vitrine::server
