#pragma once

#include "kernels/paged_attention.h"
#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

// scratch.scores holds the scores of the longest sequence.
void PagedAttention(const PagedAttentionArgs& args, Scratch& scratch);

}  // namespace vitrine::reference
