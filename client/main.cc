// vitrine: the command line of a vitrine server.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "client/cancellation.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/interrupt.h"

namespace vitrine::client {
namespace {

struct Command {
  std::string_view name;
  const char* summary;
  CommandFunction* run;
};

constexpr Command kCommands[] = {
    {"generate", "continues a prompt and streams the text", RunGenerate},
    {"chat", "talks with the model", RunChat},
    {"tokenize", "text to token ids, or back", RunTokenize},
    {"attention", "shows which tokens each token looked at", RunAttention},
    {"describe", "the model served, its limits and abilities", RunDescribe},
    {"load", "how busy the server is", RunLoad},
    {"health", "whether the server takes requests", RunHealth},
    {"bench", "sends a load and prints throughput and latencies", RunBench},
};

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

void PrintCommands(std::FILE* out) {
  std::fputs("usage: vitrine COMMAND [FLAGS] [ARGUMENT]\n\n", out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", std::string(command.name).c_str(), command.summary);
  }
  std::fputs("\nSee: vitrine help COMMAND\n", out);
}

int Run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    PrintCommands(stderr);
    return kUsageError;
  }
  std::string name = arguments[0];
  const bool help = name == "help" || name == "--help" || name == "-h";
  if (help && arguments.size() == 1) {
    PrintCommands(stdout);
    return kOk;
  }
  arguments.erase(arguments.begin());
  if (help) {
    name = arguments[0];
    arguments = {"--help"};
  }
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    std::fprintf(stderr, "vitrine: unknown command %s\n", name.c_str());
    PrintCommands(stderr);
    return kUsageError;
  }
  // Lives until the process ends, because the interrupt's thread does.
  auto* const cancellation = new Cancellation;
  WatchInterrupts([cancellation] { cancellation->Cancel(); });
  return command->run(arguments, cancellation);
}

}  // namespace
}  // namespace vitrine::client

int main(int argc, char** argv) {
  return vitrine::client::Run(std::vector<std::string>(argv + 1, argv + argc));
}
