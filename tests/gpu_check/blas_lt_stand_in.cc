// What gpu_check calls of cuBLASLt, for runs over the emulated device: one product, in plain loops,
// at once instead of in the order of a stream. It refuses whatever gpu_check should not ask for.
#include <cublasLt.h>

#include <bit>
#include <cstdint>

namespace {

struct Layout {
  uint64_t type, rows, columns;
  int64_t stride;
};

Layout LayoutOf(cublasLtMatrixLayout_t layout) {
  return {layout->data[0], layout->data[1], layout->data[2], static_cast<int64_t>(layout->data[3])};
}

float Bf16At(const void* values, int64_t index) {
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(values)[index]} << 16);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int context;
  *handle = reinterpret_cast<cublasLtHandle_t>(&context);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t /*handle*/) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t type,
                                        cudaDataType_t scale) {
  if (type != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *operation = new cublasLtMatmulDescOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (attribute != CUBLASLT_MATMUL_DESC_TRANSA || bytes != sizeof(cublasOperation_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  operation->data[0] = static_cast<uint64_t>(*static_cast<const cublasOperation_t*>(value));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t{
      {static_cast<uint64_t>(type), rows, columns, static_cast<uint64_t>(stride)}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* /*value*/, size_t bytes) {
  const bool is_known =
      attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(size_t);
  return is_known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*operation*/, cublasLtMatrixLayout_t /*a*/,
    cublasLtMatrixLayout_t /*b*/, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
    cublasLtMatmulPreference_t /*preference*/, int /*most*/,
    cublasLtMatmulHeuristicResult_t* /*results*/, int* count) {
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* /*c*/, cublasLtMatrixLayout_t /*c_layout*/, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* /*algo*/,
                              void* /*workspace*/, size_t /*bytes*/, cudaStream_t /*stream*/) {
  const Layout weights = LayoutOf(a_layout), input = LayoutOf(b_layout), out = LayoutOf(d_layout);
  const bool is_known = operation->data[0] == CUBLAS_OP_T && weights.type == CUDA_R_16BF &&
                        input.type == CUDA_R_16BF && out.type == CUDA_R_32F &&
                        *static_cast<const float*>(alpha) == 1.0f &&
                        *static_cast<const float*>(beta) == 0.0f;
  if (!is_known) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool is_product =
      weights.rows == input.rows && weights.columns == out.rows && input.columns == out.columns;
  if (!is_product) return CUBLAS_STATUS_INVALID_VALUE;
  for (int64_t r = 0; r < static_cast<int64_t>(out.columns); ++r) {
    for (int64_t o = 0; o < static_cast<int64_t>(out.rows); ++o) {
      float sum = 0;
      for (int64_t c = 0; c < static_cast<int64_t>(input.rows); ++c) {
        sum += Bf16At(a, o * weights.stride + c) * Bf16At(b, r * input.stride + c);
      }
      static_cast<float*>(d)[r * out.stride + o] = sum;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
