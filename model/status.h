// The two macros that pass errors on, and nothing else.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define VITRINE_RETURN_IF_ERROR(expression)                             \
  do {                                                                  \
    if (absl::Status status_macro = (expression); !status_macro.ok()) { \
      return status_macro;                                              \
    }                                                                   \
  } while (false)

#define VITRINE_STATUS_CONCAT_INNER(a, b) a##b
#define VITRINE_STATUS_CONCAT(a, b) VITRINE_STATUS_CONCAT_INNER(a, b)

#define VITRINE_ASSIGN_OR_RETURN(target, expression)                               \
  auto VITRINE_STATUS_CONCAT(status_or_, __LINE__) = (expression);                 \
  if (!VITRINE_STATUS_CONCAT(status_or_, __LINE__).ok()) {                         \
    return std::move(VITRINE_STATUS_CONCAT(status_or_, __LINE__)).status();        \
  }                                                                                \
  /* NOLINTNEXTLINE(bugprone-macro-parentheses): `target` may be a declaration. */ \
  target = *std::move(VITRINE_STATUS_CONCAT(status_or_, __LINE__))
