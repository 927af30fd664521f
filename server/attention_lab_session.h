// The lab as a conversation: a command per line, answers as text.
#pragma once

#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/attention_lab_examples.h"

namespace vitrine::server {

// Not thread-safe.
class LabSession {
 public:
  // `prompt` is printed before a line is read; empty where no person types.
  LabSession(LabSetup setup, std::istream& in, std::ostream& out, std::string prompt);

  // Prints the example and takes commands until "quit" or the end of the input. False when a
  // command was wrong.
  bool Run();

  // Asks for the top key of every query (or of the one of interest) before it shows the row.
  // Ends early where the input ends.
  absl::Status Quiz();

 private:
  absl::Status Execute(const std::vector<std::string>& words);
  absl::Status Edit(const std::vector<std::string>& words);
  absl::Status SetQuery(std::string_view name);
  absl::Status SetCausal(std::string_view value);
  absl::Status Show();
  absl::Status Sweep();
  // Takes the change only if the op accepts it; shows the result.
  absl::Status Try(LabSetup changed);
  bool ReadLine(const std::string& prompt, std::string& line);

  LabSetup setup_;
  std::istream& in_;
  std::ostream& out_;
  const std::string prompt_;
};

}  // namespace vitrine::server
