// The bytes are read by events, not into a tree: nlohmann's reader recurses for each list within a list, so bytes that
// only open lists would use up the stack before anything could check them.
#include "tutti/runtime/introduction.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace tutti::runtime {
namespace {

using nlohmann::json;

class IntroductionEvents : public nlohmann::json_sax<json> {
 public:
  RankIntroduction introduction;

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
    if (in_list_) return introduction.cores.push_back(value), true;
    if (depth_ != 1 || key_ != "streams" || value > number_unsigned_t(std::numeric_limits<int>::max())) return false;
    introduction.streams = int(value);
    return true;
  }
  bool string(string_t& value) override {
    std::string* const to = depth_ != 1 || in_list_ ? nullptr
                            : key_ == "boot"        ? &introduction.boot
                            : key_ == "host"        ? &introduction.host
                            : key_ == "sharing"     ? &introduction.sharing
                            : key_ == "agent"       ? &introduction.agent
                            : key_ == "shm"         ? &introduction.shm
                            : key_ == "transport"   ? &introduction.transport
                            : key_ == "engines"     ? &introduction.engines
                            : key_ == "algorithm"   ? &introduction.algorithm
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

std::string encode(const RankIntroduction& introduction) {
  std::string bytes;
  json::to_cbor({{"boot", introduction.boot},
                 {"host", introduction.host},
                 {"sharing", introduction.sharing},
                 {"agent", introduction.agent},
                 {"shm", introduction.shm},
                 {"cores", introduction.cores},
                 {"transport", introduction.transport},
                 {"engines", introduction.engines},
                 {"algorithm", introduction.algorithm},
                 {"streams", introduction.streams}},
                bytes);
  return bytes;
}

Result<RankIntroduction> parse_introduction(const std::string& bytes) {
  IntroductionEvents events;
  if (bytes.size() <= RankIntroduction::kMostBytes &&
      json::sax_parse(bytes.begin(), bytes.end(), &events, json::input_format_t::cbor) && events.is_whole())
    return std::move(events.introduction);
  return Error{.code = Code::kMismatch,
               .detail = "sent an introduction that this version does not understand",
               .hint = "do all ranks run the same version of tutti?"};
}

}  // namespace tutti::runtime
