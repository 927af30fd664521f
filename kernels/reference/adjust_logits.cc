#include "kernels/reference/adjust_logits.h"

#include "kernels/sampling_math.h"

namespace vitrine::reference {

void AdjustLogits(const AdjustLogitsArgs& args) {
  const auto vocabulary = static_cast<size_t>(args.vocabulary);
  for (size_t i = 0; i < args.adjustments.size(); ++i) {
    const LogitAdjustment& adjustment = args.adjustments[i];
    const float* logits = args.logits.data() + static_cast<size_t>(adjustment.row) * vocabulary;
    AdjustLogitsRow({logits, vocabulary}, adjustment,
                    {args.output.data() + i * vocabulary, vocabulary});
  }
}

}  // namespace vitrine::reference
