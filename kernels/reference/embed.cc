#include "kernels/reference/embed.h"

#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

void Embed(const EmbedArgs& args) {
  const Matrix& table = AsMatrix(args.table);
  float* output = args.output.data();
  for (const int32_t id : args.token_ids) {
    const float* row = table.Row(id);
    for (int64_t c = 0; c < table.columns(); ++c) *output++ = args.scale * row[c];
  }
}

}  // namespace vitrine::reference
