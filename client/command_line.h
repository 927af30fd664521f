// A typed, table-driven parser for the flags of one subcommand: --name=value, --name value, and
// switches --name, --name=false. "--" ends the flags, "-" alone is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vitrine::client {

// Reads one value and stores it. INVALID_ARGUMENT says what is expected; the parser adds the name.
using FlagSetter = std::function<absl::Status(std::string_view value)>;

// Setters by type. Each calls `store` with a value inside its range.
FlagSetter TakesSwitch(std::function<void(bool)> store);
FlagSetter TakesText(std::function<void(const std::string&)> store);
// Any of `allowed`; the index of the one given is stored.
FlagSetter TakesOneOf(std::vector<std::string> allowed, std::function<void(size_t)> store);
FlagSetter TakesInteger(int64_t min, int64_t max, std::function<void(int64_t)> store);
FlagSetter TakesUint32(std::function<void(uint32_t)> store);
FlagSetter TakesUint64(std::function<void(uint64_t)> store);
// Every value of the type, NaN and infinities included: whoever receives it knows the rule.
FlagSetter TakesFloat(std::function<void(float)> store);
FlagSetter TakesPositive(std::function<void(double)> store);
// "1.5s", "200ms", "2m"; a bare number is seconds. At least 0.
FlagSetter TakesDuration(std::function<void(std::chrono::nanoseconds)> store);
// "1,2,3": at least one unsigned 32-bit integer.
FlagSetter TakesIds(std::function<void(const std::vector<uint32_t>&)> store);

struct Flag {
  std::string name;         // Without dashes.
  std::string placeholder;  // What the value is called in the help; empty = a switch.
  std::string help;         // One sentence: meaning, range, default.
  FlagSetter set;
  bool repeatable = false;
  char short_name = '\0';  // 'm' for -m; none by default.
};

class CommandLine {
 public:
  // `arguments` describes what follows the command's name ("[PROMPT|-]"), `summary` is one
  // sentence.
  CommandLine(std::string command, std::string arguments, std::string summary);

  // Starts a titled group of flags in the help.
  void Section(std::string title);
  // The name must be new.
  void Add(Flag flag);

  // Calls the setters in the order given and returns the arguments that are no flags. CANCELLED
  // after --help, which goes to stdout; INVALID_ARGUMENT names the flag and the rule. Nothing that
  // the setters capture may have gone.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& arguments) const;

  const std::string& command() const { return command_; }

  // Several lines: usage, summary, flags.
  std::string Help() const;

 private:
  struct Entry {
    Flag flag;
    std::string section_before;
  };

  const Entry* Find(std::string_view name) const;
  const Entry* FindShort(char name) const;

  std::string command_;
  std::string arguments_;
  std::string summary_;
  std::string next_section_;
  std::vector<Entry> entries_;
};

}  // namespace vitrine::client
