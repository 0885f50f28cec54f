// The paper GPU's runtime library, libcudart.so.13: memory is the host's, streams do everything at once.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

namespace {

struct Event { timespec at; };

int last_error = 0;

int result(int error) { if (error) last_error = error; return error; }

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) { *count = 1; return 0; }
int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaSetDevice(int device) { return result(device == 0 ? 0 : 101); }

int cudaDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;                                    // threads of a block
    case 2: case 3: *value = 1024; break;                            // block, x and y
    case 4: *value = 64; break;                                      // block, z
    case 5: case 6: case 7: *value = 65535; break;                   // grid
    case 8: *value = 48 << 10; break;                                // shared memory of a block
    case 10: *value = 32; break;                                     // warp
    case 12: *value = 65536; break;                                  // registers of a block
    case 13: *value = 1000000; break;                                // kHz
    case 16: *value = 1; break;                                      // multiprocessors
    case 38: *value = 1 << 20; break;                                // second-level cache
    case 75: *value = 7; break;                                      // architecture
    case 76: *value = 5; break;
    default: *value = 0;
  }
  return 0;
}

int cudaGetDeviceProperties(char* properties, int) { snprintf(properties, 256, "Paper GPU"); return 0; }
int cudaMemGetInfo(size_t* free, size_t* total) { *free = size_t(1) << 30; *total = size_t(2) << 30; return 0; }

int cudaMalloc(void** pointer, size_t size) {
  *pointer = aligned_alloc(256, (size + 255) / 256 * 256 + 256);
  return result(*pointer == nullptr ? 2 : 0);
}
int cudaFree(void* pointer) { free(pointer); return 0; }
int cudaMallocHost(void** pointer, size_t size) { return cudaMalloc(pointer, size); }
int cudaFreeHost(void* pointer) { free(pointer); return 0; }

int cudaMemcpy(void* to, const void* from, size_t size, int) { memmove(to, from, size); return 0; }
int cudaMemcpyAsync(void* to, const void* from, size_t size, int, void*) { memmove(to, from, size); return 0; }
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void*) { memmove(to, from, size); return 0; }

int cudaStreamCreate(void** stream) { *stream = malloc(1); return 0; }
int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }
int cudaStreamDestroy(void* stream) { free(stream); return 0; }
int cudaStreamSynchronize(void*) { return last_error; }
int cudaStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cudaStreamBeginCapture(void*, int) { return result(801); }
int cudaStreamEndCapture(void*, void**) { return result(801); }
int cudaGraphInstantiate(void**, void*, unsigned long long) { return result(801); }
int cudaGraphLaunch(void*, void*) { return result(801); }
int cudaGraphDestroy(void*) { return 0; }
int cudaGraphExecDestroy(void*) { return 0; }

int cudaEventCreate(Event** event) { *event = new Event(); return 0; }
int cudaEventDestroy(Event* event) { delete event; return 0; }
int cudaEventRecord(Event* event, void*) { clock_gettime(CLOCK_MONOTONIC, &event->at); return 0; }
int cudaEventSynchronize(Event*) { return 0; }
int cudaEventElapsedTime(float* ms, Event* from, Event* to) {
  *ms = 1e3 * (to->at.tv_sec - from->at.tv_sec) + 1e-6 * (to->at.tv_nsec - from->at.tv_nsec);
  return 0;
}

const char* cudaGetErrorName(int) { return "PAPER_ERROR"; }
const char* cudaGetErrorString(int) { return "an error of the paper GPU"; }
int cudaGetLastError() { int error = last_error; last_error = 0; return error; }
int cudaPeekAtLastError() { return last_error; }

}  // extern "C"
