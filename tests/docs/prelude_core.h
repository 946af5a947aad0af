// What the fragments of C++ in the documents may use without declaring it, where <tutti/core.h> is enough. Nothing here
// is defined: fragments are compiled, never linked.
#include <tutti/core.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace docs {
using namespace std::chrono_literals;

struct State {
  std::int64_t step;
};

extern const tutti::Group world;
extern const tutti::Mesh mesh;
extern const std::vector<int> ranks;
extern std::int64_t step, steps;
extern const std::uint64_t seed;
extern const std::string folder;
extern State state;
extern const std::vector<float> x;

extern const tutti::CheckpointReader saved;
extern const std::vector<tutti::StateBox> wanted;
extern const std::vector<std::span<std::byte>> memory;
extern const std::span<std::byte> into;

void forward();
void save(const State& state);
void train(const State& state);
template <class T>
std::string shapes_of(const T& x);
extern const double loss;
}  // namespace docs
