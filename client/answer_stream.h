// One streamed answer, from the request to the last line on stderr.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cancellation.h"
#include "client/generate_client.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

struct AnswerOptions {
  bool json = false;             // One object per event instead of text and usage.
  bool always_end_line = false;  // Also where stdout is no terminal.
};

struct StreamedAnswer {
  std::string request_id;  // Empty: the request was not accepted.
  std::string text;        // Of choice 0.
};

// Prints the answer as it comes and checks the stream. `answer` receives what came, also of an
// answer that was cut short. DATA_LOSS for a broken stream, else the server's status.
absl::Status StreamAnswer(GenerateClient* client, const v1::GenerateRequest& request,
                          const AnswerOptions& options, Cancellation* cancellation,
                          StreamedAnswer* answer);

}  // namespace vitrine::client
