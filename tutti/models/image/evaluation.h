#pragma once
// How good a classifier is, by all ranks together.
#include "tutti/comm/group.h"
#include "tutti/data/fashion_mnist.h"

namespace tutti {

class ImageModel;

struct ImageScore {
  double accuracy = 0, loss = 0;  // over the whole dataset
};

// Every rank calls, and gets the same, which is also what any other number of ranks with these weights gets (and as
// many compute threads): each takes every world-size'th batch. The model trains again afterwards.
ImageScore evaluate(const Group& world, ImageModel& model, const ImageDataset& data);

}  // namespace tutti
