// Scores requests with a model that train_dlrm has saved: a line in, a probability out.
//
//   train_dlrm --data-size 1000 --mini-batch-size 10 --save-model model
//   echo "0.1 0.2 0.3 0.4  0,2 1 1" | dlrm_score model
//
// A line has the dense features, then for each categorical feature the rows to look up, joined by commas ("-": none).
// Read dlrm_score.cc's main() from top to bottom; the work is done by tutti/models/dlrm/scorer.h.
#include <tutti/models/dlrm/scorer.h>

#include <cstdio>
#include <iostream>
#include <sstream>

namespace {

using tutti::dlrm::ScoringRequest;

std::vector<std::int64_t> parse_rows(const std::string& word) {
  std::vector<std::int64_t> rows;
  std::istringstream parts(word);
  for (std::string part; word != "-" && std::getline(parts, part, ',');) rows.push_back(std::stoll(part));
  return rows;
}

ScoringRequest parse(const std::string& line, std::size_t dense) {
  ScoringRequest request;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (request.dense.size() < dense) {
      request.dense.push_back(std::stof(word));
    } else {
      request.rows.push_back(parse_rows(word));
    }
  }
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: dlrm_score FOLDER < requests\n");
    return 2;
  }
  try {
    tutti::dlrm::Scorer scorer(argv[1]);
    const auto dense = std::size_t(scorer.architecture().dense_features());
    for (std::string line; std::getline(std::cin, line);) {
      const ScoringRequest request = parse(line, dense);
      std::printf("%.6f\n", scorer.score({&request, 1})[0]);
    }
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "dlrm_score: %s\n", failure.what());
    return 1;
  }
}
