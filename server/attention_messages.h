// Chunks of a trace as messages.
#pragma once

#include <string_view>

#include "server/trace_chunk.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::server {

// Takes the chunk's data; its credit stays with the caller.
v1::AttentionChunk MakeAttentionChunk(TraceChunk& chunk, std::string_view request_id,
                                      const TraceOrigin& origin);

}  // namespace vitrine::server
