#include "kernels/reference/scatter_add.h"

namespace vitrine::reference {

void ScatterAdd(const ScatterAddArgs& args) {
  const float* input = args.input.data();
  for (size_t i = 0; i < args.row_ids.size(); ++i) {
    float* row = args.output.data() + int64_t{args.row_ids[i]} * args.columns;
    for (int c = 0; c < args.columns; ++c) row[c] += args.scales[i] * *input++;
  }
}

}  // namespace vitrine::reference
