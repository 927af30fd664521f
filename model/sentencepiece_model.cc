// The file format of SentencePiece: protocol buffers, of which a few fields are read
// (sentencepiece_model.proto). Every length is checked against the bytes that are left.
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/sentencepiece_tokenizer.h"
#include "model/status.h"

namespace vitrine {
namespace {

enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // Of the numeric types.
  std::string_view bytes;  // Of kBytes.

  bool Is(uint32_t wanted, WireType wanted_type) const {
    return number == wanted && type == wanted_type;
  }
  float AsFloat() const {
    const auto bits = static_cast<uint32_t>(value);
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
  }
};

// Iterates over the fields of one message.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  bool done() const { return rest_.empty(); }

  // nullopt when what follows is not a field.
  std::optional<Field> Next() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag || *tag >> 3 == 0 || *tag > UINT32_MAX) return std::nullopt;
    Field field{.number = static_cast<uint32_t>(*tag >> 3),
                .type = static_cast<WireType>(*tag & 7),
                .value = 0,
                .bytes = {}};
    switch (field.type) {
      case WireType::kVarint: {
        const std::optional<uint64_t> value = Varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case WireType::kFixed64:
        return Fixed(field, 8);
      case WireType::kFixed32:
        return Fixed(field, 4);
      case WireType::kBytes: {
        const std::optional<uint64_t> length = Varint();
        if (!length || *length > rest_.size()) return std::nullopt;
        field.bytes = rest_.substr(0, *length);
        rest_.remove_prefix(*length);
        return field;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<Field> Fixed(Field field, size_t size) {
    if (rest_.size() < size) return std::nullopt;
    std::memcpy(&field.value, rest_.data(), size);
    rest_.remove_prefix(size);
    return field;
  }

  std::string_view rest_;
};

// Reads one file into a definition, whose texts lie inside the file.
class ModelReader {
 public:
  explicit ModelReader(std::string label) : label_(std::move(label)) {}

  absl::StatusOr<SentencePieceDefinition> Read(std::string_view file) {
    definition_.matches_normalized = true;
    definition_.spaces.prefix_where = PrependWhere::kAtStart;
    definition_.is_unigram = true;  // What a file without the field means.
    VITRINE_RETURN_IF_ERROR(ForEachField(file, [&](const Field& field) -> absl::Status {
      if (field.Is(1, WireType::kBytes)) return ReadPiece(field.bytes);
      if (field.Is(2, WireType::kBytes)) return ReadTrainerSpec(field.bytes);
      if (field.Is(3, WireType::kBytes)) return ReadNormalizerSpec(field.bytes);
      return absl::OkStatus();
    }));
    const auto tokens = static_cast<int64_t>(definition_.tokens.size());
    if (bos_id_ >= 0 && bos_id_ < tokens) definition_.bos_id = static_cast<TokenId>(bos_id_);
    definition_.add_bos = definition_.bos_id >= 0;
    if (eos_id_ >= 0 && eos_id_ < tokens) definition_.eos_ids = {static_cast<TokenId>(eos_id_)};
    return std::move(definition_);
  }

 private:
  template <class Visit>
  absl::Status ForEachField(std::string_view message, Visit visit) {
    for (FieldReader reader(message); !reader.done();) {
      const std::optional<Field> field = reader.Next();
      if (!field) {
        return absl::InvalidArgumentError(
            absl::StrCat(label_, ": not a SentencePiece model: a field is malformed"));
      }
      VITRINE_RETURN_IF_ERROR(visit(*field));
    }
    return absl::OkStatus();
  }

  absl::Status ReadPiece(std::string_view message) {
    std::string_view text;
    float score = 0.0f;
    uint64_t type = 1;
    VITRINE_RETURN_IF_ERROR(ForEachField(message, [&](const Field& field) {
      if (field.Is(1, WireType::kBytes)) text = field.bytes;
      if (field.Is(2, WireType::kFixed32)) score = field.AsFloat();
      if (field.Is(3, WireType::kVarint)) type = field.value;
      return absl::OkStatus();
    }));
    if (type < 1 || type > 6) {
      return absl::InvalidArgumentError(absl::StrCat(label_, ": token ", definition_.tokens.size(),
                                                     " has the type ", type, ", expected 1 to 6"));
    }
    definition_.tokens.push_back(text);
    definition_.scores.push_back(score);
    definition_.types.push_back(static_cast<TokenType>(type));
    return absl::OkStatus();
  }

  absl::Status ReadTrainerSpec(std::string_view message) {
    uint64_t model_type = 1;
    bool is_suffix = false;
    VITRINE_RETURN_IF_ERROR(ForEachField(message, [&](const Field& field) {
      if (field.Is(3, WireType::kVarint)) model_type = field.value;
      if (field.Is(24, WireType::kVarint)) is_suffix = field.value != 0;
      // Negative numbers are written in 64 bits.
      if (field.Is(41, WireType::kVarint)) bos_id_ = static_cast<int64_t>(field.value);
      if (field.Is(42, WireType::kVarint)) eos_id_ = static_cast<int64_t>(field.value);
      return absl::OkStatus();
    }));
    if (model_type != 1 && model_type != 2) {
      return absl::UnimplementedError(absl::StrCat(
          label_, ": model_type ", model_type, " is not supported: it is neither unigram nor BPE"));
    }
    if (is_suffix) {
      return absl::UnimplementedError(
          absl::StrCat(label_, ": treat_whitespace_as_suffix is not supported"));
    }
    definition_.is_unigram = model_type == 1;
    return absl::OkStatus();
  }

  absl::Status ReadNormalizerSpec(std::string_view message) {
    SpaceRules& spaces = definition_.spaces;
    return ForEachField(message, [&](const Field& field) {
      if (field.Is(2, WireType::kBytes)) definition_.character_map = std::string(field.bytes);
      if (field.Is(3, WireType::kVarint)) spaces.add_dummy_prefix = field.value != 0;
      if (field.Is(4, WireType::kVarint)) spaces.remove_extra_whitespaces = field.value != 0;
      if (field.Is(5, WireType::kVarint)) spaces.escape_whitespaces = field.value != 0;
      return absl::OkStatus();
    });
  }

  std::string label_;
  SentencePieceDefinition definition_;
  int64_t bos_id_ = 1;  // The defaults of the format.
  int64_t eos_id_ = 2;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceModel(std::string_view bytes,
                                                                   const std::string& label,
                                                                   std::vector<TokenId> eos_ids,
                                                                   bool add_bos) {
  VITRINE_ASSIGN_OR_RETURN(SentencePieceDefinition definition, ModelReader(label).Read(bytes));
  if (!eos_ids.empty()) definition.eos_ids = std::move(eos_ids);
  definition.add_bos = definition.add_bos && add_bos;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateSentencePieceTokenizer(definition);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(),
                      absl::StrCat(label, ": ", std::string(tokenizer.status().message())));
}

}  // namespace vitrine
