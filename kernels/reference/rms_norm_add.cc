#include "kernels/reference/rms_norm_add.h"

#include <cmath>
#include <cstdint>

namespace vitrine::reference {

void RmsNormAdd(const RmsNormAddArgs& args) {
  for (int r = 0; r < args.rows; ++r) {
    const float* input = args.input.data() + int64_t{r} * args.columns;
    float* output = args.output.data() + int64_t{r} * args.columns;
    double squares = 0;
    for (int c = 0; c < args.columns; ++c) squares += double{input[c]} * input[c];
    const double scale = 1 / std::sqrt(squares / args.columns + args.epsilon);
    for (int c = 0; c < args.columns; ++c) {
      output[c] = static_cast<float>(output[c] + input[c] * scale * args.weight.data()[c]);
    }
  }
}

}  // namespace vitrine::reference
