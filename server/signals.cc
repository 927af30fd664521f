#include "server/signals.h"

#include <signal.h>

#include <chrono>
#include <cstdlib>

namespace vitrine::server {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);

sigset_t Watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR2);  // Ends the watching thread.
  return set;
}

}  // namespace

SignalWatcher::SignalWatcher() {
  const sigset_t set = Watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A client that closes its socket is an error code, not the end of the process.
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  is_over_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void SignalWatcher::Run() {
  const sigset_t set = Watched();
  for (;;) {
    int signal_number = 0;
    sigwait(&set, &signal_number);
    if (is_over_) return;
    if (signal_number == SIGUSR2) continue;
    if (!is_serving_) std::_Exit(0);
    ++count_;
  }
}

void SignalWatcher::WaitForFirst(absl::FunctionRef<bool()> is_over) const {
  while (count_ == 0 && !is_over()) std::this_thread::sleep_for(kPoll);
}

}  // namespace vitrine::server
