/* Notices when a mapped file is changed in place: by another process that writes to it, or cuts it.
 *
 * A run looks at the file's size and times by its descriptor.  To read a page that a cut has taken raises SIGBUS in the
 * thread that reads it: one of ours, of the caller's or of onnxruntime's.  The handler puts zeros there, notes that for
 * this file, and the thread goes on; its run ends as any other, and is then an error.  So no thread jumps out of a
 * kernel, and nothing that it holds is lost.  All other signals go to the handler that was there before. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pages that were copied. */
typedef struct copied {
  uintptr_t start, end;
  struct copied *next;
} copied;

struct kt_watch {
  atomic_bool taken;
  _Atomic uintptr_t start; /* of the mapped pages */
  _Atomic uintptr_t end;   /* 0 while there are none */
  atomic_bool lost;        /* a page was cut away, and zeros are in its place */
  _Atomic(copied *) copies;
  int descriptor;
  struct stat seen;
  struct kt_watch *next;
};

/* All that were ever made.  They are used again, and freed when there is no handler any more: it may look at them at any
 * time. */
static _Atomic(kt_watch *) watches;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool installed;
static struct sigaction previous;
static uintptr_t page;

/* Puts zeros where pages of a file of ours are lost: from the one at `address` to the end, or to pages that were copied. */
static bool replace_pages(uintptr_t address) {
  for (kt_watch *each = atomic_load(&watches); each != NULL; each = each->next) {
    uintptr_t start = atomic_load(&each->start), end = atomic_load(&each->end);
    if (address < start || address >= end) continue;
    uintptr_t from = address & ~(page - 1);
    for (copied *one = atomic_load(&each->copies); one != NULL; one = one->next)
      if (one->start > from && one->start < end) end = one->start;
    void *put = mmap((void *)from, end - from, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (put == MAP_FAILED) return false;
    atomic_store(&each->lost, true);
    return true;
  }
  return false;
}

/* Exported so that another copy of the runtime in the process finds out by the name that this is one of its kind.
 * Signal 0 is its question: `context` receives the address of what was handled before. */
KT_API void kt_bus_handler(int number, siginfo_t *info, void *context);

KT_API void kt_bus_handler(int number, siginfo_t *info, void *context) {
  if (number == 0) {
    *(struct sigaction **)context = &previous;
    return;
  }
  int error = errno;
  bool ours = info->si_code == BUS_ADRERR && replace_pages((uintptr_t)info->si_addr);
  errno = error;
  if (ours) return;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
    return;
  }
  bool sent = info->si_code <= 0; /* by a process; else the instruction fails again, now without a handler */
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else if (previous.sa_handler == SIG_DFL || !sent) {
    signal(number, SIG_DFL);
    if (sent) raise(number);
  }
}

static void install(void) {
  page = (uintptr_t)sysconf(_SC_PAGESIZE);
  struct sigaction own = {.sa_sigaction = kt_bus_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigemptyset(&own.sa_mask);
  installed = sigaction(SIGBUS, NULL, &previous) == 0 && sigaction(SIGBUS, &own, NULL) == 0;
}

/* What was handled before this action, where it is that of another copy of the runtime. */
static struct sigaction *action_before(const struct sigaction *action) {
  Dl_info about;
  void *handler = NULL;
  memcpy(&handler, &action->sa_sigaction, sizeof handler);
  if (!(action->sa_flags & SA_SIGINFO) || dladdr(handler, &about) == 0 || about.dli_sname == NULL) return NULL;
  if (strcmp(about.dli_sname, "kt_bus_handler") != 0) return NULL;
  struct sigaction *before = NULL;
  action->sa_sigaction(0, NULL, &before);
  return before;
}

/* Takes the handler away; false where it is unknown who calls it. */
static bool uninstall(void) {
  struct sigaction now;
  if (!installed || sigaction(SIGBUS, NULL, &now) != 0) return false;
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == kt_bus_handler) return sigaction(SIGBUS, &previous, NULL) == 0;
  for (struct sigaction *at = &now; (at = action_before(at)) != NULL;)
    if (at->sa_flags & SA_SIGINFO && at->sa_sigaction == kt_bus_handler) {
      *at = previous;
      return true;
    }
  return false;
}

/* The library is unloaded: onnxruntime does so with the one that has its operators.  101: after all other destructors,
 * which close models. */
__attribute__((destructor(101))) static void end(void) {
  if (!uninstall()) return;
  for (kt_watch *each = atomic_exchange(&watches, NULL), *next; each != NULL; each = next) {
    next = each->next;
    if (!atomic_load(&each->taken)) free(each);
  }
}

static kt_watch *take(void) {
  for (kt_watch *each = atomic_load(&watches); each != NULL; each = each->next)
    if (!atomic_exchange(&each->taken, true)) return each;
  kt_watch *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  atomic_store(&made->taken, true);
  made->next = atomic_load(&watches);
  while (!atomic_compare_exchange_weak(&watches, &made->next, made)) continue;
  return made;
}

kt_watch *kt_watch_begin(kt_bytes mapped, int descriptor, const struct stat *seen) {
  pthread_once(&once, install);
  kt_watch *made = take();
  if (made == NULL) return NULL;
  uintptr_t start = (uintptr_t)mapped.data;
  made->descriptor = descriptor;
  made->seen = *seen;
  atomic_store(&made->lost, false);
  atomic_store(&made->start, start);
  atomic_store(&made->end, start + (mapped.nbytes + page - 1) / page * page);
  return made;
}

static bool is_same_file(const struct stat *one, const struct stat *other) {
  return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

kt_status kt_watch_copy(kt_watch *watch, kt_bytes part) {
  uintptr_t start = (uintptr_t)part.data & ~(page - 1), end = ((uintptr_t)part.data + part.nbytes + page - 1) & ~(page - 1);
  for (copied *one = atomic_load(&watch->copies); one != NULL; one = one->next)
    if (one->start <= start && end <= one->end) return KT_OK;
  size_t nbytes = end - start;
  void *made = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  copied *one = malloc(sizeof *one);
  if (made != MAP_FAILED && one != NULL) {
    memcpy(made, (void *)start, nbytes);
    /* at once, for who reads there meanwhile: another region of the same session */
    if (mremap(made, nbytes, nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) != MAP_FAILED) {
      *one = (copied){start, end, atomic_load(&watch->copies)};
      while (!atomic_compare_exchange_weak(&watch->copies, &one->next, one)) continue;
      return KT_OK;
    }
  }
  free(one);
  if (made != MAP_FAILED) munmap(made, nbytes);
  return kt_fail(KT_ERROR_MEMORY, "no memory for a copy of %zu bytes", nbytes);
}

void kt_watch_end(kt_watch *watch) {
  struct stat now;
  if (fstat(watch->descriptor, &now) == 0 && is_same_file(&now, &watch->seen)) close(watch->descriptor);
  atomic_store(&watch->end, 0);
  for (copied *one = atomic_exchange(&watch->copies, NULL), *next; one != NULL; one = next) {
    next = one->next;
    free(one);
  }
  atomic_store(&watch->taken, false);
}

static int64_t nanoseconds(const struct timespec *time) { return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec; }

bool kt_watch_look(const kt_watch *watch, kt_stamp *stamp) {
  struct stat now;
  if (atomic_load(&watch->lost)) return false;
  /* a program may have closed the descriptor, and reused its number: then nothing can be said */
  if (fstat(watch->descriptor, &now) != 0 || !is_same_file(&now, &watch->seen)) return true;
  *stamp = (kt_stamp){nanoseconds(&now.st_mtim), nanoseconds(&now.st_ctim)};
  return now.st_size == watch->seen.st_size;
}
