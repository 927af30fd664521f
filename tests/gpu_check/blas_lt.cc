#include "tests/gpu_check/blas_lt.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>

#include <cstdint>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/device_array.h"

namespace vitrine::gpu_check {
namespace {

#ifndef BLAS_LT_LIBRARY
#define BLAS_LT_TEXT(x) #x
#define BLAS_LT_NAME(major) "libcublasLt.so." BLAS_LT_TEXT(major)
#define BLAS_LT_LIBRARY BLAS_LT_NAME(CUBLAS_VER_MAJOR)
#endif

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // What NVIDIA recommends for sm_90.

// The entry points by the types of the header, so that the compiler checks every call.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
};

// The name of the first entry point that is missing; null: none is.
const char* Load(void* handle, Library& library) {
  const char* missing = nullptr;
  const auto load = [&](const char* name, auto& entry) {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr && missing == nullptr) missing = name;
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(symbol);
  };
  load("cublasLtCreate", library.create);
  load("cublasLtDestroy", library.destroy);
  load("cublasLtMatmul", library.matmul);
  load("cublasLtMatmulAlgoGetHeuristic", library.get_heuristic);
  load("cublasLtMatmulDescCreate", library.create_operation);
  load("cublasLtMatmulDescDestroy", library.destroy_operation);
  load("cublasLtMatmulDescSetAttribute", library.set_operation);
  load("cublasLtMatmulPreferenceCreate", library.create_preference);
  load("cublasLtMatmulPreferenceDestroy", library.destroy_preference);
  load("cublasLtMatmulPreferenceSetAttribute", library.set_preference);
  load("cublasLtMatrixLayoutCreate", library.create_layout);
  load("cublasLtMatrixLayoutDestroy", library.destroy_layout);
  return missing;
}

absl::Status ToStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(call, ": status ", static_cast<int>(status)));
}

// To the library, which counts in columns, row-major matrices are transposed ones: the result
// [outputs, rows] is the weights [columns, outputs], transposed, times the input [columns, rows].
class Product final : public BlasLtProduct {
 public:
  Product(const Library& library, cublasLtHandle_t handle, void* workspace)
      : library_(library), handle_(handle), workspace_(workspace) {}
  ~Product() override {
    if (preference_ != nullptr) library_.destroy_preference(preference_);
    for (cublasLtMatrixLayout_t layout : {weights_, input_, output_}) {
      if (layout != nullptr) library_.destroy_layout(layout);
    }
    if (operation_ != nullptr) library_.destroy_operation(operation_);
  }

  absl::Status Prepare(uint64_t rows, uint64_t outputs, uint64_t columns, int64_t input_stride) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t workspace_bytes = kWorkspaceBytes;
    const auto is_ok = [&](cublasStatus_t status) {
      if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
      return status_ == CUBLAS_STATUS_SUCCESS;
    };
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    const bool is_prepared =
        is_ok(library_.create_operation(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        is_ok(library_.set_operation(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                     sizeof transposed)) &&
        is_ok(library_.create_layout(&weights_, CUDA_R_16BF, columns, outputs,
                                     static_cast<int64_t>(columns))) &&
        is_ok(library_.create_layout(&input_, CUDA_R_16BF, columns, rows, input_stride)) &&
        is_ok(library_.create_layout(&output_, CUDA_R_32F, outputs, rows,
                                     static_cast<int64_t>(outputs))) &&
        is_ok(library_.create_preference(&preference_)) &&
        is_ok(library_.set_preference(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                      &workspace_bytes, sizeof workspace_bytes)) &&
        is_ok(library_.get_heuristic(handle_, operation_, weights_, input_, output_, output_,
                                     preference_, 1, &found, &count));
    if (!is_prepared) return ToStatus(status_, "preparing a product of cuBLASLt");
    if (count == 0) return absl::UnavailableError("cuBLASLt has no algorithm for this product");
    algorithm_ = found.algo;
    return absl::OkStatus();
  }

  absl::Status Run(const void* input, const void* weights, float* output,
                   cudaStream_t stream) override {
    const float one = 1.0f, zero = 0.0f;
    return ToStatus(
        library_.matmul(handle_, operation_, &one, weights, weights_, input, input_, &zero, output,
                        output_, output, output_, &algorithm_, workspace_, kWorkspaceBytes, stream),
        "cublasLtMatmul");
  }

 private:
  const Library& library_;
  cublasLtHandle_t handle_;
  void* workspace_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t weights_ = nullptr, input_ = nullptr, output_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class OpenedBlasLt final : public BlasLt {
 public:
  OpenedBlasLt(const Library& library, cublasLtHandle_t handle)
      : library_(library), handle_(handle) {}
  ~OpenedBlasLt() override { library_.destroy(handle_); }

  absl::StatusOr<std::unique_ptr<BlasLtProduct>> Prepare(int rows, int outputs, int columns,
                                                         int input_stride) override {
    auto product = std::make_unique<Product>(library_, handle_, workspace_.data());
    absl::Status status =
        product->Prepare(static_cast<uint64_t>(rows), static_cast<uint64_t>(outputs),
                         static_cast<uint64_t>(columns), input_stride);
    if (!status.ok()) return status;
    return product;
  }

 private:
  const Library library_;
  cublasLtHandle_t handle_;
  const gpu::DeviceArray<char> workspace_{kWorkspaceBytes};
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlasLt>> BlasLt::Open() {
  // Stays open: the library may have started threads.
  void* const handle = dlopen(BLAS_LT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot open " BLAS_LT_LIBRARY ": ", dlerror()));
  }
  Library library = {};
  if (const char* const missing = Load(handle, library); missing != nullptr) {
    return absl::UnavailableError(absl::StrCat(BLAS_LT_LIBRARY " has no ", missing));
  }
  cublasLtHandle_t context = nullptr;
  absl::Status status = ToStatus(library.create(&context), "cublasLtCreate");
  if (!status.ok()) return status;
  return std::make_unique<OpenedBlasLt>(library, context);
}

}  // namespace vitrine::gpu_check

#else

namespace vitrine::gpu_check {

absl::StatusOr<std::unique_ptr<BlasLt>> BlasLt::Open() {
  return absl::UnavailableError("this program was built without cuBLASLt's header");
}

}  // namespace vitrine::gpu_check

#endif
