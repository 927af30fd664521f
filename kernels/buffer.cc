#include "kernels/buffer.h"

#include <utility>

namespace vitrine {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(deleter_, other.deleter_);
  std::swap(context_, other.context_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) deleter_(context_, data_, bytes_);
}

}  // namespace vitrine
