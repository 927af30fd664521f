#include "kernels/reference/activated_mat_mul.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/check.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {
namespace {

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
  }
  VITRINE_CHECK(false);
  return 0;
}

// output[r, n] = dot(input[r], weight[weight_row]) + bias[weight_row], activated or, for the up
// half, multiplied to what is there.
void Project(const ActivatedMatMulArgs& args, int64_t weight_row, int64_t n, bool is_up) {
  const Matrix& weight = AsMatrix(args.weight);
  const float* row = weight.Row(weight_row);
  const double bias = args.bias.empty() ? 0.0 : args.bias.data()[weight_row];
  for (int r = 0; r < args.rows; ++r) {
    const double y = Dot(AsRows(args.input).Row(r), row, weight.columns()) + bias;
    float& output = AsRows(args.output).Row(r)[n];
    output = static_cast<float>(is_up ? output * y : Activate(args.activation, y));
  }
}

}  // namespace

void ActivatedMatMul(const ActivatedMatMulArgs& args) {
  const int64_t f = args.output->columns();
  for (int64_t n = 0; n < f; ++n) Project(args, n, n, /*is_up=*/false);
  if (args.weight->layout() != RowLayout::kGateUp) return;
  for (int64_t n = 0; n < f; ++n) Project(args, f + n, n, /*is_up=*/true);
}

}  // namespace vitrine::reference
