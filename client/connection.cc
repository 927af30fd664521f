#include "client/connection.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/command_line.h"

namespace vitrine::client {
namespace {

absl::Status ReadFile(std::string_view flag, const std::string& path, std::string* content) {
  std::ifstream file(path, std::ios::binary);
  content->assign(std::istreambuf_iterator<char>(file), {});
  if (!file || content->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", std::string(flag), ": cannot read ", path, ", or it is empty"));
  }
  return absl::OkStatus();
}

absl::Status LoadFiles(ConnectionFlags* flags) {
  ConnectionOptions& options = flags->options;
  if (options.server.empty()) {
    return absl::InvalidArgumentError("--server takes HOST:PORT or unix:PATH, not nothing");
  }
  if (flags->tls_cert_file.empty() != flags->tls_key_file.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key go together");
  }
  if (!options.auth_token.empty() && !flags->auth_token_file.empty()) {
    return absl::InvalidArgumentError("--auth_token and --auth_token_file exclude each other");
  }
  const std::pair<std::string_view, std::pair<const std::string*, std::string*>> files[] = {
      {"tls_ca", {&flags->tls_ca_file, &options.tls_ca}},
      {"tls_cert", {&flags->tls_cert_file, &options.tls_cert}},
      {"tls_key", {&flags->tls_key_file, &options.tls_key}},
      {"auth_token_file", {&flags->auth_token_file, &options.auth_token}},
  };
  for (const auto& [flag, file] : files) {
    const auto& [path, content] = file;
    if (path->empty()) continue;
    if (absl::Status status = ReadFile(flag, *path, content); !status.ok()) return status;
  }
  options.tls = options.tls || !options.tls_ca.empty() || !options.tls_cert.empty();
  options.auth_token.resize(
      std::min(options.auth_token.size(), options.auth_token.find_first_of("\r\n")));
  for (const char c : options.auth_token) {
    if (c <= ' ' || c > '~') {
      return absl::InvalidArgumentError("--auth_token must be printable ASCII without spaces");
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddConnectionFlags(CommandLine* command_line, ConnectionFlags* flags) {
  command_line->Section("Server");
  command_line->Add(
      {.name = "server",
       .placeholder = "HOST:PORT",
       .help = "Where the server listens, also unix:PATH; default 127.0.0.1:50051.",
       .set = TakesText([flags](const std::string& v) { flags->options.server = v; })});
  command_line->Add(
      {.name = "timeout",
       .placeholder = "TIME",
       .help = "Gives up after this time (1.5s, 200ms, 2m); default: never.",
       .set = TakesDuration([flags](std::chrono::nanoseconds v) { flags->options.timeout = v; })});
  command_line->Add({.name = "json",
                     .placeholder = "",
                     .help = "Prints one JSON object per message on stdout, bytes as base64.",
                     .set = TakesSwitch([flags](bool v) { flags->json = v; })});
  command_line->Add({.name = "tls",
                     .placeholder = "",
                     .help = "Encrypts, and checks the server against the system's authorities.",
                     .set = TakesSwitch([flags](bool v) { flags->options.tls = v; })});
  command_line->Add({.name = "tls_ca",
                     .placeholder = "FILE",
                     .help = "Encrypts, and checks the server against these PEM certificates.",
                     .set = TakesText([flags](const std::string& v) { flags->tls_ca_file = v; })});
  command_line->Add(
      {.name = "tls_cert",
       .placeholder = "FILE",
       .help = "PEM certificate to show to the server; goes with --tls_key.",
       .set = TakesText([flags](const std::string& v) { flags->tls_cert_file = v; })});
  command_line->Add({.name = "tls_key",
                     .placeholder = "FILE",
                     .help = "PEM private key of --tls_cert.",
                     .set = TakesText([flags](const std::string& v) { flags->tls_key_file = v; })});
  command_line->Add(
      {.name = "auth_token",
       .placeholder = "TOKEN",
       .help = "Bearer token to show to the server; others may see it in the list of "
               "processes.",
       .set = TakesText([flags](const std::string& v) { flags->options.auth_token = v; })});
  command_line->Add(
      {.name = "auth_token_file",
       .placeholder = "FILE",
       .help = "File with the bearer token on its first line.",
       .set = TakesText([flags](const std::string& v) { flags->auth_token_file = v; })});
}

absl::Status ParseWithConnection(const CommandLine& command_line,
                                 const std::vector<std::string>& arguments, ConnectionFlags* flags,
                                 std::vector<std::string>* positional) {
  absl::StatusOr<std::vector<std::string>> parsed = command_line.Parse(arguments);
  if (!parsed.ok()) return parsed.status();
  if (positional != nullptr) {
    *positional = *std::move(parsed);
  } else if (!parsed->empty()) {
    return absl::InvalidArgumentError(absl::StrCat("takes no argument such as ", parsed->front()));
  }
  return LoadFiles(flags);
}

}  // namespace vitrine::client
