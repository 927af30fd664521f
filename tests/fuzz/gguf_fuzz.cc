// Any bytes as a model file: parsed, read as a config and as a tokenizer, or refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/gguf.h"
#include "model/gguf_families.h"
#include "model/tensor_map.h"
#include "model/tokenizer.h"
#include "tests/model/gguf_builder.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

// A start from which what lies behind the header is reached: one tensor, so that most mutations hit
// the metadata.
const std::string& ValidFile() {
  static const auto* const kBytes = new std::string([] {
    vitrine::GgufBuilder builder = vitrine::TinyLlama();
    builder.tensors.erase(builder.tensors.begin(), builder.tensors.end() - 1);
    return builder.Bytes();
  }());
  return *kBytes;
}

// What another reader would check: every tensor's bytes lie inside the file, and no two meet.
void CheckSound(const vitrine::GgufFile& file, std::string_view bytes) {
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  for (const vitrine::TensorView& tensor : file.tensors()) {
    ranges.emplace_back(tensor.data, tensor.data + tensor.bytes);
    if (tensor.data < begin || tensor.data + tensor.bytes > begin + bytes.size()) std::abort();
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i - 1].second > ranges[i].first) std::abort();
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  const std::string& valid = ValidFile();
  if (random() % 8 == 0 && valid.size() <= max_size) {
    size = valid.copy(reinterpret_cast<char*>(data), max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto file = vitrine::GgufFile::Parse(bytes, "fuzz.gguf");
  if (!file.ok()) return 0;
  CheckSound(**file, bytes);
  const auto model = vitrine::DescribeGguf(**file, **file);
  if (model.ok()) (void)vitrine::MapTensors(model->config, **file, model->names).status();
  const auto tokenizer = vitrine::CreateTokenizer(**file);
  if (!tokenizer.ok()) return 0;
  const auto encoding = (*tokenizer)->Encode("abcd \xc3\xa9", {.parse_special = true});
  if (!encoding.ok()) return 0;
  for (const vitrine::TokenId id : encoding->ids) (void)(*tokenizer)->TokenBytes(id);
  return 0;
}
