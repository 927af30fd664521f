#include "client/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

namespace vitrine::client {
namespace {

std::atomic<bool> interrupted = false;

}  // namespace

void WatchInterrupts(std::function<void()> on_interrupt) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // Threads made later inherit the mask, so only sigwait sees these signals.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, on_interrupt = std::move(on_interrupt)] {
    while (true) {
      int number = 0;
      if (sigwait(&signals, &number) != 0) continue;
      if (interrupted.exchange(true)) _exit(128 + number);
      on_interrupt();
    }
  }).detach();
}

void ForgetInterrupt() { interrupted = false; }

}  // namespace vitrine::client
