// Finds the pointers of a kernel's arguments, also inside structs.
//
// A struct is an aggregate, so it can be made from one Probe per field: each is asked to become its
// field's type, in order, and so learns the type. Where the field lies follows from the sizes and
// alignments of those before it.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace vitrine::emu {

// Throws when argument `index`, or a field of it, points to memory that no cudaMalloc or
// cudaMallocHost returned.
void CheckPointer(const void* p, int index);
// Throws: the fields of argument `index` were not found where they are.
[[noreturn]] void FailLayout(int index);

namespace fields {

struct Cursor {
  const char* base = nullptr;
  size_t offset = 0;
  int index = 0;
};

template <class T>
void Check(const T& value, int index);

template <class Aggregate>
struct Probe {
  Cursor* cursor = nullptr;

  // Not Aggregate itself: the probe would be taken for a copy of the whole.
  template <class Field>
    requires(!std::is_same_v<Field, Aggregate>)
  operator Field() const {
    const size_t at = (cursor->offset + alignof(Field) - 1) / alignof(Field) * alignof(Field);
    cursor->offset = at + sizeof(Field);
    if (cursor->offset <= sizeof(Aggregate)) {
      Check(*reinterpret_cast<const Field*>(cursor->base + at), cursor->index);
    }
    return {};
  }
};

template <class T, size_t kUnused>
using ProbeFor = Probe<T>;

template <class T, size_t... kFields>
constexpr bool CanHold(std::index_sequence<kFields...>) {
  return requires { T{ProbeFor<T, kFields>{}...}; };
}

template <class T, size_t kCount = 0>
constexpr size_t CountOf() {
  if constexpr (CanHold<T>(std::make_index_sequence<kCount + 1>())) {
    return CountOf<T, kCount + 1>();
  } else {
    return kCount;
  }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-braces"  // An array takes one probe per element.
template <class T, size_t... kFields>
void CheckFields(const T& value, int index, std::index_sequence<kFields...>) {
  Cursor cursor{reinterpret_cast<const char*>(&value), 0, index};
  [[maybe_unused]] const T unused{ProbeFor<T, kFields>{&cursor}...};
  const size_t end = (cursor.offset + alignof(T) - 1) / alignof(T) * alignof(T);
  if (end != sizeof(T)) FailLayout(index);
}
#pragma GCC diagnostic pop

template <class T>
void Check(const T& value, int index) {
  if constexpr (std::is_pointer_v<T>) {
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) CheckPointer(value, index);
  } else if constexpr (!std::is_arithmetic_v<T> && !std::is_enum_v<T>) {
    static_assert(std::is_aggregate_v<T>,
                  "kernel arguments are numbers, pointers or plain structs");
    CheckFields(value, index, std::make_index_sequence<CountOf<T>()>());
  }
}

}  // namespace fields

template <class T>
void CheckArgument(const T& value, int index) {
  fields::Check(value, index);
}

}  // namespace vitrine::emu
