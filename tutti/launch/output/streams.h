#pragma once
// Which of a rank's streams are meant, as torchrun's --redirects and --tee say it.
#include <map>
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

struct Streams {
  bool output = false, errors = false;

  bool any() const { return output || errors; }
  bool operator==(const Streams&) const = default;
};

// Of the ranks of a node, by local rank.
class StreamsByRank {
 public:
  StreamsByRank() = default;
  explicit StreamsByRank(Streams all) : others_(all) {}

  void set(int local_rank, Streams streams) { named_[local_rank] = streams; }
  Streams of(int local_rank) const {
    const auto named = named_.find(local_rank);
    return named == named_.end() ? others_ : named->second;
  }
  bool any() const;

 private:
  Streams others_;
  std::map<int, Streams> named_;
};

// "0" none, "1" standard output, "2" standard error, "3" both, of every rank; or by local rank, "0:3,2:1", where those
// that are not named have none, and of two words about one the later counts. kUsage: anything else.
Result<StreamsByRank> parse_streams(std::string_view text, const std::string& option);

}  // namespace tutti
