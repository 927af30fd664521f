# The kernels, one op per file: compiled by nvcc for devices, and as C++ for the emulator.
set(VITRINE_CUDA_KERNELS
  adjust_logits
  attention_decode
  attention_prefill
  attention_reduce
  attention_rows
  attention_scalar
  embed
  gather_rows
  layer_norm
  logprobs
  mat_mul_exact
  mat_mul_large
  mat_mul_small
  pack_rows
  rms_norm
  rms_norm_add
  rope_write_kv
  sample)
# Host code of the backend, which sees kernels through their launchers alone.
set(VITRINE_CUDA_HOST_SOURCES
  cuda_backend.cc
  cuda_check.cc
  cuda_storage.cc
  recorded_steps.cc
  staging.cc
  weight_packing.cc)
