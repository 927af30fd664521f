#pragma once

#include "kernels/gather_rows.h"

namespace vitrine::reference {

void GatherRows(const GatherRowsArgs& args);

}  // namespace vitrine::reference
