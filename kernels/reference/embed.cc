#include "kernels/reference/embed.h"

#include "kernels/reference/reference_storage.h"

namespace vitrine::reference {

void Embed(const EmbedArgs& args) {
  const Matrix& table = AsMatrix(args.table);
  float* output = args.output.data();
  for (const int32_t id : args.token_ids) {
    const float* row = table.Row(TokenOf(id, args.drawn.data()));
    for (int64_t c = 0; c < table.columns(); ++c) *output++ = args.scale * row[c];
  }
  if (args.position_table.empty()) return;
  ForEachRow(*args.batch, [&](int, int row, int position) {
    const float* learned = args.position_table.data() + position * table.columns();
    float* values = args.output.data() + row * table.columns();
    for (int64_t c = 0; c < table.columns(); ++c) values[c] += learned[c];
  });
}

}  // namespace vitrine::reference
