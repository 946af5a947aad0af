#include "tutti/checkpoint/tools/rename.h"

#include <cstring>

namespace tutti {
namespace {

class NumberBytes : public PackedBytes {
 public:
  explicit NumberBytes(std::int64_t number) : number_(number) {}
  Status read(std::uint64_t begin, std::span<std::byte> into) override {
    std::memcpy(into.data(), reinterpret_cast<const std::byte*>(&number_) + begin, into.size());
    return {};
  }

 private:
  const std::int64_t number_;
};

class RenamedSource : public TensorSource {
 public:
  RenamedSource(const TensorSource& source, std::map<TensorKey, TensorKey> renamed,
                std::map<TensorKey, std::int64_t> numbers)
      : source_(source), renamed_(std::move(renamed)), numbers_(std::move(numbers)) {
    path_ = source.path();
    format_ = source.format();
    about_ = source.about();
    has_digests_ = source.has_digests();
    for (const auto& [key, old] : renamed_) tensors_.emplace(key, *source.find(old));
    for (const auto& [key, number] : numbers_)
      tensors_[key] = {.dtype = "I64", .element_bytes = sizeof number, .shape = {}, .parts = {{{}, "a number"}}};
  }
  Result<std::unique_ptr<TensorStream>> stream(const TensorKey& key) const override {
    return numbers_.contains(key) ? TensorSource::stream(key) : source_.stream(renamed_.at(key));
  }
  Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t part) const override {
    const auto number = numbers_.find(key);
    if (number == numbers_.end()) return source_.open_part(renamed_.at(key), part);
    return std::unique_ptr<PackedBytes>(std::make_unique<NumberBytes>(number->second));
  }

 private:
  const TensorSource& source_;
  const std::map<TensorKey, TensorKey> renamed_;
  const std::map<TensorKey, std::int64_t> numbers_;
};

}  // namespace

std::unique_ptr<TensorSource> rename_tensors(const TensorSource& source, std::map<TensorKey, TensorKey> renamed,
                                             std::map<TensorKey, std::int64_t> numbers) {
  return std::make_unique<RenamedSource>(source, std::move(renamed), std::move(numbers));
}

}  // namespace tutti
