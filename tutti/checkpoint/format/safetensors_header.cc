// The header is text from a stranger. It is read by events (SAX), not into a tree, so that duplicate keys, depth and
// wrong types are seen where they stand and nothing is built that the format has no place for. Then the rules over all
// entries: sorted by place, they start at 0, leave no hole, do not overlap, end with the file, and each takes as many
// bytes as its shape says. No hole and no overlap means no hidden payload and no small file that unfolds into a large
// one.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tutti/base/text.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti {
namespace {

struct DTypeRow {
  const char* name;
  unsigned bits;
  std::optional<DType> known;
};

constexpr DTypeRow kDTypeRows[] = {
    {"BOOL", 8, DType::kBool},
    {"U8", 8, DType::kU8},
    {"I8", 8, DType::kI8},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, {}},
    {"F32", 32, DType::kF32},
    {"I64", 64, DType::kI64},
    {"U64", 64, {}},
    {"F64", 64, DType::kF64},
    {"C64", 64, DType::kC64},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
};

const DTypeRow* find_dtype(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kDTypeRows), std::end(kDTypeRows), [&](const DTypeRow& r) { return name == r.name; });
  return row == std::end(kDTypeRows) ? nullptr : row;
}

constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::size_t kMaxDimensions = 64;

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  std::string failure;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return value < 0 ? unexpected("a negative number") : number_unsigned(number_unsigned_t(value));
  }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a number that is not a whole one"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Section::kShape) {
      if (entry_.shape.size() == kMaxDimensions)
        return fail(fmt::format("{} has more than {} dimensions", where(), kMaxDimensions));
      entry_.shape.push_back(value);
      return true;
    }
    if (place_ == Section::kOffsets) {
      if (offsets_ == 2) return fail(fmt::format("data_offsets of {} has more than 2 numbers", where()));
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Section::kMetadata) {
      header.metadata[key_] = value;
      return true;
    }
    if (place_ == Section::kTensor && key_ == "dtype") {
      entry_.dtype = value;
      return true;
    }
    return unexpected("a string");
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Section::kStart:
        place_ = Section::kTop;
        return true;
      case Section::kTop:
        place_ = key_ == "__metadata__" ? Section::kMetadata : Section::kTensor;
        entry_ = SafetensorsEntry{.name = key_};
        seen_here_.clear();
        return true;
      case Section::kMetadata:
      case Section::kTensor:
      case Section::kShape:
      case Section::kOffsets:
        return unexpected("an object");
    }
    return false;
  }

  bool key(string_t& name) override {
    auto& seen = place_ == Section::kTop ? seen_ : seen_here_;
    if (!seen.insert(name).second) return fail(fmt::format("the key {} occurs twice", quoted_name(name)));
    if (place_ == Section::kTop) {
      if (name.empty()) return fail("a tensor has an empty name");
      if (name.size() > kMaxNameBytes)
        return fail(fmt::format("the name {} has more than {} bytes", quoted_name(name), kMaxNameBytes));
      if (has_control_character(name))
        return fail(fmt::format("the name {} holds a control character", quoted_name(name)));
    }
    if (place_ == Section::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail(fmt::format("{} has the key {}; expected dtype, shape and data_offsets", quoted_name(entry_.name),
                              quoted_name(name)));
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Section::kTensor) {
      for (const char* needed : {"dtype", "shape", "data_offsets"}) {
        if (!seen_here_.contains(needed)) return fail(fmt::format("{} has no {}", quoted_name(entry_.name), needed));
      }
      header.entries.push_back(std::move(entry_));
    }
    place_ = Section::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Section::kTensor && key_ == "shape") {
      place_ = Section::kShape;
      return true;
    }
    if (place_ == Section::kTensor && key_ == "data_offsets") {
      place_ = Section::kOffsets;
      offsets_ = 0;
      return true;
    }
    return unexpected("a list");
  }

  bool end_array() override {
    if (place_ == Section::kOffsets && offsets_ != 2)
      return fail(fmt::format("data_offsets of {} has {} numbers; expected 2", quoted_name(entry_.name), offsets_));
    place_ = Section::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(fmt::format("not valid JSON near byte {} of the header", position));
  }

 private:
  enum class Section { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  std::string where() const {
    switch (place_) {
      case Section::kStart:
        return "the header";
      case Section::kTop:
        return quoted_name(key_);
      case Section::kMetadata:
        return fmt::format("__metadata__ {}", quoted_name(key_));
      case Section::kTensor:
      case Section::kShape:
      case Section::kOffsets:
        return fmt::format("{} of {}", key_, quoted_name(entry_.name));
    }
    return {};
  }
  bool unexpected(const char* what) {
    return fail(fmt::format("{} is {}, which the format has no place for", where(), what));
  }
  bool fail(std::string text) {
    failure = std::move(text);
    return false;
  }

  Section place_ = Section::kStart;
  std::string key_;
  SafetensorsEntry entry_;
  int offsets_ = 0;
  std::set<std::string> seen_;       // tensors, and __metadata__
  std::set<std::string> seen_here_;  // keys of the object inside
};

Error corrupt_header(std::string detail) { return Error{.code = Code::kCorrupt, .detail = std::move(detail)}; }

// The bytes that dtype and shape ask for.
Result<std::uint64_t> bytes_of(const SafetensorsEntry& entry) {
  const DTypeRow* row = find_dtype(entry.dtype);
  if (!row)
    return corrupt_header(
        fmt::format("{} has the unknown dtype {}", quoted_name(entry.name), quoted_name(entry.dtype)));
  std::uint64_t bits = row->bits;
  for (auto extent : entry.shape) {
    if (__builtin_mul_overflow(bits, extent, &bits))
      return corrupt_header(fmt::format("the shape of {} overflows 64 bits", quoted_name(entry.name)));
  }
  if (bits % 8 != 0) return corrupt_header(fmt::format("{} does not fill whole bytes", quoted_name(entry.name)));
  return bits / 8;
}

}  // namespace

std::optional<DType> SafetensorsEntry::known_dtype() const { return safetensors_dtype(dtype); }

std::optional<DType> safetensors_dtype(std::string_view name) {
  const DTypeRow* row = find_dtype(name);
  return row ? row->known : std::nullopt;
}

unsigned safetensors_bits(std::string_view name) {
  const DTypeRow* row = find_dtype(name);
  return row ? row->bits : 0;
}

const char* safetensors_name(DType dtype) {
  for (const DTypeRow& row : kDTypeRows)
    if (row.known == dtype) return row.name;
  return "";
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') return corrupt_header("the header does not begin with '{'");
  HeaderEvents events;
  const std::size_t last = json.find_last_not_of(' ');
  if (json[last] != '}') return corrupt_header("the header does not end with '}' and spaces");
  if (!nlohmann::json::sax_parse(json.begin(), json.begin() + std::ptrdiff_t(last) + 1, &events))
    return corrupt_header(events.failure);

  auto& entries = events.header.entries;
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t expected_begin = 0;
  for (const auto& entry : entries) {
    const std::uint64_t bytes = TUTTI_TRY(bytes_of(entry));
    if (entry.begin != expected_begin) {
      return corrupt_header(
          fmt::format("{} begins at byte {}, but the tensors before it end at {}: a hole or an overlap",
                      quoted_name(entry.name), entry.begin, expected_begin));
    }
    if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
      return corrupt_header(fmt::format("{} spans bytes {} to {}, but its dtype and shape take {}",
                                        quoted_name(entry.name), entry.begin, entry.end, bytes));
    }
    expected_begin = entry.end;
  }
  if (expected_begin != data_bytes) {
    return corrupt_header(
        fmt::format("the tensors end at byte {}, but {} bytes follow the header: the file was cut off or added to",
                    expected_begin, data_bytes));
  }
  return std::move(events.header);
}

}  // namespace tutti
