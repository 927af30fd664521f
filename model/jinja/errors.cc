#include "model/jinja/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace vitrine::jinja {
namespace {

constexpr char kRaisedPayload[] = "vitrine/raised";
constexpr int64_t kBytesPerStep = 256;

}  // namespace

std::string Concat(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

absl::Status SyntaxError(int line, std::initializer_list<std::string_view> parts) {
  return AtLine(absl::InvalidArgumentError(Concat(parts)), line);
}

absl::Status MissingFeature(int line, std::initializer_list<std::string_view> parts) {
  return AtLine(absl::UnimplementedError(Concat(parts)), line);
}

absl::Status EvaluationError(std::initializer_list<std::string_view> parts) {
  return absl::FailedPreconditionError(Concat(parts));
}

absl::Status OverBudget(std::initializer_list<std::string_view> parts) {
  return absl::ResourceExhaustedError(Concat(parts));
}

absl::Status Raised(std::string_view literal_text, std::string_view text) {
  absl::Status status = absl::AbortedError(std::string(literal_text));
  status.SetPayload(kRaisedPayload, absl::Cord(absl::string_view(text.data(), text.size())));
  return status;
}

std::optional<std::string> RaisedText(const absl::Status& status) {
  const auto payload = status.GetPayload(kRaisedPayload);
  if (!payload) return std::nullopt;
  return std::string(*payload);
}

absl::Status AtLine(const absl::Status& status, int line) {
  absl::Status result(status.code(), absl::StrCat("line ", line, ": ", status.message()));
  status.ForEachPayload(
      [&](auto type, const absl::Cord& payload) { result.SetPayload(type, payload); });
  return result;
}

absl::Status Budget::StepsExhausted() {
  return OverBudget({"the template takes more steps than it may"});
}

absl::Status Budget::Allocate(size_t bytes) {
  if (bytes > static_cast<uint64_t>(INT64_MAX) || static_cast<int64_t>(bytes) > left_.bytes) {
    return OverBudget({"the template makes more text than it may"});
  }
  left_.bytes -= static_cast<int64_t>(bytes);
  Charge(static_cast<int64_t>(bytes) / kBytesPerStep);
  return absl::OkStatus();
}

absl::Status Budget::Output(size_t bytes) {
  if (bytes > static_cast<uint64_t>(INT64_MAX) ||
      static_cast<int64_t>(bytes) > left_.output_bytes) {
    return OverBudget({"the template prints more than it may"});
  }
  left_.output_bytes -= static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

absl::Status Budget::Enter() {
  ++depth_;
  if (depth_ <= depth_limit_) return absl::OkStatus();
  return OverBudget({"the template nests or calls itself deeper than it may"});
}

}  // namespace vitrine::jinja
