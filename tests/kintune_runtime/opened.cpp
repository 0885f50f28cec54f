// Opens a model (out = x + 2 w, w counts up) in each way that the class for C++ has.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "kintune.hpp"

int main(int, char **arguments) {
  const std::string path = arguments[1];
  kt_open_options options = kintune::Network::usual();
  options.copy = 1;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> content((std::istreambuf_iterator<char>(file)), {});
  kintune::Network mapped(path), copied(path, options, 1), from_memory(content.data(), content.size(), options);
  content.assign(content.size(), 0);
  std::vector<float> x(1000, 1.0f), out(1000);
  for (auto *network : {&mapped, &copied, &from_memory}) {
    network->run({kintune::buffer(x)}, {kintune::buffer(out)});
    std::printf("%g\n", out[10]);
  }
  try {
    const unsigned char key[32] = {1};
    options.trusted = key;
    kintune::Network refused(path, options);
  } catch (const kintune::Error &error) {
    std::printf("%d\n", error.status);
  }
}
