#include "client/answer_stream.h"

#include <string>

#include "absl/status/status.h"
#include "client/answer_printer.h"
#include "client/cancellation.h"
#include "client/generate_client.h"
#include "client/output.h"
#include "client/stream_check.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

void AppendFirstChoice(const v1::GenerateEvent& event, std::string* text) {
  for (const v1::Token& token : event.tokens().tokens()) {
    if (token.choice() == 0) text->append(token.text());
  }
  if (event.choice_finished().choice() == 0) text->append(event.choice_finished().tail_text());
}

}  // namespace

absl::Status StreamAnswer(GenerateClient* client, const v1::GenerateRequest& request,
                          const AnswerOptions& options, Cancellation* cancellation,
                          StreamedAnswer* answer) {
  AnswerPrinter printer(request.output().return_token_ids_only());
  StreamCheck check;
  // The first thing that went wrong on this side of the stream.
  absl::Status own = absl::OkStatus();
  absl::Status status =
      client->Generate(request, cancellation, [&](const v1::GenerateEvent& event) {
        if (own.ok()) own = check.Add(event);
        if (own.ok() && !options.json) own = printer.Print(event);
        if (own.ok() && options.json && !WriteOut(ToJson(event) + "\n")) {
          own = absl::UnknownError("cannot write the answer");
        }
        if (event.has_accepted()) answer->request_id = event.accepted().request_id();
        AppendFirstChoice(event, &answer->text);
        if (!own.ok()) cancellation->Cancel();
      });
  if (status.ok()) status = check.End();
  if (!own.ok()) status = own;
  if (!options.json) {
    printer.EndLine(options.always_end_line);
    printer.PrintLogprobs();
    printer.PrintUsage();
  }
  return status;
}

}  // namespace vitrine::client
