// Warp and block rendezvous. A collective is computed once, by the lane that arrives last,
// for all lanes: each leaves a pointer to its arguments, which live on its suspended stack.
#pragma once
#include "cuda_emulator/block.h"
#include "cuda_emulator/options.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {

// Waits for every live lane of `mask`, runs `fn`, returns when the scheduler says so. Gives no
// memory ordering, as in CUDA. `name` and `fn` must be the same for all lanes.
void WarpCollective(const char* name, unsigned mask, void* args, CollectiveFn fn, Site site);
// __syncwarp: the same with memory ordering.
void WarpBarrier(unsigned mask, Site site);
// __syncthreads and its voting forms.
Vote BlockBarrier(bool predicate, Site site);
// Completes the collective that `thread` waits in when every live lane of its mask is there.
void TryWarp(Thread* thread);
// Lets other threads run.
void Yield();
// griddepcontrol.wait: notes that the calling thread may now read what the previous kernel wrote.
void NoteDependencyWait();
unsigned LaneId();
unsigned LiveMask();

}  // namespace vitrine::emu
