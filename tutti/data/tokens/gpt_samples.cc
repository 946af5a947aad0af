#include "tutti/data/tokens/gpt_samples.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/base/random.h"

namespace tutti {
namespace {

constexpr std::int64_t kExtra = 1;  // the token that the last one of a sample predicts

struct Epochs {
  std::int64_t count = 1;
  std::int64_t samples_before_last = 0;  // of all epochs but the last
  bool last_is_separate = false;
};

// Megatron-LM's rule, to the rounding.
Epochs epochs_for(std::int64_t tokens, const GptSampleOptions& options) {
  const std::int64_t length = options.sequence_length;
  Epochs epochs;
  if (options.samples == 0) return epochs;
  epochs.count = std::max<std::int64_t>((options.samples * length + kExtra + tokens - 1) / tokens, 1);
  if (epochs.count == 1) return epochs;
  epochs.samples_before_last = ((epochs.count - 1) * tokens - kExtra) / length;
  const std::int64_t of_last = options.samples - epochs.samples_before_last;
  const std::int64_t of_one = (tokens - kExtra) / length;
  epochs.last_is_separate = of_last < std::int64_t(0.80 * double(of_one));
  return epochs;
}

// The documents `epochs` times over, shuffled together.
void append_documents(std::vector<std::int32_t>& index, std::int64_t first, std::int64_t last, std::int64_t epochs,
                      NumpyRandom& random) {
  const std::size_t begin = index.size();
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    for (std::int64_t document = first; document < last; ++document) index.push_back(std::int32_t(document));
  random.shuffle(std::span(index).subspan(begin));
}

// Where each sample begins, and where the last one ends: a walk over the documents in their order.
std::vector<GptSamples::Position> walk(const TokenFile& file, std::span<const std::int32_t> documents,
                                       std::int64_t samples, std::int64_t length) {
  std::vector<GptSamples::Position> places{{0, 0}};
  places.reserve(std::size_t(samples) + 1);
  GptSamples::Position at{0, 0};
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::int64_t wanted = length + kExtra;
    for (;;) {
      const std::int64_t there = file.length(documents[std::size_t(at.document)]) - at.offset;
      if (there >= wanted) {
        at.offset += wanted - kExtra;  // the next sample begins with this one's last token
        break;
      }
      wanted -= there;
      at = {at.document + 1, 0};
    }
    places.push_back(at);
  }
  return places;
}

// 0 .. total-1, those below `first` shuffled among themselves, then the others.
std::vector<std::uint32_t> shuffled(std::int64_t first, std::int64_t total, NumpyRandom& random) {
  std::vector<std::uint32_t> index(std::size_t(total), 0);
  std::iota(index.begin(), index.end(), 0u);
  random.shuffle(std::span(index).first(std::size_t(first)));
  if (first < total) random.shuffle(std::span(index).subspan(std::size_t(first)));
  return index;
}

}  // namespace

GptSamples::GptSamples(const TokenFile& file, std::int64_t first, std::int64_t last, const GptSampleOptions& options)
    : file_(file), length_(options.sequence_length) {
  TUTTI_REQUIRE(length_ >= 1 && options.samples >= 0, file.prefix(), ": samples of ", length_, " tokens, ",
                options.samples, " of them, expected 1 or more tokens and 0 or more samples");
  TUTTI_REQUIRE(first >= 0 && first <= last && last <= file.sequences(), file.prefix(), ": sequences ", first, " to ",
                last, " of ", file.sequences());
  std::int64_t tokens = 0;
  for (std::int64_t sequence = first; sequence < last; ++sequence) tokens += file.length(sequence);
  TUTTI_REQUIRE(tokens >= length_ + kExtra || (tokens > 0 && options.samples > 0), file.prefix(), ": the ",
                last - first, " sequences of this part have ", tokens, " tokens, too few for one sample of ", length_,
                " + 1: give ", "more text, a shorter --seq-length, or another --split");
  const Epochs epochs = epochs_for(tokens, options);
  epochs_ = epochs.count;
  const std::int64_t samples = (epochs_ * tokens - kExtra) / length_;
  TUTTI_REQUIRE(samples <= std::numeric_limits<std::uint32_t>::max() - 1 &&
                    epochs_ * (last - first) <= std::numeric_limits<std::int32_t>::max(),
                file.prefix(), ": ", samples, " samples of ", epochs_ * (last - first),
                " documents are more than the indices can number (2^32 - 2, 2^31 - 1)");
  NumpyRandom random(options.seed);
  append_documents(document_index_, first, last, epochs.last_is_separate ? epochs_ - 1 : epochs_, random);
  if (epochs.last_is_separate) append_documents(document_index_, first, last, 1, random);
  sample_index_ = walk(file, document_index_, samples, length_);
  shuffle_index_ = shuffled(epochs.last_is_separate ? epochs.samples_before_last : samples, samples, random);
}

void GptSamples::read(std::int64_t i, std::span<std::int64_t> into) const {
  TUTTI_REQUIRE(i >= 0 && i < size(), file_.prefix(), ": sample ", i, " of ", size());
  TUTTI_REQUIRE(std::int64_t(into.size()) == length_ + kExtra, file_.prefix(), ": room for ", into.size(),
                " tokens, expected ", length_ + kExtra);
  auto [document, offset] = sample_index_[shuffle_index_[std::size_t(i)]];
  while (!into.empty()) {
    const std::int64_t sequence = document_index_[std::size_t(document)];
    const std::size_t here = std::min(into.size(), std::size_t(file_.length(sequence) - offset));
    file_.read(sequence, offset, into.first(here));
    into = into.subspan(here);
    ++document, offset = 0;
  }
}

}  // namespace tutti
