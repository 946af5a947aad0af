// The index of Hugging Face: {"metadata": {"total_size": N}, "weight_map": {"fc.weight":
// "model-00001-of-00002.safetensors"}}. It is believed in what it says of names and files, and each tensor has to be
// where it says.
#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tutti/base/file.h"
#include "tutti/checkpoint/sources/sources.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostIndex = std::uint64_t(256) << 20;

class EntryBytes : public PackedBytes {
 public:
  EntryBytes(const SafetensorsFile& file, const SafetensorsEntry& entry) : file_(file), entry_(entry) {}
  Status read(std::uint64_t begin, std::span<std::byte> into) override {
    if (!checked_) TUTTI_TRY(file_.check(entry_));
    checked_ = true;
    return file_.read(entry_, begin, into);
  }

 private:
  const SafetensorsFile& file_;
  const SafetensorsEntry& entry_;
  bool checked_ = false;
};

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(const std::string& path) {
    path_ = path;
    format_ = "safetensors";
  }

  // `name`: of the file, for people.
  Result<const SafetensorsFile*> add_file(const std::string& path, const std::string& name) {
    files_.push_back(std::make_unique<SafetensorsFile>(TUTTI_TRY(SafetensorsFile::open(path))));
    const SafetensorsFile& file = *files_.back();
    ValueTree about{.name = name, .members = {}};
    for (const auto& [key, value] : file.metadata())
      if (!key.starts_with("crc32c.")) about.members.push_back(ValueTree::leaf(key, value));
    about_.members.push_back(std::move(about));
    return &file;
  }
  Status add(const SafetensorsFile& file, const SafetensorsEntry& entry, const std::string& name) {
    const unsigned bits = safetensors_bits(entry.dtype);
    if (bits % 8 != 0)
      return Error{
          .code = Code::kUnsupported,
          .detail = fmt::format("{} in {} is {}, whose elements are no whole bytes", entry.name, name, entry.dtype)};
    tensors_[{entry.name, ""}] = {entry.dtype, bits / 8, entry.shape, {{TensorBox::whole(entry.shape), name}}};
    places_[entry.name] = {&file, &entry};
    has_digests_ = has_digests_ && file.has_checksum(entry);
    return {};
  }

  Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t) const override {
    const auto& [file, entry] = places_.at(key.name);
    return std::unique_ptr<PackedBytes>(std::make_unique<EntryBytes>(*file, *entry));
  }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::pair<const SafetensorsFile*, const SafetensorsEntry*>> places_;
};

Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  const std::string text = TUTTI_TRY(read_file(path, kMostIndex));
  const auto corrupt = [&](std::string what) {
    return Error{.code = Code::kCorrupt, .detail = fmt::format("{}: {}", path, what)};
  };
  const json index = json::parse(text, nullptr, false);
  if (index.is_discarded()) return corrupt("it is no JSON");
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return corrupt("it has no \"weight_map\"");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) return corrupt(fmt::format("the file of {} is no string", json(name).dump(-1, ' ', true)));
    const auto& plain = file.get_ref<const std::string&>();
    if (plain.empty() || plain[0] == '.' || plain.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      return corrupt(fmt::format("the file {} is no plain name in the folder", file.dump(-1, ' ', true)));
    files.emplace(name, plain);
  }
  return files;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors_file(const std::string& path) {
  auto source = std::make_unique<SafetensorsSource>(path);
  const std::string name = fs::path(path).filename().string();
  const SafetensorsFile* const file = TUTTI_TRY(source->add_file(path, name));
  for (const SafetensorsEntry& entry : file->entries()) TUTTI_TRY(source->add(*file, entry, name));
  return std::unique_ptr<TensorSource>(std::move(source));
}

Result<std::unique_ptr<TensorSource>> open_safetensors_folder(const std::string& given) {
  const std::string folder = given.empty() ? "." : given, index = folder + "/" + kSafetensorsIndex;
  if (!fs::exists(index)) return open_safetensors_file(folder + "/model.safetensors");
  auto source = std::make_unique<SafetensorsSource>(folder);
  struct Opened {
    const SafetensorsFile* file = nullptr;
    std::map<std::string_view, const SafetensorsEntry*> entries;
  };
  std::map<std::string, Opened> files;
  for (const auto& [name, plain] : TUTTI_TRY(read_index(index))) {
    Opened& opened = files[plain];
    if (!opened.file) {
      opened.file = TUTTI_TRY(source->add_file(folder + "/" + plain, plain));
      for (const SafetensorsEntry& entry : opened.file->entries()) opened.entries.emplace(entry.name, &entry);
    }
    const auto entry = opened.entries.find(name);
    if (entry == opened.entries.end())
      return Error{.code = Code::kCorrupt,
                   .detail = fmt::format("{} says that {} is in {}, which has no such tensor", index,
                                         json(name).dump(-1, ' ', true), plain)};
    TUTTI_TRY(source->add(*opened.file, *entry->second, plain));
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace tutti
