/* Whether a thread flushes denormal numbers to zero: operands and results of its floating-point operations.
 *
 * x86-64: FTZ and DAZ of MXCSR (Intel's manual, volume 1, 10.2.3); aarch64: FZ of FPCR, whose flags are in FPSR (Arm's
 * manual, C5.2).  Half precision keeps its denormal numbers on both.  Elsewhere nothing changes. */
#include "internal.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

#define FLUSH 0x8040u      /* FTZ, DAZ */
#define MET_KEEPING 0x02u  /* DE: a denormal operand */
#define MET_FLUSHING 0x10u /* UE: a result that is too small; DE is not set then */

static uint64_t state(void) { return _mm_getcsr(); }
static void set_state(uint64_t wanted) { _mm_setcsr((unsigned)wanted); }
#elif defined(__aarch64__)

#define FLUSH ((uint64_t)1 << 24) /* FZ */
#define MET_KEEPING ((uint64_t)0x08 << 32)  /* UFC: a result that is too small; IDC is not set then */
#define MET_FLUSHING ((uint64_t)0x80 << 32) /* IDC: a denormal operand */

/* FPCR, and FPSR above it. */
static uint64_t state(void) {
  uint64_t control, status;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("mrs %0, fpsr" : "=r"(status));
  return (control & 0xffffffffu) | status << 32;
}
static void set_state(uint64_t wanted) {
  __asm__ volatile("msr fpcr, %0" ::"r"(wanted & 0xffffffffu));
  __asm__ volatile("msr fpsr, %0" ::"r"(wanted >> 32));
}
#else

#define FLUSH 0u
#define MET_KEEPING 0u
#define MET_FLUSHING 0u

static uint64_t state(void) { return 0; }
static void set_state(uint64_t wanted) { (void)wanted; }

#endif

uint64_t kt_denormals_set(int flush) {
  uint64_t before = state(), wanted = flush ? before | FLUSH : before & ~(uint64_t)FLUSH;
  if (wanted != before) set_state(wanted);
  return before;
}

void kt_denormals_restore(uint64_t before) {
  if (state() != before) set_state(before);
}

uint64_t kt_denormals_watch(void) {
  uint64_t before = state();
  set_state(before & ~(uint64_t)(MET_KEEPING | MET_FLUSHING));
  return before;
}

int kt_denormals_met(void) {
  uint64_t now = state();
  return (now & ((now & FLUSH) == FLUSH ? MET_FLUSHING : MET_KEEPING)) != 0;
}

int kt_denormals_task(int task, void *group, void *flush) {
  (void)task, (void)group;
  kt_denormals_set(flush != NULL);
  return 0;
}
