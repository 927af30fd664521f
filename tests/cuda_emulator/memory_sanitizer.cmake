# What the project around tests/cuda_emulator otherwise provides, for a build of kernels and
# emulator alone under MemorySanitizer (clang). GoogleTest and libstdc++ are not instrumented:
# what they write counts as initialised.
set(VITRINE_SANITIZE memory)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
find_package(GTest CONFIG REQUIRED)
enable_testing()

add_library(vitrine_build_flags INTERFACE)
target_include_directories(vitrine_build_flags INTERFACE ${VITRINE_ROOT})
target_compile_options(vitrine_build_flags INTERFACE
  -O1 -g1 -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno
  -fsanitize=memory -fsanitize-memory-track-origins
  -fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/msan_ignorelist.txt)
target_link_options(vitrine_build_flags INTERFACE -fsanitize=memory)

function(vitrine_test name)
  cmake_parse_arguments(ARG "" "" "LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE vitrine_build_flags ${ARG_LIBS} GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
endfunction()
