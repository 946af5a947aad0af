// The same on GPU memory: filled and looked at on the host, called on the device.
#include "bench/collectives/exercises.h"

namespace tutti::bench {
namespace {

class DeviceExercise : public Exercise {
 public:
  DeviceExercise(std::unique_ptr<Exercise> inner, Buffers buffers)
      : Exercise(inner->group(), inner->operation(), inner->size(), buffers), inner_(std::move(inner)) {}
  void write_pattern() override {
    inner_->write_pattern();
    buffers_.device->upload(bytes());
  }
  void write_zeros() override {
    inner_->write_zeros();
    buffers_.device->upload(bytes());
  }
  void rewrite() override {
    throw Exception({.code = Code::kUnsupported, .detail = "buffers on a GPU are not rewritten by the bench"});
  }
  void call() override { inner_->call(); }
  Work start() override { return inner_->start(); }
  std::size_t count_wrong() const override {
    buffers_.device->download(bytes());
    return inner_->count_wrong();
  }
  std::string plan_name() const override { return inner_->plan_name(); }

 private:
  const std::unique_ptr<Exercise> inner_;
};

}  // namespace

std::unique_ptr<Exercise> make_on_device(std::unique_ptr<Exercise> inner, Buffers buffers) {
  return std::make_unique<DeviceExercise>(std::move(inner), buffers);
}

}  // namespace tutti::bench
