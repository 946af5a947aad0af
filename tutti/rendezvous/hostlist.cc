// A recursive grammar of depth two, read in one pass: an item is a list of prefixes that every text lengthens and every
// bracket multiplies. The limit is checked before a bracket is expanded, so "[0-999999999]" costs nothing.
#include "tutti/rendezvous/schedulers.h"

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kMaxDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(std::string_view what, std::string_view text, std::size_t limit) : what_(what), text_(text), limit_(limit) {}

  Result<std::vector<std::string>> hosts() {
    if (text_.size() > kMaxText) return wrong("is longer than 1 MiB");
    std::vector<std::string> all;
    for (;;) {
      auto item = TUTTI_TRY(hosts_of_item(limit_ - all.size()));
      all.insert(all.end(), item.begin(), item.end());
      if (at_end()) return all;
      ++at_;  // the comma
    }
  }

  Result<std::vector<int>> counts() {
    std::vector<int> all;
    for (;;) {
      const int count = TUTTI_TRY(number());
      int times = 1;
      if (text_.substr(at_).starts_with("(x")) {
        at_ += 2;
        times = TUTTI_TRY(number());
        if (at_end() || text_[at_] != ')') return wrong("lacks a \")\"");
        ++at_;
      }
      if (std::size_t(times) > limit_ - all.size()) return too_many();
      all.insert(all.end(), std::size_t(times), count);
      if (at_end()) return all;
      if (text_[at_] != ',') return wrong("has a stray character");
      ++at_;
    }
  }

 private:
  bool at_end() const { return at_ == text_.size(); }

  // Up to the next comma outside of brackets.
  Result<std::vector<std::string>> hosts_of_item(std::size_t room) {
    std::vector<std::string> hosts = {""};
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != ',') {
      if (text_[at_] == '[') {
        ++at_;
        const auto numbers = TUTTI_TRY(bracket(room));
        if (numbers.size() > room / hosts.size()) return too_many();
        std::vector<std::string> product;
        product.reserve(hosts.size() * numbers.size());
        for (const std::string& host : hosts)
          for (const std::string& number : numbers) product.push_back(host + number);
        hosts = std::move(product);
      } else {
        const std::size_t end = std::min(text_.find_first_of("[],", at_), text_.size());
        if (end == at_) return wrong("has a \"]\" without a \"[\"");
        for (std::string& host : hosts) host.append(text_.substr(at_, end - at_));
        at_ = end;
      }
    }
    if (at_ == begin) return wrong("has an empty name");
    if (hosts.size() > room) return too_many();
    return hosts;
  }

  // After "[": the padded numbers of "08-11,20]".
  Result<std::vector<std::string>> bracket(std::size_t room) {
    std::vector<std::string> numbers;
    for (;;) {
      const std::size_t begin = at_;
      const int low = TUTTI_TRY(number());
      const std::size_t width = at_ - begin;
      int high = low;
      if (!at_end() && text_[at_] == '-') {
        ++at_;
        high = TUTTI_TRY(number());
        if (high < low) return wrong("has a reversed range");
      }
      if (std::size_t(high - low) >= room - std::min(room, numbers.size())) return too_many();
      for (int value = low; value <= high; ++value) {
        const std::string digits = std::to_string(value);
        numbers.push_back(std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits);
      }
      if (at_end()) return wrong("lacks a \"]\"");
      const char next = text_[at_++];
      if (next == ']') return numbers;
      if (next != ',') return --at_, wrong("has a stray character");
    }
  }

  Result<int> number() {
    const std::size_t begin = at_;
    while (!at_end() && is_digit(text_[at_])) ++at_;
    if (at_ == begin) return wrong("lacks a number");
    if (at_ - begin > kMaxDigits) return at_ = begin, wrong("has a number of more than 9 digits");
    return int(*parse_int(text_.substr(begin, at_ - begin)));
  }

  Error wrong(const std::string& how) const {
    return Error{.code = Code::kUsage,
                 .detail = "the " + std::string(what_) + " \"" + std::string(text_.substr(0, 200)) + "\" " + how +
                           " at character " + std::to_string(at_ + 1)};
  }
  Error too_many() const {
    return Error{.code = Code::kUsage,
                 .detail = "the " + std::string(what_) + " \"" + std::string(text_.substr(0, 200)) +
                           "\" has more than " + std::to_string(limit_) + " entries"};
  }

  std::string_view what_;
  std::string_view text_;
  std::size_t limit_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text, std::size_t limit) {
  return Reader("host list", text, limit).hosts();
}

Result<std::vector<int>> expand_counts(std::string_view text, std::size_t limit) {
  return Reader("list of counts", text, limit).counts();
}

}  // namespace tutti
