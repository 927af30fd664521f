// Who may call what: bearer tokens, the callers that they stand for and what these may use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sip_hash.h"

namespace vitrine::server {

// The three services, authorised apart.
enum class Scope : uint32_t { kData = 1, kInspection = 2, kControl = 4 };

// Immutable. Holds keyed hashes, not tokens.
class CallerTable {
 public:
  // One caller per line: NAME SCOPES TOKEN, separated by spaces or tabs. NAME has 1 to 64 letters,
  // digits, dots, dashes or underscores, and may have several tokens; SCOPES is a comma-separated
  // list of data, inspection and control; TOKEN is 16 to 512 printable ASCII characters and not
  // used twice. Empty lines and those that begin with # are skipped. `key` is random per process.
  // INVALID_ARGUMENT names line and rule, never a token.
  static absl::StatusOr<CallerTable> Parse(std::string_view text, const SipHashKey& key);
  // The file of --auth_tokens_file, at most 1 MiB.
  static absl::StatusOr<CallerTable> Load(const std::string& path, const SipHashKey& key);

  // The name of the caller who shows `authorization`, "Bearer TOKEN", and may use `scope`.
  // UNAUTHENTICATED: no such token; PERMISSION_DENIED: not this scope. Thread-safe.
  absl::StatusOr<std::string> Admit(std::string_view authorization, Scope scope) const;

 private:
  struct Digest {
    uint64_t low = 0;
    uint64_t high = 0;
  };
  struct Caller {
    Digest digest;
    uint32_t scopes = 0;
    std::string name;
  };

  explicit CallerTable(const SipHashKey& key) : key_(key) {}
  absl::Status AddLine(std::string_view line);
  Digest DigestOf(std::string_view token) const;
  const Caller* Find(std::string_view token) const;

  SipHashKey key_;
  std::vector<Caller> callers_;
};

}  // namespace vitrine::server
