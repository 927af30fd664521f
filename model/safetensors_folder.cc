// Hugging Face folders: one file of weights, or shards and their index.
#include <unistd.h>

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/json.h"
#include "model/quote.h"
#include "model/safetensors.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexValues = 1'000'000;
constexpr size_t kMaxShards = 4096;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// A shard is a file of the folder: its name has no way out of it.
bool IsShardName(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         !name.starts_with('.');
}

// Tensor name to the shard that holds it.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  const std::string label(kIndexFile);
  VITRINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  VITRINE_ASSIGN_OR_RETURN(const JsonValue index, ParseJson(file.bytes(), label, kMaxIndexValues));
  const JsonValue* weight_map = index.Find("weight_map");
  if (weight_map == nullptr || weight_map->AsObject() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": weight_map is missing or not an object"));
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : *weight_map->AsObject()) {
    if (shard.AsString() == nullptr || !IsShardName(*shard.AsString())) {
      return absl::InvalidArgumentError(absl::StrCat(
          label, ": tensor ", Quote(tensor), " is mapped to ",
          shard.AsString() != nullptr ? Quote(*shard.AsString()) : std::string(shard.kind()),
          ", expected the name of a .safetensors file of the folder"));
    }
    shard_of.emplace(tensor, *shard.AsString());
  }
  return shard_of;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFolder>> SafetensorsFolder::Open(
    const std::string& folder) {
  std::unique_ptr<SafetensorsFolder> result(new SafetensorsFolder(LastPathComponent(folder)));
  const std::string single = absl::StrCat(folder, "/", std::string(kSingleFile));
  const std::string index = absl::StrCat(folder, "/", std::string(kIndexFile));
  if (Exists(single)) {
    VITRINE_RETURN_IF_ERROR(result->AddShard(single, nullptr));
  } else if (Exists(index)) {
    VITRINE_RETURN_IF_ERROR(result->AddShards(folder, index));
  } else {
    return absl::NotFoundError(absl::StrCat(result->label_, ": neither ", std::string(kSingleFile),
                                            " nor ", std::string(kIndexFile), " is there"));
  }
  return result;
}

absl::Status SafetensorsFolder::AddShards(const std::string& folder,
                                          const std::string& index_path) {
  using Index = std::map<std::string, std::string>;
  VITRINE_ASSIGN_OR_RETURN(const Index shard_of, ReadIndex(index_path));
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shard_of) names.insert(shard);
  if (names.size() > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(kIndexFile), ": ", names.size(),
                                                   " shards, at most ", kMaxShards, " may be"));
  }
  for (const std::string& name : names) {
    VITRINE_RETURN_IF_ERROR(AddShard(absl::StrCat(folder, "/", name), &shard_of));
  }
  for (const auto& [tensor, shard] : shard_of) {
    if (Find(tensor) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(shard, ": tensor ", Quote(tensor), " is missing, but the index puts it here"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFolder::AddShard(const std::string& path,
                                         const std::map<std::string, std::string>* index) {
  VITRINE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> shard, SafetensorsFile::Open(path));
  for (const TensorView& tensor : shard->tensors()) {
    if (index != nullptr) {
      const auto entry = index->find(tensor.name);
      if (entry == index->end() || entry->second != shard->label()) {
        return absl::InvalidArgumentError(absl::StrCat(
            shard->label(), ": tensor ", Quote(tensor.name), " is not what the index puts here"));
      }
    }
    tensor_index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back(tensor);
  }
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

const TensorView* SafetensorsFolder::Find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace vitrine
