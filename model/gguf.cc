#include "model/gguf.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/detokenizer.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kMaxKeyBytes = 65535;
constexpr size_t kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 65536;
// Every entry costs memory, so that a large file of tiny entries needs a bound as well.
constexpr uint64_t kMaxKeys = 65536;
constexpr uint64_t kMaxTensors = 65536;
// Length, one byte of name, type and one byte of value; and length, one byte of name, one
// dimension, type and offset.
constexpr uint64_t kMinKeyEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Types of tensors, numbered as in ggml.h; gaps are numbers that were never used or were removed.
struct TensorType {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;  // None: not supported.
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::kF32},        {1, "F16", DType::kF16},       {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},      {6, "Q5_0", DType::kQ5_0},     {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},      {9, "Q8_1", std::nullopt},     {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},     {12, "Q4_K", DType::kQ4_K},    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},     {15, "Q8_K", std::nullopt},    {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt},   {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", DType::kIQ4_NL}, {21, "IQ3_S", std::nullopt},   {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", DType::kIQ4_XS}, {24, "I8", std::nullopt},      {25, "I16", std::nullopt},
    {26, "I32", std::nullopt},      {27, "I64", std::nullopt},     {28, "F64", std::nullopt},
    {29, "IQ1_M", std::nullopt},    {30, "BF16", DType::kBF16},    {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},    {39, "MXFP4", std::nullopt},
};

const TensorType* FindTensorType(uint32_t id) {
  const auto* found = std::ranges::find(kTensorTypes, id, &TensorType::id);
  return found == std::end(kTensorTypes) ? nullptr : found;
}

// Bytes of one metadata element; 0 for those without a fixed size.
constexpr size_t ElementBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

// A tensor's entry in the header, before its data is known to exist.
struct TensorEntry {
  std::string_view name;
  uint64_t offset = 0;
};

// Multiplies, or says that the product does not fit.
std::optional<uint64_t> Product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace

// Reads one file from front to back. Nothing is read before the bytes that are left allow it.
class GgufParser {
 public:
  GgufParser(std::string_view bytes, GgufFile& file) : bytes_(bytes), file_(file) {}

  absl::Status Parse() {
    VITRINE_RETURN_IF_ERROR(ParseHeader());
    for (uint64_t i = 0; i < num_keys_; ++i) VITRINE_RETURN_IF_ERROR(ParseKey(i));
    VITRINE_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < num_tensors_; ++i) VITRINE_RETURN_IF_ERROR(ParseTensor(i));
    return PlaceTensors();
  }

 private:
  absl::Status Error(std::string_view what, std::string_view rule) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.label_, ": ", std::string(what), " ", std::string(rule)));
  }

  absl::Status Truncated(std::string_view what) const {
    return Error(what, absl::StrCat("is cut off: the file ends at byte ", bytes_.size()));
  }

  size_t left() const { return bytes_.size() - position_; }

  template <class T>
  bool Read(T& value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  absl::Status ReadString(std::string_view what, std::string_view& text) {
    uint64_t length = 0;
    if (!Read(length)) return Truncated(what);
    if (length > left()) {
      return Error(what, absl::StrCat("has a string of ", length, " bytes, but only ", left(),
                                      " are left in the file"));
    }
    text = bytes_.substr(position_, length);
    position_ += length;
    return absl::OkStatus();
  }

  absl::Status ReadName(std::string_view what, size_t max_bytes, std::string_view& name) {
    VITRINE_RETURN_IF_ERROR(ReadString(what, name));
    if (name.empty()) return Error(what, "has an empty name");
    if (name.size() > max_bytes) {
      return Error(what, absl::StrCat("has a name of ", name.size(), " bytes, at most ", max_bytes,
                                      " are allowed"));
    }
    if (FindInvalidUtf8(name) != std::string_view::npos) {
      return Error(what, absl::StrCat("has a name that is not UTF-8: ", Quote(name)));
    }
    return absl::OkStatus();
  }

  absl::Status ParseHeader();
  absl::Status CheckVersion() const;
  absl::Status CheckCount(std::string_view entries, uint64_t count, uint64_t max,
                          uint64_t min_entry_bytes) const;
  absl::Status ParseKey(uint64_t index);
  absl::Status ReadValue(std::string_view what, GgufType type, GgufValue& value);
  absl::Status ReadArray(std::string_view what, GgufArray& array);
  template <class Stored, class Value>
  absl::Status ReadScalar(std::string_view what, GgufValue& value);
  absl::Status ReadAlignment();
  absl::Status ParseTensor(uint64_t index);
  absl::Status ReadShape(std::string_view what, TensorView& tensor);
  absl::Status ReadTensorType(std::string_view what, TensorView& tensor);
  absl::Status SizeTensor(std::string_view what, TensorView& tensor) const;
  absl::Status PlaceTensors();

  std::string_view bytes_;
  GgufFile& file_;
  size_t position_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<uint64_t> offsets_;  // [tensors]
};

absl::Status GgufParser::ParseHeader() {
  if (!bytes_.starts_with(kMagic)) {
    return Error("not a GGUF file:",
                 absl::StrCat("it begins with ", Quote(bytes_.substr(0, kMagic.size()))));
  }
  position_ = kMagic.size();
  if (!Read(file_.version_)) return Truncated("the version");
  VITRINE_RETURN_IF_ERROR(CheckVersion());
  if (!Read(num_tensors_) || !Read(num_keys_)) return Truncated("the header");
  VITRINE_RETURN_IF_ERROR(CheckCount("keys", num_keys_, kMaxKeys, kMinKeyEntryBytes));
  return CheckCount("tensors", num_tensors_, kMaxTensors, kMinTensorEntryBytes);
}

absl::Status GgufParser::CheckCount(std::string_view entries, uint64_t count, uint64_t max,
                                    uint64_t min_entry_bytes) const {
  const std::string promise = absl::StrCat("promises ", count, " ", std::string(entries));
  if (count > max) return Error("the header", absl::StrCat(promise, ", at most ", max, " may be"));
  if (count > left() / min_entry_bytes) {
    return Error("the header", absl::StrCat(promise, ", but only ", left(), " bytes follow"));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::CheckVersion() const {
  const uint32_t version = file_.version_;
  if (version == 2 || version == 3) return absl::OkStatus();
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3) {
    return absl::UnimplementedError(
        absl::StrCat(file_.label_, ": big-endian GGUF files are not supported"));
  }
  return absl::UnimplementedError(absl::StrCat(file_.label_, ": GGUF version ", version,
                                               " is not supported, only 2 and 3 are"));
}

absl::Status GgufParser::ParseKey(uint64_t index) {
  std::string_view key;
  VITRINE_RETURN_IF_ERROR(
      ReadName(absl::StrCat("key ", index + 1, " of ", num_keys_), kMaxKeyBytes, key));
  const std::string what = absl::StrCat("key ", Quote(key));
  uint32_t type = 0;
  if (!Read(type)) return Truncated(what);
  GgufValue value;
  VITRINE_RETURN_IF_ERROR(ReadValue(what, static_cast<GgufType>(type), value));
  if (!file_.metadata_.emplace(key, value).second) return Error(what, "is there twice");
  return absl::OkStatus();
}

template <class Stored, class Value>
absl::Status GgufParser::ReadScalar(std::string_view what, GgufValue& value) {
  Stored stored{};
  if (!Read(stored)) return Truncated(what);
  value = static_cast<Value>(stored);
  return absl::OkStatus();
}

absl::Status GgufParser::ReadValue(std::string_view what, GgufType type, GgufValue& value) {
  switch (type) {
    case GgufType::kUint8:
      return ReadScalar<uint8_t, uint64_t>(what, value);
    case GgufType::kUint16:
      return ReadScalar<uint16_t, uint64_t>(what, value);
    case GgufType::kUint32:
      return ReadScalar<uint32_t, uint64_t>(what, value);
    case GgufType::kUint64:
      return ReadScalar<uint64_t, uint64_t>(what, value);
    case GgufType::kInt8:
      return ReadScalar<int8_t, int64_t>(what, value);
    case GgufType::kInt16:
      return ReadScalar<int16_t, int64_t>(what, value);
    case GgufType::kInt32:
      return ReadScalar<int32_t, int64_t>(what, value);
    case GgufType::kInt64:
      return ReadScalar<int64_t, int64_t>(what, value);
    case GgufType::kFloat32:
      return ReadScalar<float, double>(what, value);
    case GgufType::kFloat64:
      return ReadScalar<double, double>(what, value);
    case GgufType::kBool: {
      uint8_t byte = 0;
      if (!Read(byte)) return Truncated(what);
      if (byte > 1) return Error(what, absl::StrCat("has the bool ", byte, ", expected 0 or 1"));
      value = byte == 1;
      return absl::OkStatus();
    }
    case GgufType::kString:
      return ReadString(what, value.emplace<std::string_view>());
    case GgufType::kArray:
      return ReadArray(what, value.emplace<GgufArray>());
  }
  return Error(what, absl::StrCat("has the unknown type ", static_cast<uint32_t>(type)));
}

absl::Status GgufParser::ReadArray(std::string_view what, GgufArray& array) {
  uint32_t type = 0;
  if (!Read(type) || !Read(array.size)) return Truncated(what);
  array.element_type = static_cast<GgufType>(type);
  if (array.element_type == GgufType::kArray) {
    return Error(what, "is an array of arrays, which is not allowed");
  }
  const bool is_string = array.element_type == GgufType::kString;
  const size_t element_bytes = is_string ? sizeof(uint64_t) : ElementBytes(array.element_type);
  if (element_bytes == 0) return Error(what, absl::StrCat("has the unknown element type ", type));
  if (array.size > left() / element_bytes) {
    return Error(what, absl::StrCat("promises ", array.size, " elements in ", left(), " bytes"));
  }
  const size_t begin = position_;
  if (is_string) {
    std::string_view skipped;
    for (uint64_t i = 0; i < array.size; ++i) {
      VITRINE_RETURN_IF_ERROR(ReadString(what, skipped));
    }
  } else {
    position_ += array.size * element_bytes;
  }
  array.bytes = bytes_.substr(begin, position_ - begin);
  if (array.element_type == GgufType::kBool) {
    const bool is_valid = std::ranges::all_of(array.bytes, [](char c) { return c == 0 || c == 1; });
    if (!is_valid) return Error(what, "has a bool that is neither 0 nor 1");
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadAlignment() {
  if (!file_.Has("general.alignment")) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(alignment_, file_.Uint("general.alignment"));
  if (alignment_ == 0 || alignment_ % 8 != 0 || alignment_ > kMaxAlignment) {
    return Error("general.alignment", absl::StrCat("is ", alignment_, ", expected a multiple of 8 ",
                                                   "up to ", kMaxAlignment));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ParseTensor(uint64_t index) {
  std::string_view name;
  VITRINE_RETURN_IF_ERROR(ReadName(absl::StrCat("tensor ", index + 1, " of ", num_tensors_),
                                   kMaxTensorNameBytes, name));
  const std::string what = absl::StrCat("tensor ", Quote(name));
  TensorView tensor;
  tensor.name = std::string(name);
  VITRINE_RETURN_IF_ERROR(ReadShape(what, tensor));
  VITRINE_RETURN_IF_ERROR(ReadTensorType(what, tensor));
  VITRINE_RETURN_IF_ERROR(SizeTensor(what, tensor));
  uint64_t offset = 0;
  if (!Read(offset)) return Truncated(what);
  if (offset % alignment_ != 0) {
    return Error(
        what, absl::StrCat("begins at offset ", offset, ", expected a multiple of ", alignment_));
  }
  if (!file_.tensor_index_.emplace(name, file_.tensors_.size()).second) {
    return Error(what, "is there twice");
  }
  offsets_.push_back(offset);
  file_.tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status GgufParser::ReadShape(std::string_view what, TensorView& tensor) {
  uint32_t num_dimensions = 0;
  if (!Read(num_dimensions)) return Truncated(what);
  if (num_dimensions == 0 || num_dimensions > kMaxDimensions) {
    return Error(
        what, absl::StrCat("has ", num_dimensions, " dimensions, expected 1 to ", kMaxDimensions));
  }
  for (uint32_t i = 0; i < num_dimensions; ++i) {
    uint64_t dimension = 0;
    if (!Read(dimension)) return Truncated(what);
    if (dimension == 0 || dimension > uint64_t{INT64_MAX}) {
      return Error(what, absl::StrCat("has a dimension of ", dimension));
    }
    tensor.shape.push_back(static_cast<int64_t>(dimension));
  }
  // The file has the innermost dimension first.
  std::ranges::reverse(tensor.shape);
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensorType(std::string_view what, TensorView& tensor) {
  uint32_t id = 0;
  if (!Read(id)) return Truncated(what);
  const TensorType* type = FindTensorType(id);
  if (type == nullptr) return Error(what, absl::StrCat("has the unknown type ", id));
  if (!type->dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(file_.label_, ": ", std::string(what),
                                                 " has type ", std::string(type->name),
                                                 ", which is not supported"));
  }
  tensor.dtype = *type->dtype;
  return absl::OkStatus();
}

absl::Status GgufParser::SizeTensor(std::string_view what, TensorView& tensor) const {
  const DTypeTraits traits = TraitsOf(tensor.dtype);
  if (tensor.columns() % traits.block_columns != 0) {
    return Error(
        what, absl::StrCat("has rows of ", tensor.columns(), " columns, but type ",
                           std::string(traits.name), " comes in blocks of ", traits.block_columns));
  }
  std::optional<uint64_t> bytes = traits.block_bytes;
  for (const int64_t dimension : tensor.shape) {
    if (bytes) bytes = Product(*bytes, static_cast<uint64_t>(dimension));
  }
  // Whole blocks of columns were multiplied as columns: the product is a multiple of the block.
  if (!bytes || *bytes / static_cast<uint64_t>(traits.block_columns) > bytes_.size()) {
    return Error(what, absl::StrCat("is larger than the file of ", bytes_.size(), " bytes"));
  }
  tensor.bytes = *bytes / static_cast<uint64_t>(traits.block_columns);
  return absl::OkStatus();
}

absl::Status GgufParser::PlaceTensors() {
  const size_t padding = (alignment_ - position_ % alignment_) % alignment_;
  if (file_.tensors_.empty()) return absl::OkStatus();
  if (padding > left()) return Truncated("the header");
  const std::string_view data = bytes_.substr(position_ + padding);
  std::vector<size_t> order(offsets_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return offsets_[i]; });
  const TensorView* previous = nullptr;
  uint64_t previous_end = 0;
  for (const size_t i : order) {
    TensorView& tensor = file_.tensors_[i];
    const std::string what = absl::StrCat("tensor ", Quote(tensor.name));
    const uint64_t offset = offsets_[i];
    if (offset > data.size() || tensor.bytes > data.size() - offset) {
      return Error(what, absl::StrCat("needs ", tensor.bytes, " bytes at offset ", offset,
                                      ", but the file has ", data.size(), " bytes of data"));
    }
    if (previous != nullptr && offset < previous_end) {
      return Error(what, absl::StrCat("shares bytes with ", Quote(previous->name)));
    }
    tensor.data = reinterpret_cast<const std::byte*>(data.data() + offset);
    previous = &tensor;
    previous_end = offset + tensor.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  VITRINE_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  VITRINE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file,
                           Parse(mapping.bytes(), LastPathComponent(path)));
  file->mapping_ = std::move(mapping);
  return file;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(std::string_view bytes,
                                                          std::string label) {
  std::unique_ptr<GgufFile> file(new GgufFile(std::move(label)));
  file->bytes_ = bytes.size();
  VITRINE_RETURN_IF_ERROR(GgufParser(bytes, *file).Parse());
  return file;
}

const TensorView* GgufFile::Find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace vitrine
