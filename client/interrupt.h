// Ctrl-C: the first asks for an orderly end, the second ends the process at once.
#pragma once

#include <functional>

namespace vitrine::client {

// Takes SIGINT and SIGTERM away from the whole process and calls `on_interrupt` for the first one
// on a thread of its own; one more exits with 128 + its number. Call once, before any other thread
// exists. `on_interrupt` must be callable until the process ends.
void WatchInterrupts(std::function<void()> on_interrupt);

// Makes the next interrupt a first one again.
void ForgetInterrupt();

}  // namespace vitrine::client
