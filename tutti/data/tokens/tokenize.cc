// Threads take batches in turn, work on them side by side, and hand in their results in the order of the batches: who
// is done early waits for those before. So at most a batch a thread is in memory.
#include "tutti/data/tokens/tokenize.h"

#include <fmt/format.h>

#include <condition_variable>
#include <optional>

#include "tutti/base/mutex.h"
#include "tutti/data/clicks/on_threads.h"
#include "tutti/data/tokenizers/pretokens.h"
#include "tutti/data/tokens/token_writer.h"

namespace tutti {
namespace {

// Any thread may call these.
class InOrder {
 public:
  InOrder(TextDocuments& documents, const TextWork& work) : documents_(documents), work_(work) {}

  struct Taken {
    std::uint64_t number;
    TextDocuments::Batch batch;
  };
  std::optional<Taken> take() {
    const MutexLock lock(mutex_);
    if (stopped_) return {};
    const TextDocuments::Batch batch = documents_.next();
    if (batch.text.empty()) return {};
    return Taken{taken_++, batch};
  }
  // Runs `act` once all batches before have been handed in; not after stop().
  Status hand_in(const Taken& taken, const std::function<Status()>& act) {
    MutexLock lock(mutex_);
    while (!stopped_ && handed_in_ != taken.number) turn_.wait(lock);
    if (stopped_) return {};
    TUTTI_TRY(act());
    ++handed_in_;
    done_ += taken.batch.text.size();
    if (work_.progress) work_.progress(double(done_) / double(documents_.bytes()));
    turn_.notify_all();
    return {};
  }
  void stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    turn_.notify_all();
  }

 private:
  TextDocuments& documents_;
  const TextWork& work_;
  Mutex mutex_;
  std::condition_variable_any turn_;
  std::uint64_t taken_ TUTTI_GUARDED_BY(mutex_) = 0, handed_in_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool stopped_ TUTTI_GUARDED_BY(mutex_) = false;
};

// The tokens of a batch, and where each document ends in them.
struct Encoded {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;
};

}  // namespace

Result<TokenizeReport> tokenize(TextDocuments& documents, const Tokenizer& tokenizer, const std::string& output_prefix,
                                bool append_end, const TextWork& work) {
  const auto end = tokenizer.end_of_document();
  if (append_end && !end) return invalid_argument("the vocabulary has no token for the end of a document");
  TokenWriter writer = TUTTI_TRY(TokenWriter::create(output_prefix, type_for_vocabulary(tokenizer.vocabulary())));
  InOrder order(documents, work);
  const auto encode_all = [&]() -> Status {
    const auto encoder = tokenizer.encoder();
    Encoded encoded;
    while (const auto taken = order.take()) {
      encoded.tokens.clear(), encoded.ends.clear();
      TUTTI_TRY(documents.for_each(taken->batch, [&](std::string_view document) -> Status {
        encoder->encode(document, encoded.tokens);
        if (append_end) encoded.tokens.push_back(*end);
        encoded.ends.push_back(encoded.tokens.size());
        return {};
      }));
      TUTTI_TRY(order.hand_in(*taken, [&]() -> Status {
        std::size_t begin = 0;
        for (const std::size_t document_end : encoded.ends) {
          TUTTI_TRY(writer.add_sequence(std::span(encoded.tokens).subspan(begin, document_end - begin)));
          writer.end_document();
          begin = document_end;
        }
        return {};
      }));
    }
    return {};
  };
  TUTTI_TRY(on_threads(work.threads, encode_all, [&] { order.stop(); }));
  if (writer.documents() == 0)
    return invalid_argument("there is no document in the text that was given", "nothing was written");
  const TokenizeReport report{writer.documents(), writer.tokens(), documents.bytes()};
  TUTTI_TRY(writer.finish());
  return report;
}

Result<WordCounts> count_words(TextDocuments& documents, std::string_view pattern, const TextWork& work) {
  WordCounts all;
  InOrder order(documents, work);
  const auto count_all = [&]() -> Status {
    Pretokens pretokens(pattern);
    while (const auto taken = order.take()) {
      WordCounts counts;
      TUTTI_TRY(documents.for_each(taken->batch, [&](std::string_view document) -> Status {
        pretokens.begin(document);
        for (std::string_view word = pretokens.next(); !word.empty(); word = pretokens.next()) counts.add(word);
        return {};
      }));
      TUTTI_TRY(order.hand_in(*taken, [&]() -> Status {
        all.add(counts);
        return {};
      }));
    }
    return {};
  };
  TUTTI_TRY(on_threads(work.threads, count_all, [&] { order.stop(); }));
  return all;
}

}  // namespace tutti
