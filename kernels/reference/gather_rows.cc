#include "kernels/reference/gather_rows.h"

namespace vitrine::reference {

void GatherRows(const GatherRowsArgs& args) {
  float* output = args.output.data();
  for (const int32_t id : args.row_ids) {
    const float* row = args.input.data() + int64_t{id} * args.columns;
    for (int c = 0; c < args.columns; ++c) *output++ = row[c];
  }
}

}  // namespace vitrine::reference
