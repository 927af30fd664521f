#include "server/caller_table.h"

#include <algorithm>
#include <fstream>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace vitrine::server {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMinTokenBytes = 16;
constexpr size_t kMaxTokenBytes = 512;
constexpr std::string_view kScheme = "Bearer ";

constexpr std::pair<std::string_view, Scope> kScopes[] = {
    {"data", Scope::kData}, {"inspection", Scope::kInspection}, {"control", Scope::kControl}};

bool IsName(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_allowed);
}

bool IsToken(std::string_view token) {
  return token.size() >= kMinTokenBytes && token.size() <= kMaxTokenBytes &&
         std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
}

// 0: one of them is unknown, or there is none.
uint32_t ParseScopes(const std::string& text) {
  uint32_t scopes = 0;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const auto* known = std::ranges::find(kScopes, std::string_view(part.data(), part.size()),
                                          &std::pair<std::string_view, Scope>::first);
    if (known == std::end(kScopes)) return 0;
    scopes |= static_cast<uint32_t>(known->second);
  }
  return scopes;
}

std::string_view NameOf(Scope scope) {
  return std::ranges::find(kScopes, scope, &std::pair<std::string_view, Scope>::second)->first;
}

}  // namespace

absl::StatusOr<CallerTable> CallerTable::Parse(std::string_view text, const SipHashKey& key) {
  CallerTable table(key);
  int number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (const absl::Status status = table.AddLine({line.data(), line.size()}); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--auth_tokens_file: line ", number, ": ", status.message()));
    }
  }
  if (table.callers_.empty()) {
    return absl::InvalidArgumentError("--auth_tokens_file names no caller");
  }
  return table;
}

absl::StatusOr<CallerTable> CallerTable::Load(const std::string& path, const SipHashKey& key) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError("--auth_tokens_file is not a readable file");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--auth_tokens_file has more than ", kMaxFileBytes, " bytes"));
  }
  return Parse(text, key);
}

absl::Status CallerTable::AddLine(std::string_view line) {
  const std::vector<std::string> fields = absl::StrSplit(
      absl::string_view(line.data(), line.size()), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (fields.empty() || fields[0].starts_with('#')) return absl::OkStatus();
  if (fields.size() != 3) return absl::InvalidArgumentError("must be NAME SCOPES TOKEN");
  if (!IsName(fields[0])) {
    return absl::InvalidArgumentError("the name must be 1 to 64 letters, digits, '.', '-' or '_'");
  }
  const uint32_t scopes = ParseScopes(fields[1]);
  if (scopes == 0) {
    return absl::InvalidArgumentError("scopes must be of data, inspection and control");
  }
  if (!IsToken(fields[2])) {
    return absl::InvalidArgumentError("the token must have 16 to 512 printable characters");
  }
  if (Find(fields[2]) != nullptr) return absl::InvalidArgumentError("the token is used twice");
  callers_.push_back({.digest = DigestOf(fields[2]), .scopes = scopes, .name = fields[0]});
  return absl::OkStatus();
}

absl::StatusOr<std::string> CallerTable::Admit(std::string_view authorization, Scope scope) const {
  if (!authorization.starts_with(kScheme)) {
    return absl::UnauthenticatedError("this server wants the metadata authorization: Bearer TOKEN");
  }
  const Caller* const caller = Find(authorization.substr(kScheme.size()));
  if (caller == nullptr) return absl::UnauthenticatedError("the bearer token is not known");
  if ((caller->scopes & static_cast<uint32_t>(scope)) == 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("this caller may not use the scope ", std::string(NameOf(scope))));
  }
  return caller->name;
}

CallerTable::Digest CallerTable::DigestOf(std::string_view token) const {
  const auto bytes = std::as_bytes(std::span(token));
  return {.low = SipHash24(key_, bytes), .high = SipHash24({~key_[0], key_[1]}, bytes)};
}

const CallerTable::Caller* CallerTable::Find(std::string_view token) const {
  const Digest digest = DigestOf(token);
  const Caller* found = nullptr;
  // Every caller is looked at, and no byte of a token is compared: the time says nothing.
  for (const Caller& caller : callers_) {
    const uint64_t difference =
        (caller.digest.low ^ digest.low) | (caller.digest.high ^ digest.high);
    found = difference == 0 ? &caller : found;
  }
  return found;
}

}  // namespace vitrine::server
