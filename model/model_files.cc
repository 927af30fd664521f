#include "model/model_files.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "model/chat_template_files.h"
#include "model/folder_families.h"
#include "model/gguf_families.h"
#include "model/gguf_parts.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "model/status.h"
#include "model/tokenizer_files.h"

namespace vitrine {
namespace {

class GgufModel final : public ModelFiles {
 public:
  explicit GgufModel(std::unique_ptr<GgufParts> parts) : parts_(std::move(parts)) {}

  const std::string& label() const override { return parts_->label(); }
  std::string format() const override {
    std::string text = absl::StrCat("GGUF version ", parts_->first().version());
    if (parts_->num_parts() > 1) absl::StrAppend(&text, ", ", parts_->num_parts(), " parts");
    return text;
  }
  std::string architecture() const override {
    const auto name = parts_->first().String("general.architecture");
    return name.ok() ? std::string(*name) : std::string();
  }

  absl::StatusOr<ModelDescription> Describe() const override {
    VITRINE_ASSIGN_OR_RETURN(GgufDescription model, DescribeGguf(parts_->first(), *parts_));
    return ModelDescription{
        .config = std::move(model.config), .names = model.names, .sampling = {}};
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer() const override {
    return vitrine::CreateTokenizer(parts_->first());
  }
  absl::StatusOr<const Checkpoint*> Weights() override { return parts_.get(); }
  absl::StatusOr<ChatTemplateSource> ChatTemplates() const override {
    return ReadGgufChatTemplates(parts_->first());
  }

 private:
  std::unique_ptr<GgufParts> parts_;
};

class FolderModel final : public ModelFiles {
 public:
  explicit FolderModel(std::string path)
      : path_(std::move(path)), label_(LastPathComponent(path_)) {}

  const std::string& label() const override { return label_; }
  std::string format() const override { return "Hugging Face folder"; }
  std::string architecture() const override {
    const auto model = DescribeFolder(path_);
    return model.ok() ? model->config.architecture : std::string();
  }

  absl::StatusOr<ModelDescription> Describe() const override {
    VITRINE_ASSIGN_OR_RETURN(FolderDescription model, DescribeFolder(path_));
    return ModelDescription{
        .config = std::move(model.config), .names = model.names, .sampling = model.sampling};
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer() const override {
    VITRINE_ASSIGN_OR_RETURN(const FolderDescription model, DescribeFolder(path_));
    return ReadTokenizerFolder(path_, {.bos_id = model.bos_id, .eos_ids = model.eos_ids});
  }
  absl::StatusOr<const Checkpoint*> Weights() override {
    if (weights_ == nullptr) {
      VITRINE_ASSIGN_OR_RETURN(weights_, SafetensorsFolder::Open(path_));
    }
    return weights_.get();
  }
  absl::StatusOr<ChatTemplateSource> ChatTemplates() const override {
    return ReadFolderChatTemplates(path_);
  }

 private:
  const std::string path_;
  const std::string label_;
  std::unique_ptr<SafetensorsFolder> weights_;  // Opened when asked for.
};

bool IsFolder(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::Open(const std::string& path) {
  if (IsFolder(path)) return std::make_unique<FolderModel>(path);
  VITRINE_ASSIGN_OR_RETURN(std::unique_ptr<GgufParts> parts, GgufParts::Open(path));
  return std::make_unique<GgufModel>(std::move(parts));
}

}  // namespace vitrine
