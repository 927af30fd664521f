// A pointer and a length in backend memory. There is no operator[], so that host code cannot
// dereference it by accident; backends whose memory is host memory use data().
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels/check.h"

namespace vitrine {

template <class T>
class DeviceSpan {
 public:
  constexpr DeviceSpan() = default;
  constexpr DeviceSpan(T* data, size_t size) : data_(data), size_(size) {}

  // From a span of mutable elements to one of const elements.
  template <class U>
    requires(std::is_same_v<const U, T>)
  // NOLINTNEXTLINE(google-explicit-constructor): mirrors std::span's qualification conversion.
  constexpr DeviceSpan(DeviceSpan<U> other) : data_(other.data()), size_(other.size()) {}

  constexpr T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }

  DeviceSpan subspan(size_t offset, size_t count) const {
    VITRINE_CHECK_LE(offset, size_);
    VITRINE_CHECK_LE(count, size_ - offset);
    return {data_ + offset, count};
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace vitrine
