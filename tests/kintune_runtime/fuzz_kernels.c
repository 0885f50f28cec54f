/* Kernels that touch both ends of each tensor that they are given, so that a sanitizer sees whether it is there. */
#include <stdint.h>

typedef struct {
  int32_t type;
  uint32_t padding;
  void *pointer;
} any;

typedef struct {
  volatile uint8_t *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} tensor;

typedef int (*lambda)(int task, void *group, void *data);

int (*__TVMBackendParallelLaunch)(lambda, void *, int);

enum { END = 64 };

static uint64_t size(const tensor *of) {
  uint64_t nbytes = of->bits / 8;
  for (int i = 0; i < of->rank; i++) nbytes *= (uint64_t)of->shape[i];
  return nbytes;
}

static int touch(int task, void *group, void *data) {
  (void)group;
  const tensor *of = data;
  uint64_t nbytes = size(of);
  for (uint64_t i = 0; i < nbytes && i < END; i++) of->data[i] += (uint8_t)task;
  for (uint64_t i = nbytes > END ? nbytes - END : 0; i < nbytes; i++) of->data[i] += (uint8_t)task;
  return 0;
}

/* Any number of tensors. */
int __tvm_ffi_add(void *self, const any *arguments, int32_t count, void *result) {
  (void)self, (void)result;
  for (int32_t i = 0; i < count; i++)
    if (__TVMBackendParallelLaunch(touch, arguments[i].pointer, 2) != 0) return -1;
  return 0;
}
