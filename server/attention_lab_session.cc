#include "server/attention_lab_session.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "model/status.h"
#include "server/attention_lab.h"
#include "server/attention_lab_report.h"

namespace vitrine::server {
namespace {

constexpr char kHelp[] =
    "  show                  all steps of the current example\n"
    "  input                 q, k and v\n"
    "  example NAME          toy, animal, street, journey\n"
    "  query TOKEN | all     one query key by key, or tables of all\n"
    "  q|k|v|x TOKEN NUMBERS sets a token's vector; x sets all three\n"
    "  causal on|off         hides later tokens\n"
    "  scale sqrt_d|off|NUMBER\n"
    "  sweep                 how softmax saturates as d grows, with and without the scale\n"
    "  quiz [NAME]           guess the top keys, of another example, before they are shown\n"
    "  quit\n"
    "TOKEN is its text or its index.\n";

}  // namespace

LabSession::LabSession(LabSetup setup, std::istream& in, std::ostream& out, std::string prompt)
    : setup_(std::move(setup)), in_(in), out_(out), prompt_(std::move(prompt)) {}

bool LabSession::Run() {
  bool all_well = true;
  const auto report = [&](const absl::Status& status) {
    if (status.ok()) return;
    all_well = false;
    out_ << "error: " << status.message() << "\n";
  };
  out_ << LabInputText(setup_) << "\n";
  report(Show());
  if (!prompt_.empty()) out_ << "\n\"help\" lists the commands\n";
  std::string line;
  while (ReadLine(prompt_, line)) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (words[0] == "quit" || words[0] == "exit") break;
    report(Execute(words));
  }
  return all_well;
}

bool LabSession::ReadLine(const std::string& prompt, std::string& line) {
  out_ << prompt << std::flush;
  return static_cast<bool>(std::getline(in_, line));
}

absl::Status LabSession::Execute(const std::vector<std::string>& words) {
  const std::string& command = words[0];
  if (words.size() == 1) {
    if (command == "show") return Show();
    if (command == "sweep") return Sweep();
    if (command == "quiz") return Quiz();
    if (command == "input" || command == "help") {
      out_ << (command == "help" ? std::string(kHelp) : LabInputText(setup_));
      return absl::OkStatus();
    }
  }
  if (words.size() == 2) {
    if (command == "quiz") {
      // Nothing is shown before the guess.
      VITRINE_ASSIGN_OR_RETURN(setup_, FindLabExample(words[1]));
      out_ << LabInputText(setup_) << "\n";
      return Quiz();
    }
    if (command == "query") return SetQuery(words[1]);
    if (command == "causal") return SetCausal(words[1]);
    if (command == "example") {
      VITRINE_ASSIGN_OR_RETURN(setup_, FindLabExample(words[1]));
      out_ << LabInputText(setup_) << "\n";
      return Show();
    }
    if (command == "scale") {
      LabSetup changed = setup_;
      VITRINE_RETURN_IF_ERROR(ParseLabScale(words[1], changed));
      return Try(std::move(changed));
    }
  }
  if (words.size() > 2 && (command == "q" || command == "k" || command == "v" || command == "x")) {
    return Edit(words);
  }
  return absl::InvalidArgumentError("no such command; \"help\" lists them");
}

absl::Status LabSession::SetQuery(std::string_view name) {
  if (name == "all") {
    setup_.query.reset();
  } else {
    VITRINE_ASSIGN_OR_RETURN(setup_.query, FindLabToken(setup_, name));
  }
  return Show();
}

absl::Status LabSession::SetCausal(std::string_view value) {
  if (value != "on" && value != "off") return absl::InvalidArgumentError("causal takes on or off");
  setup_.causal = value == "on";
  return Show();
}

absl::Status LabSession::Edit(const std::vector<std::string>& words) {
  VITRINE_ASSIGN_OR_RETURN(const int token, FindLabToken(setup_, words[1]));
  VITRINE_ASSIGN_OR_RETURN(const LabMatrix row,
                           ParseLabMatrix(absl::StrJoin(words.begin() + 2, words.end(), " ")));
  LabSetup changed = setup_;
  const std::pair<const char*, LabMatrix*> targets[] = {
      {"q", &changed.q}, {"k", &changed.k}, {"v", &changed.v}};
  for (const auto& [name, matrix] : targets) {
    if (words[0] != name && words[0] != "x") continue;
    if (row.rows != 1 || row.columns != matrix->columns) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " takes ", matrix->columns, " numbers, not ", row.values.size()));
    }
    std::copy(row.values.begin(), row.values.end(),
              matrix->values.begin() + std::ptrdiff_t{token} * matrix->columns);
  }
  return Try(std::move(changed));
}

absl::Status LabSession::Try(LabSetup changed) {
  VITRINE_RETURN_IF_ERROR(RunLab(changed.Input()).status());
  setup_ = std::move(changed);
  return Show();
}

absl::Status LabSession::Show() {
  VITRINE_ASSIGN_OR_RETURN(const LabResult result, RunLab(setup_.Input()));
  out_ << (setup_.query ? LabQueryText(setup_, result, *setup_.query)
                        : LabTablesText(setup_, result));
  return absl::OkStatus();
}

absl::Status LabSession::Sweep() {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<SweepRow> sweep, SweepColumns());
  out_ << LabSweepText(sweep);
  return absl::OkStatus();
}

absl::Status LabSession::Quiz() {
  VITRINE_ASSIGN_OR_RETURN(const LabResult result, RunLab(setup_.Input()));
  const auto tokens = static_cast<int>(setup_.tokens.size());
  int asked = 0;
  int right = 0;
  for (int query = setup_.query.value_or(0); query < tokens; ++query) {
    const std::string question =
        absl::StrFormat("Which key gets the most weight from \"%s\" (token %d)? ",
                        setup_.tokens[static_cast<size_t>(query)], query);
    std::string line;
    if (!ReadLine(question, line)) break;
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    const absl::StatusOr<int> guess = FindLabToken(setup_, {stripped.data(), stripped.size()});
    if (!guess.ok()) {
      out_ << guess.status().message() << "\n";
      --query;
      continue;
    }
    const std::vector<int> top = LabTopKeys(result, query);
    const bool is_right = std::find(top.begin(), top.end(), *guess) != top.end();
    ++asked;
    right += is_right ? 1 : 0;
    out_ << (is_right ? "Right.\n\n" : "No.\n\n") << LabQueryText(setup_, result, query) << "\n";
    if (setup_.query) break;
  }
  out_ << absl::StrFormat("%d of %d right\n", right, asked);
  return absl::OkStatus();
}

}  // namespace vitrine::server
