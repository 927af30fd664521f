// cp.async: the destination becomes garbage at issue and the bytes move at the wait that covers
// their group, so a missing or too lenient wait is always visible.
#pragma once
#include "cuda_emulator/options.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {

struct Thread;
// Copies 16 bytes, or writes zeros when !valid (src is then not read).
void AsyncCopy16(void* dst, const void* src, bool valid, Site site);
void AsyncCommit();
// Completes all but the newest `keep` groups.
void AsyncWait(unsigned keep);
// A thread that returns completes its copies.
void FinishAsyncCopies(Thread* thread);

}  // namespace vitrine::emu
