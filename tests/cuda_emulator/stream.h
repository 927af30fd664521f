// Streams, events and graphs. By default work runs when it is issued; in deferred mode only
// when something waits for it, and other streams make random progress meanwhile, so a missing
// wait gives a wrong result instead of luck.
#pragma once
#include <driver_types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

struct CUgraph_st {
  std::vector<std::function<void()>> operations;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> operations;
};
struct CUstream_st {
  std::deque<std::function<void()>> queue;
  uint64_t issued = 0, done = 0;
  bool busy = false;  // an operation of this stream is under way
  CUgraph_st* capture = nullptr;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t ticket = 0;  // the event has happened when stream->done reaches this
  std::chrono::steady_clock::time_point time{};
};

namespace vitrine::emu {

// Guards all state of the emulated device; recursive because work may issue work.
std::recursive_mutex& DeviceMutex();

cudaStream_t CreateStream();
// Finishes the stream's work first.
void DestroyStream(cudaStream_t stream);
// Null means the legacy default stream, which waits for all others.
void Enqueue(cudaStream_t stream, std::function<void()> operation);
// Runs the stream's work up to and including operation number `ticket`.
void DrainTo(cudaStream_t stream, uint64_t ticket);
void DrainAll();
void Synchronize(cudaStream_t stream);

void RecordEvent(cudaEvent_t event, cudaStream_t stream);
void WaitEvent(cudaStream_t stream, cudaEvent_t event);
// Polling makes progress: an event that is not ready lets its stream run one operation.
bool QueryEvent(cudaEvent_t event);

}  // namespace vitrine::emu
