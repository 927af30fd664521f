#include "kernels/reference/sample.h"

#include "kernels/sampling_math.h"

namespace vitrine::reference {

void Sample(const SampleArgs& args) {
  const auto vocabulary = static_cast<size_t>(args.vocabulary);
  for (size_t r = 0; r < args.rows.size(); ++r) {
    args.token_ids.data()[r] = SampleToken({args.SourceOf(r), vocabulary}, args.rows[r]);
  }
}

}  // namespace vitrine::reference
