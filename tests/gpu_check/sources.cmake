# gpu_check's own files: compiled for a device here, and against the emulator in
# tests/cuda_emulator.
set(VITRINE_GPU_CHECK_SOURCES
  kernel_speed.cc
  main.cc
  models_test.cc
  report.cc
  step_speed.cc
  stopwatch.cc
  synthetic_model.cc
  wrappers_test.cc)
set(VITRINE_GPU_CHECK_KERNELS
  device_limits.cu
  ptx_wrappers.cu)
