#pragma once

#include "kernels/reference/reference_storage.h"
#include "kernels/rope_write_kv.h"

namespace vitrine::reference {

void RopeWriteKv(const RopeWriteKvArgs& args);

// scratch.qkv holds [batch rows, weight rows].
void MatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args, Scratch& scratch);

}  // namespace vitrine::reference
