#include "model/gguf_parts.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kNumber = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";
constexpr uint64_t kMaxParts = 4096;

absl::Status Error(const GgufFile& file, std::string_view key, std::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.label(), ": key ", Quote(key), " ", std::string(rule)));
}

// An integer that a part must have.
absl::StatusOr<uint64_t> Require(const GgufFile& file, std::string_view key) {
  if (!file.Has(key)) return Error(file, key, "is missing");
  return file.Uint(key);
}

// What names a part after the stem: parts count from 1 in names, from 0 in metadata.
std::string Suffix(int index, int count) {
  return absl::StrFormat("-%05d-of-%05d.gguf", index + 1, count);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufParts>> GgufParts::Open(const std::string& path) {
  VITRINE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  std::unique_ptr<GgufParts> parts(new GgufParts());
  const GgufFile& first = *file;
  VITRINE_RETURN_IF_ERROR(parts->AddPart(std::move(file)));
  if (!first.Has(kCount)) return parts;
  VITRINE_ASSIGN_OR_RETURN(const uint64_t count, Require(first, kCount));
  VITRINE_ASSIGN_OR_RETURN(const uint64_t number, Require(first, kNumber));
  if (count == 0 || count > kMaxParts) {
    return Error(first, kCount, absl::StrCat("is ", count, ", expected 1 to ", kMaxParts));
  }
  if (number != 0) {
    return Error(first, kNumber, absl::StrCat("is ", number, ": this is not the first part"));
  }
  if (count > 1) {
    VITRINE_RETURN_IF_ERROR(parts->AddOtherParts(path, static_cast<int>(count)));
  }
  VITRINE_ASSIGN_OR_RETURN(const uint64_t tensors, Require(first, kTensors));
  if (tensors != parts->tensors_.size()) {
    return Error(
        first, kTensors,
        absl::StrCat("is ", tensors, ", but all parts together have ", parts->tensors_.size()));
  }
  return parts;
}

absl::Status GgufParts::AddOtherParts(const std::string& path, int count) {
  const std::string suffix = Suffix(0, count);
  if (!path.ends_with(suffix)) {
    return Error(first(), kCount,
                 absl::StrCat("is ", count, ", but the file's name does not end in ", suffix));
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (int index = 1; index < count; ++index) {
    VITRINE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> part,
                             GgufFile::Open(stem + Suffix(index, count)));
    VITRINE_ASSIGN_OR_RETURN(const uint64_t number, Require(*part, kNumber));
    VITRINE_ASSIGN_OR_RETURN(const uint64_t part_count, Require(*part, kCount));
    if (number != static_cast<uint64_t>(index)) {
      return Error(*part, kNumber, absl::StrCat("is ", number, ", expected ", index));
    }
    if (part_count != static_cast<uint64_t>(count)) {
      return Error(*part, kCount, absl::StrCat("is ", part_count, ", expected ", count));
    }
    VITRINE_RETURN_IF_ERROR(AddPart(std::move(part)));
  }
  return absl::OkStatus();
}

absl::Status GgufParts::AddPart(std::unique_ptr<GgufFile> part) {
  for (const TensorView& tensor : part->tensors()) {
    const TensorView* other = Find(tensor.name);
    if (other != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(part->label(), ": tensor ", Quote(tensor.name),
                                                     " is in an earlier part, too"));
    }
    tensors_.push_back(tensor);
  }
  // Views of names stay valid: the parts own them.
  for (const TensorView& tensor : part->tensors()) {
    tensor_index_.emplace(tensor.name, tensor_index_.size());
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

const TensorView* GgufParts::Find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace vitrine
