// The text is JSON, a line for each file and tensor, so that people can look for one. It ends with
//   "crc32c":"xxxxxxxx"}
// and a line feed: the CRC-32C of all of it, with these eight digits taken as zeros. So the digest is looked at first,
// and whatever follows reads what a writer meant, or text that somebody made to look so: every rule is checked all the
// same.
#include "tutti/checkpoint/format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tutti/base/crc32c.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/format/digests.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "tutti checkpoint";
constexpr int kVersion = 1;
constexpr std::string_view kTailBegin = "\"crc32c\":\"";
constexpr std::string_view kTailEnd = "\"}\n";
constexpr std::string_view kNoDigest = "00000000";
constexpr std::size_t kTail = kTailBegin.size() + 8 + kTailEnd.size();
constexpr std::size_t kDeepestJson = 12;
constexpr std::size_t kMostDimensions = 64;

// A broken rule ends the reading; parse_manifest() makes it an Error again.
[[noreturn]] void corrupt(std::string detail) {
  throw Exception(Error{.code = Code::kCorrupt, .detail = std::move(detail)});
}

std::uint32_t digest_of(std::string_view text) {
  const auto crc = [](std::string_view part, std::uint32_t before) {
    return crc32c(std::as_bytes(std::span(part)), before);
  };
  const std::size_t at = text.size() - kTailEnd.size() - 8;
  return crc(kTailEnd, crc(kNoDigest, crc(text.substr(0, at), 0)));
}

// The ending that follows from the text before it.
std::string tail_after(std::string_view body) {
  const std::string whole = fmt::format("{}{}{}{}", body, kTailBegin, kNoDigest, kTailEnd);
  return fmt::format("{}{:08x}{}", kTailBegin, digest_of(whole), kTailEnd);
}

std::string byte_text(std::uint64_t place, unsigned should, char is) {
  return fmt::format("; byte {} alone would explain it, were it 0x{:02x} in place of 0x{:02x}", place, should,
                     unsigned(static_cast<unsigned char>(is)));
}

// Which byte of the ending alone would explain that it is not the one of the text before; "": none.
std::string tail_byte_text(std::string_view text) {
  if (text.size() < kTail) return "";
  const std::string_view body = text.substr(0, text.size() - kTail), tail = text.substr(body.size());
  const std::string should = tail_after(body);
  const auto differ = [&](std::size_t from) {
    return std::size_t(
        std::mismatch(should.begin() + std::ptrdiff_t(from), should.end(), tail.begin() + std::ptrdiff_t(from)).first -
        should.begin());
  };
  const std::size_t first = differ(0);
  if (first == kTail || differ(first + 1) != kTail) return "";
  return byte_text(body.size() + first, static_cast<unsigned char>(should[first]), tail[first]);
}

// Which byte before the ending alone would explain that its digest is another; "": none.
std::string body_byte_text(std::string_view text, std::uint32_t expected) {
  const auto one = one_changed_byte(digest_of(text), expected, text.size());
  if (!one || one->place >= text.size() - kTail) return "";  // the digits count as zeros
  const char is = text[one->place];
  return byte_text(one->place, static_cast<unsigned char>(is) ^ one->change, is);
}

std::optional<std::uint32_t> hex8(std::string_view text) {
  std::uint32_t value = 0;
  const bool digits = text.size() == 8 && std::all_of(text.begin(), text.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
  if (!digits) return {};
  std::from_chars(text.data(), text.data() + 8, value, 16);
  return value;
}

// ---- writing

json value_json(const CheckpointValue& value) {
  if (const auto* const number = std::get_if<double>(&value); number && !std::isfinite(*number))
    return {{"float", std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf"}};
  return std::visit([](const auto& v) { return json(v); }, value);
}

json values_json(const CheckpointValues& values) {
  json object = json::object();
  for (const auto& [name, value] : values) object[name] = value_json(value);
  return object;
}

std::string tensor_text(const Manifest& manifest, const StoredTensor& tensor) {
  std::string boxes;
  for (const StoredBox& box : tensor.boxes) {
    boxes += fmt::format(R"({}{{"file":{},"offset":{},"begin":[{}],"extent":[{}],"crc32c":")", boxes.empty() ? "" : ",",
                         json(manifest.files.at(box.file).name).dump(), box.offset, fmt::join(box.box.begin, ","),
                         fmt::join(box.box.extent, ","));
    for (const std::uint32_t crc : box.crc32c) boxes += fmt::format("{:08x}", crc);
    boxes += "\"}";
  }
  return fmt::format(R"("dtype":"{}","shape":[{}],"boxes":[{}])", safetensors_name(tensor.dtype),
                     fmt::join(tensor.shape, ","), boxes);
}

std::string text_of(const Manifest& manifest) {
  const CheckpointFacts& facts = manifest.facts;
  std::string out = fmt::format("{{\"format\":\"{}\",\"version\":{},\n\"step\":{},\n", kFormat, kVersion, facts.step);
  out += "\"values\":" + values_json(facts.values).dump() + ",\n\"data\":" + values_json(facts.data).dump() +
         ",\n\"layout\":" + values_json(facts.layout).dump() + ",\n\"versions\":" + values_json(facts.versions).dump() +
         fmt::format(",\n\"chunk_bytes\":{},\n\"files\":[\n", manifest.chunk_bytes);
  const char* comma = "";
  for (const StoredFile& file : manifest.files) {
    out += fmt::format(R"({}{{"name":{},"bytes":{},"header_bytes":{},"header_crc32c":"{:08x}"}})", comma,
                       json(file.name).dump(), file.bytes, file.header_bytes, file.header_crc32c);
    comma = ",\n";
  }
  out += "],\n\"tensors\":{\n";
  comma = "";
  for (auto at = manifest.tensors.begin(); at != manifest.tensors.end();) {
    const std::string& name = at->first.name;
    std::string own, states;  // the empty state comes first
    for (; at != manifest.tensors.end() && at->first.name == name; ++at) {
      if (at->first.state.empty()) {
        own = tensor_text(manifest, at->second);
      } else {
        states += fmt::format("{}{}:{{{}}}", states.empty() ? "" : ",", json(at->first.state).dump(),
                              tensor_text(manifest, at->second));
      }
    }
    if (!states.empty()) own += (own.empty() ? "\"state\":{" : ",\"state\":{") + states + "}";
    out += fmt::format("{}{}:{{{}}}", comma, json(name).dump(), own);
    comma = ",\n";
  }
  out += "},\n";
  out += kTailBegin;
  out += kNoDigest;
  out += kTailEnd;
  return detail::with_manifest_digest(std::move(out));
}

// ---- reading

// Builds the tree, and sees twofold keys and depth where they stand. (The library's own callbacks take time in
// proportion to the square of an object's members.)
class Building : public nlohmann::json_sax<json> {
 public:
  json root;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { corrupt("it is no JSON: it has binary data"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back()->contains(name)) corrupt(fmt::format("the key {} occurs twice", quoted_name(name)));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) corrupt("it is no JSON: it has a number that is too large");
    corrupt(fmt::format("it is no JSON: it cannot be read from byte {} on", position));
  }

 private:
  json* place(json value) {
    if (open_.empty()) return &(root = std::move(value));
    json& around = *open_.back();
    if (!around.is_array()) return &(around[key_] = std::move(value));
    around.push_back(std::move(value));
    return &around.back();
  }
  bool put(json value) {
    (void)place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() > kDeepestJson) corrupt(fmt::format("it nests more than {} deep", kDeepestJson));
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<json*> open_;  // objects and lists around, the innermost last
  std::string key_;
};

json parse_json(std::string_view text) {
  Building building;
  (void)json::sax_parse(text.begin(), text.end(), &building);
  return std::move(building.root);
}

// A member of an object; `where` is the object, for errors.
const json& member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) corrupt(fmt::format("{} is no object", where));
  const auto found = object.find(key);
  if (found == object.end()) corrupt(fmt::format("{} has no \"{}\"", where, key));
  return *found;
}

std::uint64_t whole_number(const json& value, const std::string& what) {
  if (!value.is_number_unsigned()) corrupt(fmt::format("{} is no whole number from 0 on", what));
  return value.get<std::uint64_t>();
}
std::uint64_t whole_member(const json& object, const char* key, const std::string& where) {
  return whole_number(member(object, key, where), fmt::format("\"{}\" of {}", key, where));
}

const std::string& text_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key, where);
  if (!value.is_string()) corrupt(fmt::format("\"{}\" of {} is no string", key, where));
  return value.get_ref<const std::string&>();
}

const json& list_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key, where);
  if (!value.is_array()) corrupt(fmt::format("\"{}\" of {} is no list", key, where));
  return value;
}

const json& object_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key, where);
  if (!value.is_object()) corrupt(fmt::format("\"{}\" of {} is no object", key, where));
  return value;
}

std::uint32_t digest_member(const json& object, const char* key, const std::string& where) {
  const auto digest = hex8(text_member(object, key, where));
  if (!digest) corrupt(fmt::format("\"{}\" of {} is no digest of 8 hexadecimal digits", key, where));
  return *digest;
}

TensorShape shape_member(const json& object, const char* key, const std::string& where) {
  const json& list = list_member(object, key, where);
  if (list.size() > kMostDimensions)
    corrupt(fmt::format("\"{}\" of {} has more than {} dimensions", key, where, kMostDimensions));
  TensorShape shape;
  for (const json& size : list) shape.push_back(whole_number(size, fmt::format("\"{}\" of {}", key, where)));
  return shape;
}

CheckpointValue value_from(const json& value, const std::string& where) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    corrupt(fmt::format("{} is too large a number", where));
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_object() && value.size() == 1) {
    const std::string& word = text_member(value, "float", where);
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (word == "inf") return std::numeric_limits<double>::infinity();
    if (word == "-inf") return -std::numeric_limits<double>::infinity();
  }
  corrupt(fmt::format("{} is no number, string, true or false", where));
}

CheckpointValues values_from(const json& top, const char* key) {
  CheckpointValues values;
  for (const auto& [name, value] : object_member(top, key, "it").items())
    values.emplace(name, value_from(value, fmt::format("{} of \"{}\"", quoted_name(name), key)));
  return values;
}

StoredFile file_from(const json& from) {
  StoredFile file;
  file.name = text_member(from, "name", "a file");
  const std::string where = "the file " + quoted_name(file.name);
  const bool plain = !file.name.empty() && file.name.size() <= 255 && file.name[0] != '.' &&
                     std::all_of(file.name.begin(), file.name.end(),
                                 [](unsigned char c) { return c > 0x20 && c != 0x7f && c != '/' && c != '\\'; });
  if (!plain) corrupt(fmt::format("{} is no plain name in the folder", where));
  file.bytes = whole_member(from, "bytes", where);
  file.header_bytes = whole_member(from, "header_bytes", where);
  file.header_crc32c = digest_member(from, "header_crc32c", where);
  if (file.header_bytes > file.bytes || file.bytes > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    corrupt(fmt::format("{} has {} bytes, of which {} header", where, file.bytes, file.header_bytes));
  return file;
}

class Tensors {
 public:
  explicit Tensors(Manifest& manifest) : manifest_(manifest) {
    for (std::size_t f = 0; f < manifest.files.size(); ++f)
      if (!files_.emplace(manifest.files[f].name, std::uint32_t(f)).second)
        corrupt(fmt::format("two files are named {}", quoted_name(manifest.files[f].name)));
  }

  void add(const std::string& name, const json& from) {
    const std::string where = "the tensor " + quoted_name(name);
    if (name.empty()) corrupt("a tensor has an empty name");
    if (!from.is_object()) corrupt(fmt::format("{} is no object", where));
    if (from.contains("dtype")) add(TensorKey{name, ""}, from, where);
    if (!from.contains("state")) {
      if (!from.contains("dtype")) corrupt(fmt::format("{} has neither \"dtype\" nor \"state\"", where));
      return;
    }
    for (const auto& [state, tensor] : object_member(from, "state", where).items()) {
      if (state.empty()) corrupt(fmt::format("a state of {} has an empty name", where));
      add(TensorKey{name, state}, tensor, fmt::format("the state {} of {}", quoted_name(state), where));
    }
  }

 private:
  void add(const TensorKey& key, const json& from, const std::string& where) {
    StoredTensor tensor;
    const std::string& dtype = text_member(from, "dtype", where);
    const auto known = safetensors_dtype(dtype);
    if (!known) corrupt(fmt::format("{} has the unknown dtype {}", where, quoted_name(dtype)));
    tensor.dtype = *known;
    tensor.shape = shape_member(from, "shape", where);
    const auto elements = elements_of(tensor.shape);
    std::uint64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, size_of(tensor.dtype), &bytes))
      corrupt(fmt::format("the shape of {} overflows 64 bits", where));
    const json& boxes = list_member(from, "boxes", where);
    if (boxes.size() > kMostBoxes)
      corrupt(fmt::format("{} lies in {} boxes; at most {} are read", where, boxes.size(), kMostBoxes));
    for (const json& box : boxes) tensor.boxes.push_back(box_from(box, tensor, "a box of " + where));
    manifest_.tensors.emplace(key, std::move(tensor));
  }

  StoredBox box_from(const json& from, const StoredTensor& tensor, const std::string& where) {
    StoredBox box;
    box.box = {shape_member(from, "begin", where), shape_member(from, "extent", where)};
    if (!box.box.inside(tensor.shape))
      corrupt(fmt::format("{} is [{}] and [{}] long, which is not inside {}", where, fmt::join(box.box.begin, ", "),
                          fmt::join(box.box.extent, ", "), shape_text(tensor.shape)));
    const std::string& name = text_member(from, "file", where);
    const auto file = files_.find(name);
    if (file == files_.end())
      corrupt(fmt::format("{} lies in {}, which is not among the files", where, quoted_name(name)));
    box.file = file->second;
    box.offset = whole_member(from, "offset", where);
    const StoredFile& stored = manifest_.files[box.file];
    const std::uint64_t bytes = box.box.elements() * size_of(tensor.dtype);
    if (box.offset < stored.header_bytes || box.offset > stored.bytes || bytes > stored.bytes - box.offset)
      corrupt(fmt::format("{} takes {} bytes from byte {} of {}, which has {} to {}", where, bytes, box.offset,
                          quoted_name(name), stored.header_bytes, stored.bytes));
    const std::string_view digests = text_member(from, "crc32c", where);
    const std::uint64_t chunks = bytes / manifest_.chunk_bytes + (bytes % manifest_.chunk_bytes != 0);
    if (digests.size() % 8 != 0 || digests.size() / 8 != chunks)
      corrupt(
          fmt::format("{} has {} digits of digests; its {} chunks take {}", where, digests.size(), chunks, 8 * chunks));
    for (std::size_t at = 0; at < digests.size(); at += 8) {
      const auto digest = hex8(digests.substr(at, 8));
      if (!digest) corrupt(fmt::format("{} has the digest {}", where, quoted_name(digests.substr(at, 8))));
      box.crc32c.push_back(*digest);
    }
    return box;
  }

  Manifest& manifest_;
  std::map<std::string, std::uint32_t> files_;
};

// Each byte behind the headers belongs to one box.
void check_files_are_filled(const Manifest& manifest) {
  struct Run {
    std::uint64_t begin, end;
    const TensorKey* key;
  };
  std::vector<std::vector<Run>> runs(manifest.files.size());
  for (const auto& [key, tensor] : manifest.tensors)
    for (const StoredBox& box : tensor.boxes)
      if (const std::uint64_t bytes = box.box.elements() * size_of(tensor.dtype); bytes > 0)
        runs[box.file].push_back({box.offset, box.offset + bytes, &key});
  for (std::size_t f = 0; f < runs.size(); ++f) {
    std::sort(runs[f].begin(), runs[f].end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
    const StoredFile& file = manifest.files[f];
    std::uint64_t at = file.header_bytes;
    for (const Run& run : runs[f]) {
      if (run.begin != at)
        corrupt(fmt::format("{} begins at byte {} of {}, but what is before it ends at {}: a hole or an overlap",
                            quoted_name(to_string(*run.key)), run.begin, quoted_name(file.name), at));
      at = run.end;
    }
    if (at != file.bytes)
      corrupt(fmt::format("the tensors in {} end at byte {}, but it has {}", quoted_name(file.name), at, file.bytes));
  }
}

void check_digest(std::string_view text) {
  const bool has_tail =
      text.size() >= kTail && text.ends_with(kTailEnd) && text.substr(text.size() - kTail).starts_with(kTailBegin);
  const auto digest = has_tail ? hex8(text.substr(text.size() - kTailEnd.size() - 8, 8)) : std::nullopt;
  const std::string of_tail = tail_byte_text(text);
  if (!digest)
    corrupt(of_tail.empty() ? "it does not end with its digest: it was cut off or added to"
                            : "it has changed: it does not end with its digest" + of_tail);
  if (const std::uint32_t found = digest_of(text); found != *digest)
    corrupt(fmt::format("it has changed: its digest is {:08x}, expected {:08x}{}", found, *digest,
                        of_tail.empty() ? body_byte_text(text, *digest) : of_tail));
}

Manifest read(std::string_view text) {
  check_digest(text);
  const json top = parse_json(text);
  if (text_member(top, "format", "it") != kFormat)
    corrupt(fmt::format("it is {}, not \"{}\"", quoted_name(text_member(top, "format", "it")), kFormat));
  if (const std::uint64_t version = whole_member(top, "version", "it"); version != kVersion)
    throw Exception(
        Error{.code = Code::kUnsupported,
              .detail = fmt::format("it is of version {}; this program reads version {}", version, kVersion),
              .hint = "read it with the program that wrote it, or a newer one"});
  Manifest manifest;
  const std::uint64_t step = whole_member(top, "step", "it");
  if (step > std::uint64_t(std::numeric_limits<std::int64_t>::max())) corrupt("\"step\" is too large a number");
  manifest.facts.step = std::int64_t(step);
  manifest.facts.values = values_from(top, "values");
  manifest.facts.data = values_from(top, "data");
  manifest.facts.layout = values_from(top, "layout");
  manifest.facts.versions = values_from(top, "versions");
  manifest.chunk_bytes = whole_member(top, "chunk_bytes", "it");
  if (manifest.chunk_bytes < 4096 || manifest.chunk_bytes > std::uint64_t(1) << 30)
    corrupt(fmt::format("\"chunk_bytes\" is {}, which is not from 4 KiB to 1 GiB", manifest.chunk_bytes));
  for (const json& file : list_member(top, "files", "it")) manifest.files.push_back(file_from(file));
  Tensors tensors(manifest);
  for (const auto& [name, tensor] : object_member(top, "tensors", "it").items()) tensors.add(name, tensor);
  check_files_are_filled(manifest);
  return manifest;
}

void check_tensors_are_whole(const Manifest& manifest) {
  for (const auto& [key, tensor] : manifest.tensors) {
    std::vector<TensorBox> boxes;
    for (const StoredBox& box : tensor.boxes) boxes.push_back(box.box);
    if (const std::string trouble = gap_or_overlap(tensor.shape, boxes); !trouble.empty())
      corrupt(fmt::format("the tensor {} {} is not whole: {}", quoted_name(to_string(key)), shape_text(tensor.shape),
                          trouble));
  }
}

Result<Manifest> parse(std::string_view text, bool whole) {
  try {
    Manifest manifest = read(text);
    if (whole) check_tensors_are_whole(manifest);
    return manifest;
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace

std::string detail::with_manifest_digest(std::string text) {
  if (text.size() >= kTail) text.replace(text.size() - kTailEnd.size() - 8, 8, fmt::format("{:08x}", digest_of(text)));
  return text;
}

std::optional<std::int64_t> whole_number(const CheckpointValues& values, const std::string& name) {
  const auto found = values.find(name);
  const auto* value = found == values.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<double> real_number(const CheckpointValues& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) return {};
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return double(*value);
  return {};
}

std::string to_string(const TensorKey& key) { return key.state.empty() ? key.name : key.state + " of " + key.name; }

Result<std::string> compose_manifest(const Manifest& manifest) {
  try {
    return text_of(manifest);
  } catch (const json::exception&) {
    return invalid_argument("checkpoint: a name or a value is not valid UTF-8");
  }
}

Result<Manifest> parse_manifest(std::string_view text) { return parse(text, true); }
Result<Manifest> parse_manifest_part(std::string_view text) { return parse(text, false); }

void merge(Manifest& into, Manifest part) {
  const auto shift = std::uint32_t(into.files.size());
  for (StoredFile& file : part.files) into.files.push_back(std::move(file));
  for (auto& [key, tensor] : part.tensors) {
    StoredTensor& whole = into.tensors[key];
    whole.dtype = tensor.dtype;
    whole.shape = tensor.shape;
    for (StoredBox& box : tensor.boxes) {
      box.file += shift;
      whole.boxes.push_back(std::move(box));
    }
  }
}

}  // namespace tutti
