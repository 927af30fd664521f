// Arrays in a file that numpy.load reads: an uncompressed zip of .npy files (numpy's format
// description, version 1.0; PKWARE's APPNOTE, sections 4.3 and 4.4, without zip64).
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace vitrine::client {

// One file; not thread-safe. After an error every further call returns it.
class NpzWriter {
 public:
  // Overwrites `path`.
  explicit NpzWriter(const std::string& path);

  // `shape` row-major; {} is a scalar. Element counts must agree.
  void Add(std::string_view name, const std::vector<size_t>& shape,
           const std::vector<float>& values);
  void Add(std::string_view name, const std::vector<size_t>& shape,
           const std::vector<uint32_t>& values);
  // Byte strings, padded with NUL to the longest.
  void Add(std::string_view name, const std::vector<std::string>& values);

  // Writes the directory. UNKNOWN when the file takes no more, RESOURCE_EXHAUSTED beyond 4 GiB.
  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    uint32_t crc = 0;
    uint32_t bytes = 0;
    uint32_t offset = 0;
  };

  // `type`: numpy's, such as "<f4".
  void AddBytes(std::string_view name, std::string_view type, const std::vector<size_t>& shape,
                std::string_view data);
  void Write(std::string_view data);

  std::ofstream file_;
  uint64_t written_ = 0;
  std::vector<Entry> entries_;
  absl::Status status_;
};

}  // namespace vitrine::client
