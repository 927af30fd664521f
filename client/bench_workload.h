// What the load generator sends: a pure function of its options and a request's index, so that
// every run with the same seed is the same load.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// How many tokens a prompt or an answer has.
class LengthDistribution {
 public:
  // "128", uniform "64-256", or "lognormal:MEDIAN:SIGMA:MAX" cut to [1, MAX].
  static absl::StatusOr<LengthDistribution> Parse(std::string_view text);

  // `uniform` and `normal` are draws of U(0, 1) and N(0, 1); one of them is used.
  uint32_t Draw(double uniform, double normal) const;

 private:
  enum class Kind { kUniform, kLogNormal };
  Kind kind_ = Kind::kUniform;
  uint32_t min_ = 1;
  uint32_t max_ = 1;
  double median_ = 1.0;
  double sigma_ = 0.0;
};

struct WorkloadOptions {
  LengthDistribution prompt_tokens;
  LengthDistribution output_tokens;
  // Leading tokens that prompts have in common; longer than the prompt = the whole prompt.
  uint32_t shared_prefix = 0;
  // Different common prefixes, taken in turn; at least 1.
  uint32_t prefix_groups = 1;
  uint64_t seed = 1;
  uint32_t vocabulary = 0;  // At least 1.
  // Sampling and so on; prompt and max_tokens are filled in.
  v1::GenerateRequest base;
};

class Workload {
 public:
  explicit Workload(WorkloadOptions options);

  // Prompt of random token ids; max_tokens drawn.
  v1::GenerateRequest Request(uint64_t index) const;
  // As Request, with these lengths.
  v1::GenerateRequest Request(uint64_t index, uint32_t prompt_tokens, uint32_t output_tokens) const;

  // Time between the arrivals of request `index` - 1 and `index`: exponential with mean 1 / rate.
  std::chrono::nanoseconds Gap(uint64_t index, double requests_per_second) const;

 private:
  WorkloadOptions options_;
};

}  // namespace vitrine::client
