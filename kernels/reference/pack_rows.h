#pragma once

#include "kernels/pack_rows.h"

namespace vitrine::reference {

void PackRows(const PackRowsArgs& args);

}  // namespace vitrine::reference
