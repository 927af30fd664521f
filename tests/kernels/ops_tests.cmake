# The tests that run on every backend, and what they share.
set(VITRINE_OPS_TESTS
  activated_mat_mul_test.cc
  adjust_logits_test.cc
  attention_inspection_test.cc
  backend_test.cc
  embed_test.cc
  gather_rows_test.cc
  layer_norm_test.cc
  logprobs_test.cc
  mat_mul_test.cc
  pack_rows_test.cc
  paged_attention_test.cc
  rms_norm_add_test.cc
  rms_norm_test.cc
  rope_write_kv_test.cc
  sample_test.cc
  sampling_distribution_test.cc
  scatter_add_test.cc)
set(VITRINE_OPS_TEST_SUPPORT attention_oracle.cc backends.cc golden.cc paged.cc)
