// The note is read by events, not into a tree: nlohmann's reader calls itself for each list within a list, so a note of
// nothing but openings would use up the stack before anybody could look at what it holds.
#include "tutti/runtime/meet_note.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace tutti {
namespace {

using nlohmann::json;

class NoteEvents : public nlohmann::json_sax<json> {
 public:
  MeetNote note;

  bool is_whole() const {
    return seen_ == std::set<std::string>{"agent", "algorithm", "boot", "cores",   "engines",
                                          "host",  "sharing",   "shm",  "streams", "transport"};
  }

  bool null() override { return false; }
  bool boolean(bool) override { return false; }
  bool number_integer(number_integer_t) override { return false; }
  bool number_float(number_float_t, const string_t&) override { return false; }
  bool binary(binary_t&) override { return false; }

  bool number_unsigned(number_unsigned_t value) override {
    if (in_list_) return note.cores.push_back(value), true;
    if (depth_ != 1 || key_ != "streams" || value > number_unsigned_t(std::numeric_limits<int>::max())) return false;
    note.streams = int(value);
    return true;
  }
  bool string(string_t& value) override {
    std::string* const to = depth_ != 1 || in_list_ ? nullptr
                            : key_ == "boot"        ? &note.boot
                            : key_ == "host"        ? &note.host
                            : key_ == "sharing"     ? &note.sharing
                            : key_ == "agent"       ? &note.agent
                            : key_ == "shm"         ? &note.shm
                            : key_ == "transport"   ? &note.transport
                            : key_ == "engines"     ? &note.engines
                            : key_ == "algorithm"   ? &note.algorithm
                                                    : nullptr;
    if (to) *to = value;
    return to;
  }
  bool start_object(std::size_t) override { return ++depth_ == 1; }
  bool end_object() override { return true; }
  bool key(string_t& name) override {
    key_ = name;
    return seen_.insert(name).second;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 1 || key_ != "cores" || in_list_) return false;
    return in_list_ = true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override { return false; }

 private:
  int depth_ = 0;
  bool in_list_ = false;
  std::string key_;
  std::set<std::string> seen_;
};

}  // namespace

std::string encode(const MeetNote& note) {
  std::string bytes;
  json::to_cbor({{"boot", note.boot},
                 {"host", note.host},
                 {"sharing", note.sharing},
                 {"agent", note.agent},
                 {"shm", note.shm},
                 {"cores", note.cores},
                 {"transport", note.transport},
                 {"engines", note.engines},
                 {"algorithm", note.algorithm},
                 {"streams", note.streams}},
                bytes);
  return bytes;
}

Result<MeetNote> parse_meet_note(const std::string& bytes) {
  NoteEvents events;
  if (bytes.size() <= MeetNote::kMostBytes &&
      json::sax_parse(bytes.begin(), bytes.end(), &events, json::input_format_t::cbor) && events.is_whole())
    return std::move(events.note);
  return Error{.code = Code::kMismatch,
               .detail = "introduced itself in words we do not know",
               .hint = "do all ranks run the same version of tutti?"};
}

}  // namespace tutti
