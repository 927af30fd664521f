// Packing: from the blocks of a file to the planes of packed_panels.h.
#pragma once

#include "kernels/cpu/packed_panels.h"

namespace vitrine::cpu {

// Packs one panel to `target`, which is zeroed. Any thread.
void PackPanel(const PanelSource& source, int64_t columns, uint8_t* target);

}  // namespace vitrine::cpu
