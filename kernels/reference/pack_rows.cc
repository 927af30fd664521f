#include "kernels/reference/pack_rows.h"

#include <algorithm>

#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

void PackRows(const PackRowsArgs& args) {
  const int columns = args.output->columns();
  for (int r = 0; r < args.rows; ++r) {
    std::copy_n(args.input.data() + int64_t{r} * columns, columns, AsRows(args.output).Row(r));
  }
}

}  // namespace vitrine::reference
