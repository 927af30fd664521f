# What the project around tests/cuda_emulator otherwise provides, for a build of kernels and
# emulator alone under MemorySanitizer (clang). GoogleTest and libstdc++ are not instrumented:
# what they write counts as initialised.
set(VITRINE_SANITIZE memory)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
find_package(GTest CONFIG REQUIRED)
enable_testing()
find_program(VITRINE_CCACHE ccache)
set(ignorelist ${CMAKE_CURRENT_LIST_DIR}/msan_ignorelist.txt)
if(VITRINE_CCACHE)
  # By itself it takes no notice of what the list holds.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_EXTRAFILES=${ignorelist} ${VITRINE_CCACHE})
endif()

add_library(vitrine_build_flags INTERFACE)
target_include_directories(vitrine_build_flags INTERFACE ${VITRINE_ROOT})
target_compile_options(vitrine_build_flags INTERFACE
  -O1 -g1 -Wall -Wextra -Werror -Wno-deprecated-declarations -ffp-contract=off -fno-math-errno
  -fsanitize=memory -fsanitize-memory-track-origins
  -fsanitize-ignorelist=${ignorelist})
target_link_options(vitrine_build_flags INTERFACE -fsanitize=memory)

add_custom_target(tsan_tests)

# Absurd sizes are refused by our code, as malloc refuses them: the sanitizer must not abort first.
set(msan_options allocator_may_return_null=1)
find_program(VITRINE_SYMBOLIZER NAMES llvm-symbolizer-22 llvm-symbolizer)
if(VITRINE_SYMBOLIZER)
  string(APPEND msan_options " external_symbolizer_path=${VITRINE_SYMBOLIZER}")
endif()

function(vitrine_test_properties name)
  set_tests_properties(${name} PROPERTIES
    TIMEOUT 1200 ENVIRONMENT "MSAN_OPTIONS=${msan_options}")
endfunction()

function(vitrine_test name)
  cmake_parse_arguments(ARG "" "" "LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE vitrine_build_flags ${ARG_LIBS} GTest::gmock_main)
  add_test(NAME ${name} COMMAND ${name})
  vitrine_test_properties(${name})
endfunction()

# The kernels' contract with the cuda backend and the reference, and the tests of ops.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
set(contract backend.cc backend_factory.cc block_formats.cc buffer.cc dtype.cc sampling_math.cc)
list(TRANSFORM contract PREPEND ${VITRINE_ROOT}/kernels/)
add_library(vitrine_kernels STATIC ${contract} ${CMAKE_CURRENT_LIST_DIR}/cpu_backend_absent.cc)
target_link_libraries(vitrine_kernels PUBLIC vitrine_build_flags absl::function_ref absl::status
  absl::statusor absl::strings Threads::Threads)
add_subdirectory(${VITRINE_ROOT}/kernels/reference reference)

include(${VITRINE_ROOT}/tests/kernels/ops_tests.cmake)
list(TRANSFORM VITRINE_OPS_TEST_SUPPORT PREPEND ${VITRINE_ROOT}/tests/kernels/)
list(TRANSFORM VITRINE_OPS_TESTS PREPEND ${VITRINE_ROOT}/tests/kernels/)
add_library(vitrine_kernels_test_support STATIC ${VITRINE_OPS_TEST_SUPPORT})
target_link_libraries(vitrine_kernels_test_support
  PUBLIC vitrine_kernels GTest::gtest nlohmann_json::nlohmann_json)
target_compile_definitions(vitrine_kernels_test_support PRIVATE
  VITRINE_TEST_DATA="${VITRINE_ROOT}/tests/data")
add_library(kernels_ops_test OBJECT ${VITRINE_OPS_TESTS})
target_link_libraries(kernels_ops_test PRIVATE vitrine_kernels_test_support GTest::gmock)
