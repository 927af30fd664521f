#include "cuda_emulator/stream.h"

#include <utility>

#include "cuda_emulator/options.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {
namespace {

std::vector<cudaStream_t>& Streams() {
  static auto* const streams = new std::vector<cudaStream_t>;
  return *streams;
}
cudaStream_t DefaultStream() {
  static auto* const stream = new CUstream_st;
  return stream;
}

void RunOne(cudaStream_t s) {
  const auto operation = std::move(s->queue.front());
  s->queue.pop_front();
  s->busy = true;
  struct Done {  // also when the kernel was stopped
    cudaStream_t s;
    ~Done() {
      s->busy = false;
      ++s->done;
    }
  } done{s};
  operation();
}

// Lets every stream but `waited` get somewhere, or not. A stream whose operation is under way
// must not start its next one: its operations run one after another.
void RandomProgress(cudaStream_t waited) {
  for (cudaStream_t s : Streams()) {
    if (s == waited || s->busy || Random(2) != 0) continue;
    for (uint64_t n = Random(s->queue.size() + 1); n > 0 && !s->queue.empty(); --n) RunOne(s);
  }
}

}  // namespace

std::recursive_mutex& DeviceMutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

cudaStream_t CreateStream() {
  Streams().push_back(new CUstream_st);
  return Streams().back();
}

void DestroyStream(cudaStream_t stream) {
  DrainTo(stream, stream->issued);
  std::erase(Streams(), stream);
  delete stream;
}

void DrainTo(cudaStream_t stream, uint64_t ticket) {
  if (options().deferred_streams) RandomProgress(stream);
  while (stream->done < ticket && !stream->queue.empty()) RunOne(stream);
}

void DrainAll() {
  for (cudaStream_t s : Streams()) DrainTo(s, s->issued);
  DrainTo(DefaultStream(), DefaultStream()->issued);
}

void Synchronize(cudaStream_t stream) {
  if (stream == nullptr) return DrainAll();
  DrainTo(stream, stream->issued);
}

void Enqueue(cudaStream_t stream, std::function<void()> operation) {
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->operations.push_back(std::move(operation));
    return;
  }
  const bool legacy = stream == nullptr;
  if (legacy) {
    DrainAll();
    stream = DefaultStream();
  }
  stream->queue.push_back(std::move(operation));
  ++stream->issued;
  if (!options().deferred_streams || legacy) DrainTo(stream, stream->issued);
}

void RecordEvent(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream != nullptr ? stream : DefaultStream();
  event->ticket = event->stream->issued;
  event->time = std::chrono::steady_clock::now();
}

void WaitEvent(cudaStream_t stream, cudaEvent_t event) {
  Enqueue(stream, [source = event->stream, ticket = event->ticket] {
    if (source != nullptr) DrainTo(source, ticket);
  });
}

bool QueryEvent(cudaEvent_t event) {
  if (event->stream == nullptr || event->stream->done >= event->ticket) return true;
  if (!event->stream->queue.empty()) RunOne(event->stream);
  return false;
}

}  // namespace vitrine::emu
