#include "kernels/cuda/recorded_steps.h"

namespace vitrine::cuda {
namespace {

// More shapes than buckets of batch sizes and contexts give. A graph of 300 kernels takes some
// hundred KiB of device memory.
constexpr size_t kMostRecordings = 128;

}  // namespace

void RecordedSteps::Run(uint64_t shape, absl::FunctionRef<void()> enqueue) {
  const auto found = recordings_.find(shape);
  if (found == recordings_.end()) {
    if (recordings_.size() < kMostRecordings) recordings_.try_emplace(shape);
    return enqueue();
  }
  Recording& recording = found->second;
  if (recording.graph == nullptr) Record(recording, enqueue);
  recording.arrays.Update(staging_);
  if (DeviceFault() == cudaSuccess) CheckCuda(cudaGraphLaunch(recording.graph.get(), stream_));
}

void RecordedSteps::Record(Recording& recording, absl::FunctionRef<void()> enqueue) {
  staging_.StartRecording(recording.arrays);
  // Relaxed: staging may still have to allocate.
  CheckCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  enqueue();
  cudaGraph_t graph = nullptr;
  CheckCuda(cudaStreamEndCapture(stream_, &graph));
  staging_.StopRecording();
  cudaGraphExec_t executable = nullptr;
  CheckCuda(cudaGraphInstantiate(&executable, graph, 0));
  recording.graph.reset(executable);
  CheckCuda(cudaGraphDestroy(graph));
}

}  // namespace vitrine::cuda
