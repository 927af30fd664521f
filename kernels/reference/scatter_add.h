#pragma once

#include "kernels/scatter_add.h"

namespace vitrine::reference {

void ScatterAdd(const ScatterAddArgs& args);

}  // namespace vitrine::reference
