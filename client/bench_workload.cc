#include "client/bench_workload.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

constexpr uint32_t kMaxTokens = 1 << 20;

// Independent random streams of one seed.
enum class Stream : uint64_t { kLengths = 1, kPrompt = 2, kPrefix = 3, kArrival = 4 };

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): any start gives a good stream, and the same one
// on every machine.
class Random {
 public:
  Random(uint64_t seed, Stream stream, uint64_t index)
      : state_(Mix(Mix(seed + static_cast<uint64_t>(stream) * kStep) + index * kStep)) {}

  uint64_t Next() { return Mix(state_ += kStep); }

  // In (0, 1).
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }

  // Box and Muller.
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }

  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(Next() >> 32)} * bound) >> 32);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

template <typename Number>
bool ParsePart(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool IsLength(uint32_t tokens) { return tokens >= 1 && tokens <= kMaxTokens; }

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(std::string_view text) {
  absl::Status error = absl::InvalidArgumentError(
      "takes a length such as 128, 64-256 or lognormal:200:0.8:2048 (median, sigma, largest), from "
      "1 "
      "to 1048576 tokens");
  LengthDistribution result;
  constexpr std::string_view kLogNormal = "lognormal:";
  if (text.starts_with(kLogNormal)) {
    text.remove_prefix(kLogNormal.size());
    const size_t first = text.find(':');
    const size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
    if (second == std::string_view::npos) return error;
    result.kind_ = Kind::kLogNormal;
    if (!ParsePart(text.substr(0, first), &result.median_) ||
        !ParsePart(text.substr(first + 1, second - first - 1), &result.sigma_) ||
        !ParsePart(text.substr(second + 1), &result.max_)) {
      return error;
    }
    // Written so that NaN fails.
    const bool in_range = result.median_ >= 1.0 && result.median_ <= kMaxTokens &&
                          result.sigma_ >= 0.0 && result.sigma_ <= 10.0;
    if (!in_range || !IsLength(result.max_)) return error;
    return result;
  }
  const size_t dash = text.find('-');
  if (!ParsePart(text.substr(0, dash), &result.min_)) return error;
  result.max_ = result.min_;
  if (dash != std::string_view::npos && !ParsePart(text.substr(dash + 1), &result.max_)) {
    return error;
  }
  if (!IsLength(result.min_) || !IsLength(result.max_) || result.min_ > result.max_) return error;
  return result;
}

uint32_t LengthDistribution::Draw(double uniform, double normal) const {
  if (kind_ == Kind::kUniform) {
    const double width = static_cast<double>(max_ - min_) + 1.0;
    return std::min(max_, min_ + static_cast<uint32_t>(uniform * width));
  }
  const double length = std::round(median_ * std::exp(sigma_ * normal));
  return static_cast<uint32_t>(std::clamp(length, 1.0, static_cast<double>(max_)));
}

Workload::Workload(WorkloadOptions options) : options_(std::move(options)) {}

v1::GenerateRequest Workload::Request(uint64_t index) const {
  Random random(options_.seed, Stream::kLengths, index);
  const double prompt_uniform = random.Uniform();
  const double output_uniform = random.Uniform();
  const double prompt_normal = random.Normal();
  const double output_normal = random.Normal();
  return Request(index, options_.prompt_tokens.Draw(prompt_uniform, prompt_normal),
                 options_.output_tokens.Draw(output_uniform, output_normal));
}

v1::GenerateRequest Workload::Request(uint64_t index, uint32_t prompt_tokens,
                                      uint32_t output_tokens) const {
  v1::GenerateRequest request = options_.base;
  request.mutable_stop()->set_max_tokens(output_tokens);
  // The ends of a vocabulary hold control tokens.
  const uint32_t margin = std::min<uint32_t>(100, options_.vocabulary / 4);
  const uint32_t choices = options_.vocabulary - 2 * margin;
  const uint32_t shared = std::min(options_.shared_prefix, prompt_tokens);
  Random prefix(options_.seed, Stream::kPrefix, index % options_.prefix_groups);
  Random own(options_.seed, Stream::kPrompt, index);
  google::protobuf::RepeatedField<uint32_t>* ids = request.mutable_token_ids()->mutable_ids();
  ids->Reserve(static_cast<int>(prompt_tokens));
  for (uint32_t i = 0; i < prompt_tokens; ++i) {
    ids->Add(margin + (i < shared ? prefix : own).Below(choices));
  }
  return request;
}

std::chrono::nanoseconds Workload::Gap(uint64_t index, double requests_per_second) const {
  Random random(options_.seed, Stream::kArrival, index);
  const double seconds = -std::log(random.Uniform()) / requests_per_second;
  return std::chrono::nanoseconds(static_cast<int64_t>(std::llround(seconds * 1e9)));
}

}  // namespace vitrine::client
