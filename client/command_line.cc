#include "client/command_line.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace vitrine::client {
namespace {

constexpr size_t kHelpColumn = 32;
constexpr size_t kHelpWidth = 98;

absl::Status Expected(std::string_view what, std::string_view value) {
  constexpr size_t kMaxQuoted = 60;
  std::string quoted(value.substr(0, kMaxQuoted));
  if (value.size() > kMaxQuoted) quoted += "...";
  return absl::InvalidArgumentError(
      absl::StrCat("takes ", std::string(what), ", not '", quoted, "'"));
}

// The whole of `text` must be the number.
template <typename Number>
bool ParseNumber(std::string_view text, Number* number) {
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && parsed == end;
}

template <typename Number>
FlagSetter TakesNumber(std::string what, std::function<void(Number)> store) {
  return [what = std::move(what), store = std::move(store)](std::string_view value) {
    Number number{};
    if (!ParseNumber(value, &number)) return Expected(what, value);
    store(number);
    return absl::OkStatus();
  };
}

// Appends `text` in lines of at most kHelpWidth, continued at kHelpColumn.
void AppendWrapped(std::string_view text, std::string* out) {
  size_t column = kHelpColumn;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!first && column + 1 + word.size() > kHelpWidth) {
      out->append("\n").append(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (!first) {
      out->push_back(' ');
      ++column;
    }
    out->append(word);
    column += word.size();
    first = false;
  }
  out->push_back('\n');
}

}  // namespace

FlagSetter TakesSwitch(std::function<void(bool)> store) {
  return [store = std::move(store)](std::string_view value) {
    if (value != "true" && value != "false") return Expected("true or false", value);
    store(value == "true");
    return absl::OkStatus();
  };
}

FlagSetter TakesText(std::function<void(const std::string&)> store) {
  return [store = std::move(store)](std::string_view value) {
    store(std::string(value));
    return absl::OkStatus();
  };
}

FlagSetter TakesOneOf(std::vector<std::string> allowed, std::function<void(size_t)> store) {
  return [allowed = std::move(allowed), store = std::move(store)](std::string_view value) {
    const auto found = std::find(allowed.begin(), allowed.end(), value);
    if (found == allowed.end()) {
      return Expected(absl::StrCat("one of ", absl::StrJoin(allowed, ", ")), value);
    }
    store(static_cast<size_t>(found - allowed.begin()));
    return absl::OkStatus();
  };
}

FlagSetter TakesInteger(int64_t min, int64_t max, std::function<void(int64_t)> store) {
  return [min, max, store = std::move(store)](std::string_view value) {
    int64_t number = 0;
    if (!ParseNumber(value, &number) || number < min || number > max) {
      return Expected(absl::StrCat("an integer from ", min, " to ", max), value);
    }
    store(number);
    return absl::OkStatus();
  };
}

FlagSetter TakesUint32(std::function<void(uint32_t)> store) {
  return TakesNumber<uint32_t>("an integer from 0 to 4294967295", std::move(store));
}

FlagSetter TakesUint64(std::function<void(uint64_t)> store) {
  return TakesNumber<uint64_t>("an integer from 0 to 18446744073709551615", std::move(store));
}

FlagSetter TakesFloat(std::function<void(float)> store) {
  return TakesNumber<float>("a number", std::move(store));
}

FlagSetter TakesPositive(std::function<void(double)> store) {
  return [store = std::move(store)](std::string_view value) {
    double number = 0.0;
    if (!ParseNumber(value, &number) || !std::isfinite(number) || number <= 0.0) {
      return Expected("a number above 0", value);
    }
    store(number);
    return absl::OkStatus();
  };
}

FlagSetter TakesDuration(std::function<void(std::chrono::nanoseconds)> store) {
  return [store = std::move(store)](std::string_view value) {
    constexpr double kMaxSeconds = 365.0 * 86400.0;
    double seconds = 0.0;
    const char* end = value.data() + value.size();
    const auto [parsed, error] = std::from_chars(value.data(), end, seconds);
    const std::string_view unit(parsed, static_cast<size_t>(end - parsed));
    if (unit == "ms") {
      seconds /= 1000.0;
    } else if (unit == "us") {
      seconds /= 1e6;
    } else if (unit == "m") {
      seconds *= 60.0;
    } else if (unit == "h") {
      seconds *= 3600.0;
    }
    const bool known_unit =
        unit.empty() || unit == "s" || unit == "ms" || unit == "us" || unit == "m" || unit == "h";
    // Written so that NaN fails.
    const bool in_range = seconds >= 0.0 && seconds <= kMaxSeconds;
    if (error != std::errc() || !known_unit || !in_range) {
      return Expected("a time such as 1.5s, 200ms or 2m, up to a year", value);
    }
    store(std::chrono::nanoseconds(static_cast<int64_t>(std::llround(seconds * 1e9))));
    return absl::OkStatus();
  };
}

FlagSetter TakesIds(std::function<void(const std::vector<uint32_t>&)> store) {
  return [store = std::move(store)](std::string_view value) {
    std::vector<uint32_t> ids;
    std::string_view rest = value;
    while (true) {
      const size_t comma = rest.find(',');
      uint32_t id = 0;
      if (!ParseNumber(rest.substr(0, comma), &id)) {
        return Expected("ids from 0 to 4294967295 with commas between", value);
      }
      ids.push_back(id);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    store(ids);
    return absl::OkStatus();
  };
}

CommandLine::CommandLine(std::string command, std::string arguments, std::string summary)
    : command_(std::move(command)),
      arguments_(std::move(arguments)),
      summary_(std::move(summary)) {}

void CommandLine::Section(std::string title) { next_section_ = std::move(title); }

void CommandLine::Add(Flag flag) {
  entries_.push_back({.flag = std::move(flag), .section_before = std::move(next_section_)});
  next_section_.clear();
}

const CommandLine::Entry* CommandLine::Find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.flag.name == name) return &entry;
  }
  return nullptr;
}

const CommandLine::Entry* CommandLine::FindShort(char name) const {
  for (const Entry& entry : entries_) {
    if (entry.flag.short_name == name) return &entry;
  }
  return nullptr;
}

absl::StatusOr<std::vector<std::string>> CommandLine::Parse(
    const std::vector<std::string>& arguments) const {
  std::vector<std::string> positional;
  std::set<std::string> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") {
      positional.insert(positional.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                        arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      positional.emplace_back(argument);
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      std::fputs(Help().c_str(), stdout);
      return absl::CancelledError("help was asked for");
    }
    const bool is_short = argument[1] != '-';
    const size_t equals = is_short ? std::string_view::npos : argument.find('=');
    const std::string shown(argument.substr(0, equals));
    const Entry* entry = nullptr;
    if (!is_short) {
      entry = Find(argument.substr(2, equals == std::string_view::npos ? equals : equals - 2));
    } else if (argument.size() == 2) {
      entry = FindShort(argument[1]);
    }
    if (entry == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown flag ", shown));
    const Flag& flag = entry->flag;
    if (!seen.insert(flag.name).second && !flag.repeatable) {
      return absl::InvalidArgumentError(absl::StrCat(shown, " is given twice"));
    }
    std::string_view value = "true";
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (!flag.placeholder.empty()) {
      if (++i == arguments.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(shown, " needs a value: ", flag.placeholder));
      }
      value = arguments[i];
    }
    if (absl::Status status = flag.set(value); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag.name, " ", status.message()));
    }
  }
  return positional;
}

std::string CommandLine::Help() const {
  std::string help =
      absl::StrCat("usage: vitrine ", command_, " [FLAGS] ", arguments_, "\n", summary_, "\n");
  for (const Entry& entry : entries_) {
    if (!entry.section_before.empty()) absl::StrAppend(&help, "\n", entry.section_before, ":\n");
    const Flag& flag = entry.flag;
    std::string left = "  ";
    if (flag.short_name != '\0') absl::StrAppend(&left, "-", std::string(1, flag.short_name), ", ");
    absl::StrAppend(&left, "--", flag.name);
    if (!flag.placeholder.empty()) absl::StrAppend(&left, "=", flag.placeholder);
    if (left.size() + 1 > kHelpColumn) {
      absl::StrAppend(&help, left, "\n", std::string(kHelpColumn, ' '));
    } else {
      absl::StrAppend(&help, left, std::string(kHelpColumn - left.size(), ' '));
    }
    AppendWrapped(absl::StrCat(flag.help, flag.repeatable ? " Repeatable." : ""), &help);
  }
  return help;
}

}  // namespace vitrine::client
