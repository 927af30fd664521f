#include "server/attention_lab_command.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "model/status.h"
#include "server/attention_lab.h"
#include "server/attention_lab_examples.h"
#include "server/attention_lab_report.h"
#include "server/attention_lab_session.h"

ABSL_FLAG(std::string, tokens, "", "attention-lab: names of the tokens, with commas between");
ABSL_FLAG(std::string, x, "", "attention-lab: q, k and v at once, \"1,0;0,2\": a row per token");
ABSL_FLAG(std::string, q, "", "attention-lab: what each token asks for");
ABSL_FLAG(std::string, k, "", "attention-lab: what each token offers");
ABSL_FLAG(std::string, v, "", "attention-lab: what each token passes on");
ABSL_FLAG(std::string, causal, "", "attention-lab: on or off; hides later tokens");
ABSL_FLAG(std::string, scale, "", "attention-lab: sqrt_d (1/sqrt(d)), off or a number");
ABSL_FLAG(std::string, query, "", "attention-lab: a token, shown key by key, or all");
ABSL_FLAG(bool, sweep, false, "attention-lab: how softmax saturates as d grows");
ABSL_FLAG(bool, quiz, false, "attention-lab: asks for each top key before it is shown");
ABSL_FLAG(bool, interactive, false, "attention-lab: takes commands on standard input");

namespace vitrine::server {
namespace {

struct LabFlags {
  std::string tokens = absl::GetFlag(FLAGS_tokens);
  std::string x = absl::GetFlag(FLAGS_x);
  std::string q = absl::GetFlag(FLAGS_q);
  std::string k = absl::GetFlag(FLAGS_k);
  std::string v = absl::GetFlag(FLAGS_v);
  std::string causal = absl::GetFlag(FLAGS_causal);
  std::string scale = absl::GetFlag(FLAGS_scale);
  std::string query = absl::GetFlag(FLAGS_query);
  bool sweep = absl::GetFlag(FLAGS_sweep);
  bool quiz = absl::GetFlag(FLAGS_quiz);
  bool interactive = absl::GetFlag(FLAGS_interactive);

  bool has_numbers() const {
    return !tokens.empty() || !x.empty() || !q.empty() || !k.empty() || !v.empty();
  }
};

absl::Status FlagError(absl::string_view flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", status.message()));
}

std::vector<std::string> Letters(int count) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(count));
  for (int t = 0; t < count; ++t) {
    names.push_back(t < 26 ? std::string(1, static_cast<char>('A' + t)) : absl::StrCat("t", t));
  }
  return names;
}

absl::Status ReadNumbers(const LabFlags& flags, LabSetup& setup) {
  if (!flags.has_numbers()) return absl::OkStatus();
  setup.name = "own";
  setup.summary = "the numbers given";
  setup.query.reset();
  setup.features.clear();
  const auto read = [](absl::string_view flag, const std::string& text, LabMatrix& matrix) {
    if (text.empty()) return absl::OkStatus();
    absl::StatusOr<LabMatrix> parsed = ParseLabMatrix(text);
    if (!parsed.ok()) return FlagError(flag, parsed.status());
    matrix = *std::move(parsed);
    return absl::OkStatus();
  };
  VITRINE_RETURN_IF_ERROR(read("x", flags.x, setup.q));
  if (!flags.x.empty()) setup.k = setup.v = setup.q;
  VITRINE_RETURN_IF_ERROR(read("q", flags.q, setup.q));
  VITRINE_RETURN_IF_ERROR(read("k", flags.k, setup.k));
  VITRINE_RETURN_IF_ERROR(read("v", flags.v, setup.v));
  if (!flags.tokens.empty()) {
    setup.tokens = absl::StrSplit(flags.tokens, ',');
  } else if (setup.q.rows != static_cast<int>(setup.tokens.size())) {
    setup.tokens = Letters(setup.q.rows);
  }
  return absl::OkStatus();
}

absl::Status ReadSwitches(const LabFlags& flags, LabSetup& setup) {
  if (!flags.causal.empty()) {
    if (flags.causal != "on" && flags.causal != "off") {
      return FlagError("causal", absl::InvalidArgumentError("takes on or off"));
    }
    setup.causal = flags.causal == "on";
  }
  if (!flags.scale.empty()) {
    const absl::Status status = ParseLabScale(flags.scale, setup);
    if (!status.ok()) return FlagError("scale", status);
  }
  if (flags.query == "all") {
    setup.query.reset();
  } else if (!flags.query.empty()) {
    const absl::StatusOr<int> query = FindLabToken(setup, flags.query);
    if (!query.ok()) return FlagError("query", query.status());
    setup.query = *query;
  }
  return absl::OkStatus();
}

absl::Status CheckModes(const LabFlags& flags, bool json) {
  const int modes = (flags.sweep ? 1 : 0) + (flags.quiz ? 1 : 0) + (flags.interactive ? 1 : 0);
  if (modes > 1) {
    return absl::InvalidArgumentError("--sweep, --quiz and --interactive exclude each other");
  }
  if (json && (flags.quiz || flags.interactive)) {
    return absl::InvalidArgumentError("--json does not go with --quiz and --interactive");
  }
  return absl::OkStatus();
}

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

absl::Status PrintSweep(bool json) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<SweepRow> sweep, SweepColumns());
  Print(json ? LabSweepJson(sweep) : LabSweepText(sweep));
  return absl::OkStatus();
}

absl::Status PrintSteps(const LabSetup& setup, bool json) {
  VITRINE_ASSIGN_OR_RETURN(const LabResult result, RunLab(setup.Input()));
  if (json) {
    Print(LabJson(setup, result));
    return absl::OkStatus();
  }
  Print(absl::StrCat(
      LabInputText(setup), "\n",
      setup.query ? LabQueryText(setup, result, *setup.query) : LabTablesText(setup, result)));
  return absl::OkStatus();
}

}  // namespace

std::string LabFlagInUse() {
  const LabFlags flags;
  const std::pair<const char*, bool> given[] = {{"tokens", !flags.tokens.empty()},
                                                {"x", !flags.x.empty()},
                                                {"q", !flags.q.empty()},
                                                {"k", !flags.k.empty()},
                                                {"v", !flags.v.empty()},
                                                {"causal", !flags.causal.empty()},
                                                {"scale", !flags.scale.empty()},
                                                {"query", !flags.query.empty()},
                                                {"sweep", flags.sweep},
                                                {"quiz", flags.quiz},
                                                {"interactive", flags.interactive}};
  for (const auto& [name, is_given] : given) {
    if (is_given) return name;
  }
  return "";
}

absl::Status RunAttentionLab(const std::vector<std::string>& arguments, bool json) {
  const LabFlags flags;
  VITRINE_RETURN_IF_ERROR(CheckModes(flags, json));
  VITRINE_ASSIGN_OR_RETURN(LabSetup setup,
                           FindLabExample(arguments.empty() ? "toy" : arguments.front()));
  VITRINE_RETURN_IF_ERROR(ReadNumbers(flags, setup));
  VITRINE_RETURN_IF_ERROR(ReadSwitches(flags, setup));
  VITRINE_RETURN_IF_ERROR(RunLab(setup.Input()).status());

  const bool nothing_given = arguments.empty() && !json && LabFlagInUse().empty();
  if (flags.sweep) return PrintSweep(json);
  if (!flags.interactive && !flags.quiz && !nothing_given) return PrintSteps(setup, json);
  const bool is_typed = isatty(STDIN_FILENO) != 0;
  LabSession session(std::move(setup), std::cin, std::cout, is_typed ? "lab> " : "");
  if (flags.quiz) return session.Quiz();
  return session.Run() ? absl::OkStatus() : absl::InvalidArgumentError("a command was refused");
}

}  // namespace vitrine::server
