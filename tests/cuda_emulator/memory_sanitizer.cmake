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
if(VITRINE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${VITRINE_CCACHE})
endif()

add_library(vitrine_build_flags INTERFACE)
target_include_directories(vitrine_build_flags INTERFACE ${VITRINE_ROOT})
target_compile_options(vitrine_build_flags INTERFACE
  -O1 -g1 -Wall -Wextra -Werror -Wno-deprecated-declarations -ffp-contract=off -fno-math-errno
  -fsanitize=memory -fsanitize-memory-track-origins
  -fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/msan_ignorelist.txt)
target_link_options(vitrine_build_flags INTERFACE -fsanitize=memory)

add_custom_target(tsan_tests)

function(vitrine_test_properties name)
  set_tests_properties(${name} PROPERTIES TIMEOUT 1200)
endfunction()

function(vitrine_test name)
  cmake_parse_arguments(ARG "" "" "LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE vitrine_build_flags ${ARG_LIBS} GTest::gmock_main)
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# The kernels' contract with the cuda backend alone, and the tests of ops.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
set(contract backend.cc backend_factory.cc block_formats.cc buffer.cc dtype.cc sampling_math.cc)
list(TRANSFORM contract PREPEND ${VITRINE_ROOT}/kernels/)
add_library(vitrine_kernels STATIC ${contract} ${CMAKE_CURRENT_LIST_DIR}/other_backends_absent.cc)
target_link_libraries(vitrine_kernels PUBLIC vitrine_build_flags absl::function_ref absl::status
  absl::statusor absl::strings Threads::Threads)

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
