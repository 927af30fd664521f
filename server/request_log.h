// One structured line to stderr per ended request. It never holds prompt or answer text.
#pragma once

#include "server/request.h"
#include "server/token_sink.h"

namespace vitrine::server {

void LogRequestEnd(const ActiveRequest& request, const AnswerEnd& end);

}  // namespace vitrine::server
