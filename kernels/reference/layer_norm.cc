#include "kernels/reference/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

void LayerNorm(const LayerNormArgs& args) {
  const int columns = args.output->columns();
  for (int r = 0; r < args.rows; ++r) {
    const float* input = args.input.data() + int64_t{r} * columns;
    float* output = AsRows(args.output).Row(r);
    double mean = 0;
    for (int c = 0; c < columns; ++c) mean += input[c];
    mean /= columns;
    double variance = 0;
    for (int c = 0; c < columns; ++c) variance += (input[c] - mean) * (input[c] - mean);
    const double scale = 1 / std::sqrt(variance / columns + args.epsilon);
    for (int c = 0; c < columns; ++c) {
      const double bias = args.bias.empty() ? 0.0 : args.bias.data()[c];
      output[c] = static_cast<float>((input[c] - mean) * scale * args.weight.data()[c] + bias);
    }
    if (args.normalized.empty()) continue;
    std::copy_n(output, columns, args.normalized.data() + int64_t{r} * columns);
  }
}

}  // namespace vitrine::reference
