# gpu_check's own files: compiled for a device here, and against the emulator in
# tests/cuda_emulator.
set(VITRINE_GPU_CHECK_SOURCES
  blas_lt.cc
  blas_lt_test.cc
  kernel_speed.cc
  main.cc
  models_test.cc
  random_weights_test.cc
  report.cc
  step_speed.cc
  stopwatch.cc
  synthetic_model.cc
  wrappers_test.cc)
set(VITRINE_GPU_CHECK_KERNELS
  device_limits.cu
  ptx_wrappers.cu
  random_weights.cu)
# Of the program over the emulated device.
set(VITRINE_GPU_CHECK_REPORT_TEST report_test.cc)
# In place of cuBLASLt over the emulated device.
set(VITRINE_GPU_CHECK_STAND_IN blas_lt_stand_in.cc)
