// Kintune's runtime for C++17: one class over `kintune.h`.
//
//     kintune::Network network("model.kt");
//     std::vector<float> image(1 * 3 * 224 * 224), scores(1000);
//     network.run({kintune::buffer(image)}, {kintune::buffer(scores)});
//
// A network belongs to one thread at a time; `another` makes one for a further thread, which shares the model.  Errors
// are exceptions of the class `Error`, whose status says what went wrong: see `kt_status`.
#ifndef KINTUNE_HPP
#define KINTUNE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kintune.h"

namespace kintune {

// The text of `kt_last_error`, with the status.
class Error : public std::runtime_error {
 public:
  Error(kt_status status, const std::string &text) : std::runtime_error(text), status(status) {}
  const kt_status status;
};

// The memory of a vector, or of anything else with data() and size().
template <class Container>
kt_buffer buffer(Container &memory) {
  return {const_cast<void *>(static_cast<const void *>(memory.data())), memory.size() * sizeof(*memory.data())};
}

// A model with the memory and the threads of one caller: one plan of it, for one combination of input shapes.
class Network {
 public:
  // `threads`: at most so many; 0: as many as the model was tuned for, but no more than cores.  Throws Error.
  explicit Network(const std::string &path, int threads = 0) : Network(path, usual(), threads) {}

  // With options, which begin with `usual()`.  Throws Error.
  Network(const std::string &path, const kt_open_options &options, int threads = 0) {
    kt_model *opened = nullptr;
    check(kt_open_with(path.c_str(), &options, &opened));
    model_.reset(opened, kt_close);
    create(0, threads);
  }

  // Of the contents of a file: see kt_open_memory and `copy` of kt_open_options.  Throws Error.
  Network(const void *data, std::size_t nbytes, const kt_open_options &options, int threads = 0) {
    kt_model *opened = nullptr;
    check(kt_open_memory_with(data, nbytes, &options, &opened));
    model_.reset(opened, kt_close);
    create(0, threads);
  }

  // Options for the best variant, whose file is mapped.
  static kt_open_options usual() {
    kt_open_options options = {};
    options.size = sizeof options;
    options.variant = KT_BEST;
    return options;
  }

  // A network of its own memory and threads, of the same model; `plan` is one of `plans`, by default this network's own.
  // Throws Error.
  static constexpr int own_plan = -1;
  Network another(int threads = 0, int plan = own_plan) const {
    Network made;
    made.model_ = model_;
    made.create(plan == own_plan ? plan_ : plan, threads);
    if (plan == own_plan && !shapes_.empty()) made.shape(shapes_);
    return made;
  }

  // The variant that was chosen for this CPU; its texts live as long as the network.  Throws Error.
  kt_variant variant() const {
    kt_variant found;
    check(kt_describe_variant(model_.get(), &found));
    return found;
  }

  // As `another`, for inputs of these shapes, one for each input: those of a plan, or in the range of one with open
  // extents.  Throws Error where the model was not tuned for them.
  Network for_shapes(const std::vector<std::vector<int64_t>> &shapes, int threads = 0) const {
    const auto spelled = given(shapes);
    int32_t plan = 0;
    check(kt_find_plan(model_.get(), spelled.data(), static_cast<int32_t>(spelled.size()), &plan));
    Network made = another(threads, plan);
    made.shape(shapes);
    return made;
  }

  // The number of plans: one for each combination of input shapes that the model was tuned for.
  int plans() const { return kt_plan_count(model_.get()); }

  // The inputs and outputs with this network's shapes, in the model's order; their texts live as long as the network.
  std::vector<kt_tensor> inputs() const { return described(kt_input_count(model_.get()), kt_context_describe_input); }
  std::vector<kt_tensor> outputs() const { return described(kt_output_count(model_.get()), kt_context_describe_output); }

  // Runs once: one buffer for each input and output, in the model's order, of exactly their `nbytes`.  Throws Error.
  void run(const std::vector<kt_buffer> &inputs, const std::vector<kt_buffer> &outputs) {
    check(kt_run(context_.get(), inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                 static_cast<int32_t>(outputs.size())));
  }

 private:
  Network() = default;

  static void check(kt_status status) {
    if (status != KT_OK) throw Error(status, kt_last_error());
  }

  static std::vector<kt_shape> given(const std::vector<std::vector<int64_t>> &shapes) {
    std::vector<kt_shape> made;
    for (const auto &shape : shapes) made.push_back({shape.data(), static_cast<int32_t>(shape.size())});
    return made;
  }

  void shape(const std::vector<std::vector<int64_t>> &shapes) {
    const auto spelled = given(shapes);
    check(kt_context_set_shapes(context_.get(), spelled.data(), static_cast<int32_t>(spelled.size())));
    shapes_ = shapes;
  }

  void create(int plan, int threads) {
    kt_options options = {sizeof(kt_options), threads, nullptr, nullptr};
    kt_context *created = nullptr;
    check(kt_context_create(model_.get(), plan, &options, &created));
    context_.reset(created);
    plan_ = plan;
  }

  std::vector<kt_tensor> described(int32_t count,
                                   kt_status (*describe)(const kt_context *, int32_t, kt_tensor *)) const {
    std::vector<kt_tensor> found(static_cast<size_t>(count));
    for (int32_t place = 0; place < count; place++)
      check(describe(context_.get(), place, &found[static_cast<size_t>(place)]));
    return found;
  }

  struct Close {
    void operator()(kt_context *context) const { kt_context_close(context); }
  };

  std::shared_ptr<kt_model> model_;
  std::unique_ptr<kt_context, Close> context_;
  int plan_ = 0;
  std::vector<std::vector<int64_t>> shapes_;  // that the context was given, if any
};

}  // namespace kintune
#endif
