// The subcommands. Each reads its own flags, talks to the server and returns an ExitCode.
#pragma once

#include <string>
#include <vector>

#include "client/cancellation.h"

namespace vitrine::client {

// `arguments`: what follows the command's name. `cancellation` fires on Ctrl-C.
using CommandFunction = int(const std::vector<std::string>& arguments, Cancellation* cancellation);

CommandFunction RunGenerate;
CommandFunction RunChat;
CommandFunction RunTokenize;
CommandFunction RunAttention;
CommandFunction RunDescribe;
CommandFunction RunLoad;
CommandFunction RunHealth;
CommandFunction RunBench;

}  // namespace vitrine::client
