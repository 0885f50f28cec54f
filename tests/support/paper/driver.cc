// The paper GPU's driver, libcuda.so.1: loads what the paper nvcc has made, and launches kernels.
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

typedef void (*Launch)(void*, int, int, const unsigned*, const unsigned*, void**);

struct Function { void* kernel; int parameters, waits; Launch launch; };

struct Config { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned attribute_count; };

size_t size_of(const void* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  return header.e_shoff + size_t(header.e_shentsize) * header.e_shnum;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetName(char* name, int length, int) { snprintf(name, length, "Paper GPU"); return 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuGetErrorName(int, const char** name) { *name = "PAPER_ERROR"; return 0; }
int cuGetErrorString(int, const char** text) { *text = "an error of the paper GPU"; return 0; }
int cuTensorMapEncodeTiled() { return 801; }

int cuModuleLoadData(void** module, const void* image) {
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return 200;
  char path[] = "/tmp/paper-module-XXXXXX";
  int file = mkstemp(path);
  if (file < 0) return 2;
  size_t size = size_of(image), done = 0;
  while (done < size) {
    ssize_t wrote = write(file, static_cast<const char*>(image) + done, size - done);
    if (wrote <= 0) break;
    done += wrote;
  }
  close(file);
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  return *module == nullptr ? 200 : 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  void* kernel = dlsym(module, name);
  char table[512];
  snprintf(table, sizeof table, "%s__parameters_and_waits", name);
  const int* said = static_cast<const int*>(dlsym(module, table));
  void* launch = dlsym(module, "paper_launch");
  if (kernel == nullptr || said == nullptr || launch == nullptr) return 500;
  *function = new Function{kernel, said[0], said[1], reinterpret_cast<Launch>(launch)};
  return 0;
}

int cuModuleUnload(void* module) { return dlclose(module) == 0 ? 0 : 1; }

int cuLaunchKernelEx(const Config* config, Function* function, void** parameters, void**) {
  for (int i = 0; i < 3; ++i)
    if (config->grid[i] == 0 || config->block[i] == 0) return 1;
  if (config->block[0] * config->block[1] * config->block[2] > 1024) return 1;
  function->launch(function->kernel, function->parameters, function->waits, config->grid, config->block, parameters);
  return 0;
}

}  // extern "C"
