#include "kernels/reference/mat_mul.h"

#include <cmath>

#include "kernels/reference/dot.h"
#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

void MatMul(const MatMulArgs& args) {
  const Matrix& weight = AsMatrix(args.weight);
  for (int64_t n = 0; n < weight.rows(); ++n) {
    const float* weight_row = weight.Row(n);
    const double bias = args.bias.empty() ? 0.0 : args.bias.data()[n];
    for (int r = 0; r < args.rows; ++r) {
      double y = Dot(AsRows(args.input).Row(r), weight_row, weight.columns()) + bias;
      y *= args.output_scale;
      if (args.softcap > 0) y = args.softcap * std::tanh(y / args.softcap);
      float& output = args.output.data()[r * weight.rows() + n];
      output = static_cast<float>(args.add_to_output ? output + y : y);
    }
  }
}

}  // namespace vitrine::reference
