// A regular file mapped read-only into memory. Whoever truncates the file while it is mapped ends
// the process (SIGBUS): replace model files by renaming, never in place.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace vitrine {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file, empty). Messages name the
  // last path component only. Never blocks on a FIFO or a device.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}

  void* data_ = nullptr;
  size_t size_ = 0;
};

// What follows the last slash of `path`; trailing slashes do not count.
std::string LastPathComponent(std::string_view path);

}  // namespace vitrine
