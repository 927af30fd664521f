// Made-up attention with the shape of a real one: rows that sum to 1, a sink, nothing above the
// diagonal. Three layers of two heads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "vitrine/v1/attention.pb.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::client {

inline constexpr uint32_t kFakeLayers = 3;
inline constexpr uint32_t kFakeHeads = 2;

// 0 for keys behind the query.
double FakeWeight(uint32_t layer, uint32_t head, uint32_t query, uint32_t key);

// The chunks of a whole trace, one layer each where layers stay apart: rows of the prompt together,
// the others one by one. Knows every output but TILE, token spans, and no scores.
std::vector<v1::AttentionChunk> FakeTrace(const v1::AttentionSpec& spec,
                                          const std::string& request_id, uint32_t prompt_tokens,
                                          uint32_t all_tokens);

// Keeps "r-1": the prompt "A cat sat." and the answer " on it", a token per byte. "off" is refused
// as by a server without inspection, "cut" breaks off; all others are not known.
class FakeInspection final : public v1::Inspection::Service {
 public:
  grpc::Status GetAttention(grpc::ServerContext* context, const v1::GetAttentionRequest* request,
                            grpc::ServerWriter<v1::AttentionChunk>* writer) override;
  grpc::Status GetRequest(grpc::ServerContext* context, const v1::GetRequestRequest* request,
                          v1::GetRequestResponse* response) override;
};

}  // namespace vitrine::client
