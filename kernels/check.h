// Assertions for what cannot happen. User input and operating errors never reach them: those are
// absl::Status. Both stay on in every build.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace vitrine::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

template <class A, class B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* condition, const A& a,
                                const B& b) {
  std::ostringstream values;
  values << condition << " (" << a << " vs. " << b << ")";
  CheckFailed(file, line, values.str().c_str());
}

}  // namespace vitrine::internal

#define VITRINE_CHECK(condition) \
  ((condition) ? (void)0 : ::vitrine::internal::CheckFailed(__FILE__, __LINE__, #condition))

#define VITRINE_CHECK_OP(a, op, b)                                                                 \
  do {                                                                                             \
    const auto& check_a = (a);                                                                     \
    const auto& check_b = (b);                                                                     \
    if (!(check_a op check_b)) {                                                                   \
      ::vitrine::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
    }                                                                                              \
  } while (false)

#define VITRINE_CHECK_EQ(a, b) VITRINE_CHECK_OP(a, ==, b)
#define VITRINE_CHECK_LE(a, b) VITRINE_CHECK_OP(a, <=, b)
#define VITRINE_CHECK_LT(a, b) VITRINE_CHECK_OP(a, <, b)
