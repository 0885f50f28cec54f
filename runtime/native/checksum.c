/* A checksum of files, some 9 GB a second: eight lanes of xor and multiplication by an odd number.
 *
 * Both steps are invertible, so two contents that differ in one 8-byte word have different checksums.  It finds damage,
 * not forgery. */
#include "internal.h"

#include <string.h>

#define LANES 8
#define FACTOR 0x9E3779B97F4A7C15u

static uint64_t mixed(uint64_t value) {
  value ^= value >> 32;
  value *= FACTOR;
  return value ^ value >> 29;
}

uint64_t kt_checksum(const void *data, size_t nbytes) {
  uint64_t lanes[LANES], words[LANES];
  const uint8_t *at = data;
  for (int lane = 0; lane < LANES; lane++) lanes[lane] = FACTOR * (uint64_t)(lane + 1);
  size_t left = nbytes;
  for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
    memcpy(words, at, sizeof words);
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = (lanes[lane] ^ words[lane]) * FACTOR;
  }
  if (left) {
    memset(words, 0, sizeof words);
    memcpy(words, at, left);
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = (lanes[lane] ^ words[lane]) * FACTOR;
  }
  uint64_t sum = nbytes;
  for (int lane = 0; lane < LANES; lane++) sum = mixed(sum ^ mixed(lanes[lane])) + (uint64_t)lane;
  return sum;
}
