// Any bytes as a safetensors file: tensors that cover the data without gap or overlap, or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "model/safetensors.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr char kHeader[] =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

std::string WithLength(std::string_view header_and_data, uint64_t header_bytes) {
  std::string bytes(sizeof(header_bytes), '\0');
  std::memcpy(bytes.data(), &header_bytes, sizeof(header_bytes));
  return bytes.append(header_and_data);
}

}  // namespace

// Keeps the length true more often than chance would, so that the header is read.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  if (random() % 8 == 0 || size < sizeof(uint64_t)) {
    const std::string valid =
        WithLength(std::string(kHeader) + std::string(32, 'x'), sizeof(kHeader) - 1);
    return valid.copy(reinterpret_cast<char*>(data), max_size);
  }
  size = LLVMFuzzerMutate(data, size, max_size);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.rfind('}');
  if (random() % 4 != 0 && end != std::string_view::npos && end >= sizeof(uint64_t)) {
    const uint64_t header_bytes = end + 1 - sizeof(uint64_t);
    std::memcpy(data, &header_bytes, sizeof(header_bytes));
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto file = vitrine::SafetensorsFile::Parse(bytes, "fuzz.safetensors");
  if (!file.ok()) return 0;
  size_t covered = 0;
  for (const vitrine::TensorView& tensor : (*file)->tensors()) {
    size_t expected = vitrine::RowBytes(tensor.dtype, 1);
    for (const int64_t dimension : tensor.shape) expected *= static_cast<size_t>(dimension);
    const bool has_our_type = tensor.other_type.empty();
    if (has_our_type && tensor.bytes != expected) std::abort();
    if ((*file)->Find(tensor.name) != &tensor) std::abort();
    covered += tensor.bytes;
  }
  const auto header_bytes = size - sizeof(uint64_t) - covered;
  uint64_t stated = 0;
  std::memcpy(&stated, data, sizeof(stated));
  if (stated != header_bytes) std::abort();
  return 0;
}
