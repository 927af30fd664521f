// Whether an address can be listened on, before the seconds that loading a model takes.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace vitrine::server {

// `listen` is HOST:PORT or unix:PATH. UNAVAILABLE when another process listens there, or the
// address is not of this machine. It may still be taken between this call and the listening.
absl::Status CheckListenAddressIsFree(const std::string& listen);

}  // namespace vitrine::server
