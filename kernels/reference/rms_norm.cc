#include "kernels/reference/rms_norm.h"

#include <cmath>

#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

void RmsNorm(const RmsNormArgs& args) {
  const int columns = args.output->columns();
  const float* weight = args.weight.data();
  for (int r = 0; r < args.rows; ++r) {
    const float* input = args.input.data() + int64_t{r} * columns;
    float* output = AsRows(args.output).Row(r);
    double squares = 0;
    for (int c = 0; c < columns; ++c) squares += double{input[c]} * input[c];
    const double scale = 1 / std::sqrt(squares / columns + args.epsilon);
    for (int c = 0; c < columns; ++c) output[c] = static_cast<float>(input[c] * scale * weight[c]);
  }
}

}  // namespace vitrine::reference
