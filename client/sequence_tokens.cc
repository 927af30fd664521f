#include "client/sequence_tokens.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cancellation.h"
#include "client/generate_client.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

// Gives every token without bytes those that the server has for its id.
absl::Status AskForBytes(GenerateClient* client, Cancellation* cancellation,
                         SequenceTokens* tokens) {
  std::map<uint32_t, std::string> known;
  for (size_t i = 0; i < tokens->ids.size(); ++i) {
    if (!tokens->bytes[i].empty()) continue;
    const uint32_t id = tokens->ids[i];
    auto found = known.find(id);
    if (found == known.end()) {
      v1::DetokenizeRequest request;
      request.add_token_ids(id);
      const absl::StatusOr<v1::DetokenizeResponse> response =
          client->Detokenize(request, cancellation);
      if (!response.ok()) return response.status();
      found = known.emplace(id, response->text()).first;
    }
    tokens->bytes[i] = found->second;
  }
  return absl::OkStatus();
}

void SliceText(const std::string& text, const v1::TokenizeResponse& tokenized,
               SequenceTokens* tokens) {
  const auto& offsets = tokenized.byte_offsets();
  if (static_cast<size_t>(offsets.size()) != tokens->ids.size() + 1) return;
  for (size_t i = 0; i < tokens->ids.size(); ++i) {
    const size_t begin = offsets[static_cast<int>(i)];
    const size_t end = offsets[static_cast<int>(i) + 1];
    if (begin <= end && end <= text.size()) tokens->bytes[i] = text.substr(begin, end - begin);
  }
}

}  // namespace

absl::StatusOr<SequenceTokens> TokensOfIds(GenerateClient* client, std::vector<uint32_t> ids,
                                           size_t prompt_tokens, Cancellation* cancellation) {
  SequenceTokens tokens = {.prompt_tokens = prompt_tokens, .ids = std::move(ids), .bytes = {}};
  tokens.bytes.resize(tokens.ids.size());
  absl::Status status = AskForBytes(client, cancellation, &tokens);
  if (!status.ok()) return status;
  return tokens;
}

absl::StatusOr<SequenceTokens> TokensOfPrompt(GenerateClient* client,
                                              const v1::GenerateRequest& request,
                                              Cancellation* cancellation) {
  if (request.has_token_ids()) {
    const auto& ids = request.token_ids().ids();
    return TokensOfIds(client, {ids.begin(), ids.end()}, static_cast<size_t>(ids.size()),
                       cancellation);
  }
  v1::TokenizeRequest tokenize;
  tokenize.set_model(request.model());
  if (request.has_chat()) {
    *tokenize.mutable_chat() = request.chat();
  } else {
    tokenize.set_text(request.text());
  }
  if (request.has_parse_special()) tokenize.set_parse_special(request.parse_special());
  const absl::StatusOr<v1::TokenizeResponse> tokenized = client->Tokenize(tokenize, cancellation);
  if (!tokenized.ok()) return tokenized.status();
  SequenceTokens tokens;
  tokens.ids.assign(tokenized->token_ids().begin(), tokenized->token_ids().end());
  tokens.prompt_tokens = tokens.ids.size();
  tokens.bytes.resize(tokens.ids.size());
  if (request.has_text()) SliceText(request.text(), *tokenized, &tokens);
  absl::Status status = AskForBytes(client, cancellation, &tokens);
  if (!status.ok()) return status;
  return tokens;
}

}  // namespace vitrine::client
