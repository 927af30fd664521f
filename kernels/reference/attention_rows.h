#pragma once

#include "kernels/attention_rows.h"

namespace vitrine::reference {

void AttentionRows(const AttentionRowsArgs& args);

}  // namespace vitrine::reference
