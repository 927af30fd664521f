#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/json.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

// The bound of the reference implementation, and what a header of many tensors may cost here.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxHeaderValues = 2'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct ElementType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;  // None: not supported as a weight.
};

constexpr ElementType kElementTypes[] = {
    {"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},     {"BF16", 16, DType::kBF16},
    {"F64", 64, std::nullopt},    {"F8_E4M3", 8, std::nullopt}, {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},      {"C64", 64, std::nullopt},    {"BOOL", 8, std::nullopt},
    {"U8", 8, std::nullopt},      {"I8", 8, std::nullopt},      {"U16", 16, std::nullopt},
    {"I16", 16, std::nullopt},    {"U32", 32, std::nullopt},    {"I32", 32, std::nullopt},
    {"U64", 64, std::nullopt},    {"I64", 64, std::nullopt},
};

// Turns one entry of the header into a view; errors name the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& label, std::string_view name, const JsonValue& entry,
              std::string_view data)
      : label_(label), name_(name), entry_(entry), data_(data) {}

  absl::StatusOr<TensorView> Read() {
    if (entry_.AsObject() == nullptr) {
      return Error(absl::StrCat("is ", std::string(entry_.kind()), ", expected an object"));
    }
    TensorView tensor;
    tensor.name = std::string(name_);
    VITRINE_RETURN_IF_ERROR(ReadShape(tensor));
    VITRINE_RETURN_IF_ERROR(ReadRange());
    VITRINE_ASSIGN_OR_RETURN(const ElementType* type, ReadType(tensor.shape));
    tensor.dtype = type->dtype.value_or(DType::kF32);
    if (!type->dtype) tensor.other_type = type->name;
    tensor.bytes = static_cast<size_t>(end_ - begin_);
    tensor.data = reinterpret_cast<const std::byte*>(data_.data() + begin_);
    return tensor;
  }

 private:
  absl::Status Error(std::string_view rule) const {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": tensor ", Quote(name_), " ", std::string(rule)));
  }

  // The array of integers at or above 0 that the entry has under `key`.
  absl::StatusOr<std::vector<int64_t>> ReadIntegers(std::string_view key) const {
    const JsonValue* value = entry_.Find(key);
    if (value == nullptr || value->AsArray() == nullptr) {
      return Error(absl::StrCat("has no ", std::string(key), " that is an array"));
    }
    std::vector<int64_t> integers;
    for (const JsonValue& element : *value->AsArray()) {
      if (element.AsInt() == nullptr || *element.AsInt() < 0) {
        return Error(absl::StrCat("has a ", std::string(key), " with ",
                                  element.AsInt() != nullptr ? absl::StrCat(*element.AsInt())
                                                             : std::string(element.kind()),
                                  ", expected integers from 0 to 2^63-1"));
      }
      integers.push_back(*element.AsInt());
    }
    return integers;
  }

  absl::Status ReadShape(TensorView& tensor) {
    VITRINE_ASSIGN_OR_RETURN(tensor.shape, ReadIntegers("shape"));
    return absl::OkStatus();
  }

  absl::Status ReadRange() {
    VITRINE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ReadIntegers("data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      return Error("has data_offsets that are not [begin, end]");
    }
    begin_ = static_cast<uint64_t>(offsets[0]);
    end_ = static_cast<uint64_t>(offsets[1]);
    if (end_ > data_.size()) {
      return Error(
          absl::StrCat("ends at byte ", end_, " of the data, but the file has ", data_.size()));
    }
    return absl::OkStatus();
  }

  // The type, after comparing the bytes that it needs for `shape` with those that are there.
  absl::StatusOr<const ElementType*> ReadType(const std::vector<int64_t>& shape) const {
    const JsonValue* value = entry_.Find("dtype");
    if (value == nullptr || value->AsString() == nullptr) {
      return Error("has no dtype that is a string");
    }
    const auto* type = std::ranges::find(kElementTypes, *value->AsString(), &ElementType::name);
    if (type == std::end(kElementTypes)) {
      return Error(absl::StrCat("has the unknown dtype ", Quote(*value->AsString())));
    }
    uint64_t bits = type->bits;
    bool is_overflow = false;
    for (const int64_t dimension : shape) {
      is_overflow |= __builtin_mul_overflow(bits, static_cast<uint64_t>(dimension), &bits);
    }
    if (is_overflow || bits % 8 != 0 || bits / 8 != end_ - begin_) {
      return Error(absl::StrCat("has ", end_ - begin_, " bytes, which is not what ",
                                std::string(type->name), " of shape [", absl::StrJoin(shape, ", "),
                                "] takes"));
    }
    return type;
  }

  const std::string& label_;
  std::string_view name_;
  const JsonValue& entry_;
  std::string_view data_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

absl::Status CheckMetadata(const std::string& label, const JsonValue& metadata) {
  const JsonValue::Object* object = metadata.AsObject();
  const bool is_valid = object != nullptr && std::ranges::all_of(*object, [](const auto& member) {
                          return member.second.AsString() != nullptr;
                        });
  if (is_valid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(label, ": __metadata__ is not an object of strings"));
}

// Sorts the tensors by their data, and checks that it is covered without gap or overlap.
absl::Status CheckCoverage(const std::string& label, std::string_view data,
                           std::vector<TensorView>& tensors) {
  // An empty tensor shares its address with the one that follows, and comes before it.
  std::ranges::sort(tensors, {}, [](const TensorView& t) { return std::pair(t.data, t.bytes); });
  const auto* next = reinterpret_cast<const std::byte*>(data.data());
  for (const TensorView& tensor : tensors) {
    if (tensor.data != next) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": tensor ", Quote(tensor.name),
                       tensor.data < next ? " shares bytes with another tensor"
                                          : " follows bytes that belong to no tensor"));
    }
    next += tensor.bytes;
  }
  const auto covered = static_cast<size_t>(next - reinterpret_cast<const std::byte*>(data.data()));
  if (covered == data.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(label, ": ", data.size() - covered, " bytes follow the last tensor"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  VITRINE_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  VITRINE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                           Parse(mapping.bytes(), LastPathComponent(path)));
  file->mapping_ = std::move(mapping);
  return file;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Parse(std::string_view bytes,
                                                                        std::string label) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(label)));
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(file->label_, ": ", bytes.size(),
                                                   " bytes are too few for a safetensors file"));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  bytes.remove_prefix(sizeof(header_bytes));
  if (header_bytes > std::min<uint64_t>(kMaxHeaderBytes, bytes.size())) {
    return absl::InvalidArgumentError(absl::StrCat(file->label_, ": a header of ", header_bytes,
                                                   " bytes, but only ", bytes.size(), " follow"));
  }
  const std::string_view header_text = bytes.substr(0, header_bytes);
  const std::string_view data = bytes.substr(header_bytes);
  if (!header_text.starts_with('{')) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->label_, ": the header does not begin with {"));
  }
  VITRINE_ASSIGN_OR_RETURN(const JsonValue header,
                           ParseJson(header_text, file->label_, kMaxHeaderValues));
  for (const auto& [name, entry] : *header.AsObject()) {
    if (name == kMetadata) {
      VITRINE_RETURN_IF_ERROR(CheckMetadata(file->label_, entry));
      continue;
    }
    VITRINE_ASSIGN_OR_RETURN(TensorView tensor,
                             EntryReader(file->label_, name, entry, data).Read());
    file->tensors_.push_back(std::move(tensor));
  }
  VITRINE_RETURN_IF_ERROR(CheckCoverage(file->label_, data, file->tensors_));
  for (size_t i = 0; i < file->tensors_.size(); ++i) {
    file->tensor_index_.emplace(file->tensors_[i].name, i);
  }
  return file;
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace vitrine
