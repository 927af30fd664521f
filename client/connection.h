// Where the server is and how to be let in; the flags that every command shares.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/command_line.h"

namespace vitrine::client {

struct ConnectionOptions {
  std::string server = "127.0.0.1:50051";           // HOST:PORT, [IPV6]:PORT or unix:PATH.
  std::optional<std::chrono::nanoseconds> timeout;  // For connecting and for each RPC.
  bool tls = false;
  std::string tls_ca;    // PEM; empty with tls = the system's roots.
  std::string tls_cert;  // PEM; with tls_key the client's own identity.
  std::string tls_key;
  std::string auth_token;  // Sent as "authorization: Bearer TOKEN"; empty = none.
};

// What the flags say; files are not read yet.
struct ConnectionFlags {
  ConnectionOptions options;
  bool json = false;
  std::string tls_ca_file;
  std::string tls_cert_file;
  std::string tls_key_file;
  std::string auth_token_file;
};

// `flags` must outlive every Parse of `command_line`.
void AddConnectionFlags(CommandLine* command_line, ConnectionFlags* flags);

// Parses the flags, then reads the files that they name into flags->options, and moves the
// arguments that are no flags to `positional`; null allows none. INVALID_ARGUMENT names the flag;
// CANCELLED after --help.
absl::Status ParseWithConnection(const CommandLine& command_line,
                                 const std::vector<std::string>& arguments, ConnectionFlags* flags,
                                 std::vector<std::string>* positional = nullptr);

}  // namespace vitrine::client
