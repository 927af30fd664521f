// Kept requests as messages.
#pragma once

#include <cstdint>

#include "server/request_record.h"
#include "vitrine/v1/inspection.pb.h"

namespace vitrine::server {

// `kept_for_us`: kNever while the request lives.
v1::GetRequestResponse MakeRequestResponse(const RequestRecord& record, int64_t kept_for_us);
v1::RequestSummary MakeRequestSummary(const RequestRecord& record);

}  // namespace vitrine::server
