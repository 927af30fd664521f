#include "model/json_text_rules.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "model/json_config.h"
#include "model/piece_scanners.h"
#include "model/quote.h"
#include "model/sentencepiece_normalizer.h"
#include "model/split_patterns.h"
#include "model/status.h"
#include "model/unicode_normalizer.h"

namespace vitrine {
namespace {

constexpr char kSpaceMark[] = "\u2581";

// The components of a section: itself, or those of a Sequence at any depth, in order.
absl::Status Flatten(const JsonValue& component, const std::string& label, std::string_view list,
                     std::vector<JsonConfigReader>& components) {
  if (component.AsObject() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, " is ", std::string(component.kind()), ", expected an object"));
  }
  const JsonConfigReader reader(component, label);
  VITRINE_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
  if (type != "Sequence") {
    components.push_back(reader);
    return absl::OkStatus();
  }
  const JsonValue* items = component.Find(list);
  if (items == nullptr || items->AsArray() == nullptr) {
    return reader.Error(list, "is missing or not an array");
  }
  // The depth of JSON is limited, so that of this recursion is.
  for (size_t i = 0; i < items->AsArray()->size(); ++i) {
    VITRINE_RETURN_IF_ERROR(Flatten((*items->AsArray())[i],
                                    absl::StrCat(label, ".", std::string(list), "[", i, "]"), list,
                                    components));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JsonConfigReader>> Components(const JsonValue& root,
                                                         const std::string& label,
                                                         std::string_view section,
                                                         std::string_view list) {
  std::vector<JsonConfigReader> components;
  const JsonValue* value = root.Find(section);
  if (value == nullptr || value->is_null()) return components;
  VITRINE_RETURN_IF_ERROR(
      Flatten(*value, absl::StrCat(label, ": ", std::string(section)), list, components));
  return components;
}

// A pattern {"String": TEXT} or {"Regex": TEXT}.
struct Pattern {
  bool is_regex = false;
  std::string text;
};

absl::StatusOr<Pattern> ReadPattern(const JsonConfigReader& component) {
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> object,
                           component.Object("pattern"));
  if (!object) return component.Error("pattern", "is missing");
  Pattern pattern{.is_regex = object->Has("Regex"), .text = {}};
  VITRINE_ASSIGN_OR_RETURN(pattern.text, object->String(pattern.is_regex ? "Regex" : "String"));
  if (pattern.text.empty()) return component.Error("pattern", "is empty");
  return pattern;
}

absl::StatusOr<NormalizerStep> ReadReplace(const JsonConfigReader& component) {
  VITRINE_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(component));
  VITRINE_ASSIGN_OR_RETURN(std::string content, component.String("content"));
  if (!pattern.is_regex) return Replace(pattern.text, std::move(content));
  if (pattern.text == " {2,}") return ReplaceRunsOfSpaces(std::move(content));
  return component.Unsupported(
      "pattern",
      absl::StrCat("is the regular expression ", Quote(pattern.text), ", which is not supported"));
}

absl::StatusOr<NormalizerStep> ReadPrecompiled(const JsonConfigReader& component) {
  VITRINE_ASSIGN_OR_RETURN(const std::string text, component.String("precompiled_charsmap", ""));
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) {
    return component.Error("precompiled_charsmap", "is not base64");
  }
  absl::StatusOr<CharacterMap> map = CharacterMap::Parse(std::move(bytes));
  if (!map.ok()) return component.Error("", std::string(map.status().message()));
  return PrecompiledNormalizer(*std::move(map));
}

absl::StatusOr<NormalizerStep> ReadNormalizer(const JsonConfigReader& component) {
  VITRINE_ASSIGN_OR_RETURN(const std::string type, component.String("type"));
  if (type == "Replace") return ReadReplace(component);
  if (type == "Prepend") {
    VITRINE_ASSIGN_OR_RETURN(std::string prefix, component.String("prepend"));
    return Prepend(std::move(prefix));
  }
  if (type == "NFC") return Normalize(NormalizationForm::kNfc);
  if (type == "NFD") return Normalize(NormalizationForm::kNfd);
  if (type == "NFKC") return Normalize(NormalizationForm::kNfkc);
  if (type == "NFKD") return Normalize(NormalizationForm::kNfkd);
  if (type == "Lowercase") return Lowercase();
  if (type == "StripAccents") return StripAccents();
  if (type == "Precompiled") return ReadPrecompiled(component);
  if (type == "Strip") {
    VITRINE_ASSIGN_OR_RETURN(const bool left, component.Bool("strip_left", false));
    VITRINE_ASSIGN_OR_RETURN(const bool right, component.Bool("strip_right", false));
    return Strip(left, right);
  }
  return component.Unsupported("type", absl::StrCat("is ", Quote(type), ", not supported"));
}

// Collects what the pre-tokenizers of a file say.
class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(JsonTextRules& rules) : rules_(rules) {}

  absl::Status Read(const JsonConfigReader& component) {
    VITRINE_ASSIGN_OR_RETURN(const std::string type, component.String("type"));
    if (splits_at_space_ && type != "Metaspace") return NoWhitespaceSplit(component);
    if (type == "Split") return ReadSplit(component);
    if (type == "ByteLevel") return ReadByteLevel(component);
    if (type == "Digits") return ReadDigits(component);
    if (type == "Punctuation") return ReadPunctuation(component);
    if (type == "Metaspace") return ReadMetaspace(component);
    if (type == "WhitespaceSplit") {
      splits_at_space_ = true;
      return absl::OkStatus();
    }
    return component.Unsupported("type", absl::StrCat("is ", Quote(type), ", not supported"));
  }

  // After the last component.
  absl::Status Finish(const JsonConfigReader& last) const {
    return splits_at_space_ ? NoWhitespaceSplit(last) : absl::OkStatus();
  }

 private:
  absl::Status Add(const JsonConfigReader& component, PieceScanner scan) {
    if (rules_.pre_tokenizer.size() == kMaxPreTokenizerStages) {
      return component.Unsupported("type",
                                   absl::StrCat("is one more than the ", kMaxPreTokenizerStages,
                                                " components that are supported"));
    }
    // The text is in the byte alphabet from there on: other characters for the same text.
    if (rules_.is_byte_level && scan != ScanThreeDigits) {
      return component.Unsupported("type", "comes after ByteLevel, which is not supported");
    }
    rules_.pre_tokenizer.push_back(scan);
    return absl::OkStatus();
  }

  static absl::Status NoWhitespaceSplit(const JsonConfigReader& component) {
    return component.Unsupported("type", "is WhitespaceSplit without Metaspace behind it");
  }

  absl::Status ReadSplit(const JsonConfigReader& component) {
    VITRINE_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(component));
    VITRINE_ASSIGN_OR_RETURN(const std::string behavior, component.String("behavior"));
    VITRINE_ASSIGN_OR_RETURN(const bool invert, component.Bool("invert", false));
    if (!pattern.is_regex && pattern.text == " " && behavior == "MergedWithPrevious" && !invert) {
      return Add(component, ScanThroughSpaces);
    }
    const SplitPattern* known = pattern.is_regex ? FindSplitPattern(pattern.text) : nullptr;
    if (known == nullptr) {
      return component.Unsupported(
          "pattern", absl::StrCat("is ", Quote(pattern.text), ", which is not a known one"));
    }
    // With a total pattern, what is kept when matches are not removed is the same.
    const bool keeps_matches = behavior == "Removed" && invert && known->is_total;
    if (behavior != "Isolated" && !keeps_matches) {
      return component.Unsupported(
          "behavior", absl::StrCat("is ", Quote(behavior), ", not supported with this pattern"));
    }
    return Add(component, known->scan);
  }

  absl::Status ReadByteLevel(const JsonConfigReader& component) {
    VITRINE_ASSIGN_OR_RETURN(const bool use_regex, component.Bool("use_regex", true));
    VITRINE_ASSIGN_OR_RETURN(const bool add_prefix_space, component.Bool("add_prefix_space", true));
    if (add_prefix_space) {
      if (!rules_.pre_tokenizer.empty()) {
        return component.Unsupported("add_prefix_space",
                                     "is true behind other components, which is not supported");
      }
      rules_.preparation.push_back(PrependUnlessThere(" ", PrependWhere::kEverywhere));
    }
    if (rules_.is_byte_level) return component.Unsupported("type", "is ByteLevel twice");
    if (use_regex) VITRINE_RETURN_IF_ERROR(Add(component, ScanGpt2));
    rules_.is_byte_level = true;
    return absl::OkStatus();
  }

  // WhitespaceSplit is supported in front of this only, where both together mark words.
  absl::Status ReadMetaspace(const JsonConfigReader& component) {
    VITRINE_ASSIGN_OR_RETURN(const std::string mark, component.String("replacement", kSpaceMark));
    VITRINE_ASSIGN_OR_RETURN(const bool splits, component.Bool("split", true));
    VITRINE_ASSIGN_OR_RETURN(const bool add_prefix, component.Bool("add_prefix_space", true));
    VITRINE_ASSIGN_OR_RETURN(const std::string scheme,
                             component.String("prepend_scheme", add_prefix ? "always" : "never"));
    if (mark != kSpaceMark) return component.Unsupported("replacement", "is not U+2581");
    if (!rules_.pre_tokenizer.empty() || !rules_.preparation.empty()) {
      return component.Unsupported("type", "is Metaspace behind other components");
    }
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return component.Error("prepend_scheme", absl::StrCat("is ", Quote(scheme)));
    }
    if (splits_at_space_) {
      if (scheme != "always" || !splits) {
        return component.Unsupported("prepend_scheme", "with WhitespaceSplit is not \"always\"");
      }
      splits_at_space_ = false;
      rules_.preparation.push_back(MarkWords(mark));
    } else {
      rules_.preparation.push_back(Replace(" ", mark));
      if (scheme != "never") {
        rules_.preparation.push_back(PrependUnlessThere(
            mark, scheme == "first" ? PrependWhere::kAtStart : PrependWhere::kEverywhere));
      }
    }
    return splits ? Add(component, ScanSpaceMarks) : absl::OkStatus();
  }

  absl::Status ReadDigits(const JsonConfigReader& component) {
    VITRINE_ASSIGN_OR_RETURN(const bool individual, component.Bool("individual_digits", false));
    return Add(component, individual ? ScanSingleNumbers : ScanNumbers);
  }

  absl::Status ReadPunctuation(const JsonConfigReader& component) {
    VITRINE_ASSIGN_OR_RETURN(const std::string behavior, component.String("behavior", "Isolated"));
    if (behavior == "Contiguous") return Add(component, ScanPunctuationRuns);
    if (behavior == "Isolated") return Add(component, ScanSinglePunctuation);
    return component.Unsupported("behavior",
                                 absl::StrCat("is ", Quote(behavior), ", not supported"));
  }

  JsonTextRules& rules_;
  bool splits_at_space_ = false;  // WhitespaceSplit came last.
};

}  // namespace

absl::StatusOr<JsonTextRules> ReadJsonTextRules(const JsonValue& root, const std::string& label) {
  JsonTextRules rules;
  VITRINE_ASSIGN_OR_RETURN(const std::vector<JsonConfigReader> normalizers,
                           Components(root, label, "normalizer", "normalizers"));
  for (const JsonConfigReader& component : normalizers) {
    VITRINE_ASSIGN_OR_RETURN(NormalizerStep step, ReadNormalizer(component));
    rules.normalizer.push_back(std::move(step));
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<JsonConfigReader> pre_tokenizers,
                           Components(root, label, "pre_tokenizer", "pretokenizers"));
  PreTokenizerReader reader(rules);
  for (const JsonConfigReader& component : pre_tokenizers) {
    VITRINE_RETURN_IF_ERROR(reader.Read(component));
  }
  if (!pre_tokenizers.empty()) VITRINE_RETURN_IF_ERROR(reader.Finish(pre_tokenizers.back()));
  return rules;
}

}  // namespace vitrine
