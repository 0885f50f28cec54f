/* Loads the kernels of a model, and sets the pointers by which they call functions of the compiler's runtime. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLOSE_ON_EXEC 1u /* MFD_CLOEXEC; the C library has a function and names for these from 2.27 on */
#define MAY_BE_SEALED 2u /* MFD_ALLOW_SEALING */

static _Thread_local char message[256];

const char *kt_kernel_message(void) { return message; }
void kt_kernel_forget(void) { message[0] = '\0'; }
void kt_kernel_says(const char *text) { snprintf(message, sizeof message, "%s", text); }

static void raise_parts(const char *kind, const char **parts, int32_t count) {
  size_t used = (size_t)snprintf(message, sizeof message, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof message; i++)
    if (parts[i] != NULL) used += (size_t)snprintf(message + used, sizeof message - used, "%s", parts[i]);
}

static void raise_text(const char *kind, const char *text) { raise_parts(kind, &text, 1); }

/* Initialises a handle that kernels keep for their calls of the runtime, unless that was done before; threads that do so
 * at once get the same.  Without a lock, which the child of a fork might find locked for ever. */
static int init_once(void **handle, int (*init)(void **result)) {
  if (__atomic_load_n(handle, __ATOMIC_ACQUIRE) != NULL) return 0;
  void *made = NULL;
  int status = init(&made);
  if (status == 0) __atomic_store_n(handle, made, __ATOMIC_RELEASE);
  return status;
}

static int look_up(void *context, const char *name, void **found) {
  (void)context;
  kt_kernel function = kt_builtin(name);
  if (function == NULL) {
    const char *parts[] = {"the kernel needs ", name, ", which this runtime lacks"};
    raise_parts("RuntimeError", parts, 3);
    return -1;
  }
  memcpy(found, &function, sizeof function);
  return 0;
}

static int call(void *function, kt_any *arguments, int32_t count, kt_any *result) {
  kt_kernel kernel;
  memcpy(&kernel, &function, sizeof kernel);
  return kernel(NULL, arguments, count, result);
}

static void set_slots(void *handle) {
  static const struct {
    const char *name;
    void (*function)(void);
  } slots[] = {
      {"kintune_raise", (void (*)(void))raise_parts},
      {"__TVMBackendParallelLaunch", (void (*)(void))kt_parallel_launch},
      {"__TVMBackendParallelBarrier", (void (*)(void))kt_parallel_barrier},
      {"__TVMBackendAllocWorkspace", (void (*)(void))kt_workspace_alloc},
      {"__TVMBackendFreeWorkspace", (void (*)(void))kt_workspace_free},
      {"__TVMFFIErrorSetRaisedFromCStr", (void (*)(void))raise_text},
      {"__TVMFFIErrorSetRaisedFromCStrParts", (void (*)(void))raise_parts},
      {"__TVMFFIHandleInitOnce", (void (*)(void))init_once},
      {"__TVMFFIEnvModLookupFromImports", (void (*)(void))look_up},
      {"__TVMFFIFunctionCall", (void (*)(void))call},
  };
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
    void *slot = dlsym(handle, slots[i].name);
    if (slot != NULL) memcpy(slot, &slots[i].function, sizeof slots[i].function);
  }
}

/* Held while the dynamic loader works for us, and while the process forks: a child in which another thread was at it has
 * a loader that fails. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t guarded = PTHREAD_ONCE_INIT;

static void guard_forks(void);

void kt_loader_lock(void) {
  pthread_once(&guarded, guard_forks);
  pthread_mutex_lock(&loading);
}

void kt_loader_unlock(void) { pthread_mutex_unlock(&loading); }

static void guard_forks(void) { pthread_atfork(kt_loader_lock, kt_loader_unlock, kt_loader_unlock); }

/* A descriptor of the same file under whose path the dynamic loader knows no library; -1 where there is none.
 *
 * A program may close descriptors that it did not open.  Their numbers are then reused, and the loader would return the
 * library which it has loaded before from the same path. */
static int new_to_loader(int descriptor, char *path, size_t size) {
  for (;;) {
    snprintf(path, size, "/proc/self/fd/%d", descriptor);
    void *known = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (known == NULL) return descriptor;
    dlclose(known);
    int next = fcntl(descriptor, F_DUPFD_CLOEXEC, descriptor + 1), error = errno;
    close(descriptor);
    errno = error;
    if (next < 0) return -1;
    descriptor = next;
  }
}

/* Whether the descriptor is still that of the library's file: a program may have closed it and reused its number. */
static bool is_open(const kt_library *library) {
  struct stat about;
  return fstat(library->descriptor, &about) == 0 && about.st_dev == library->device && about.st_ino == library->inode;
}

/* EMFILE or ENFILE where no further descriptor can be had, else 0; the loader reports this by a text alone. */
static int lack_of_descriptors(int descriptor) {
  int another = dup(descriptor);
  if (another < 0) return errno;
  close(another);
  return 0;
}

int kt_memory_file(void) {
  int descriptor = (int)syscall(SYS_memfd_create, "kintune-model", CLOSE_ON_EXEC | MAY_BE_SEALED);
  return descriptor < 0 ? -errno : descriptor;
}

/* Writes the contents to a file without a name; returns its descriptor, or -1. */
static int write_out(kt_bytes content) {
  int descriptor = (int)syscall(SYS_memfd_create, "kintune-kernels", CLOSE_ON_EXEC);
  size_t written = 0;
  while (descriptor >= 0 && written < content.nbytes) {
    ssize_t got = write(descriptor, content.data + written, content.nbytes - written);
    if (got > 0) written += (size_t)got;
    else if (got == 0 || errno != EINTR) {
      int error = got == 0 ? EIO : errno;
      close(descriptor);
      errno = error;
      return -1;
    }
  }
  return descriptor;
}

/* Whether a file holds what the plan says: the bytes that are loaded, and not those that they were copied from. */
static bool holds_kernels(int descriptor, const kt_plan_header *header) {
  size_t nbytes = (size_t)header->library_bytes;
  void *data = mmap(NULL, nbytes + !nbytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return false;
  bool whole = nbytes > 0 && kt_checksum(data, nbytes) == header->library_checksum;
  munmap(data, nbytes + !nbytes);
  return whole;
}

/* Loads a library from memory: the dynamic loader only reads files.  It identifies libraries by their path, which has
 * the descriptor in it: this stays open as long as the library is loaded, and is closed on failure. */
static void *load(int descriptor, kt_library *library) {
  dlerror(); /* forgets what was said of another library */
  char path[40];
  if ((descriptor = new_to_loader(descriptor, path, sizeof path)) < 0) return NULL;
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  /* libraries that were linked for another architecture do not name the library of mathematics as needed */
  if (handle == NULL && dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL) != NULL) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    int error = lack_of_descriptors(descriptor);
    close(descriptor);
    errno = error;
    return NULL;
  }
  struct stat about = {0};
  fstat(descriptor, &about);
  library->descriptor = descriptor;
  library->device = about.st_dev;
  library->inode = about.st_ino;
  return handle;
}

/* Keeps the text for a library that was not loaded; `error` is what the system said. */
static kt_status not_loaded(const char *path, int error) {
  const char *why = dlerror();
  bool exhausted = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC;
  if (exhausted || why == NULL) why = strerror(error);
  return kt_fail(exhausted ? KT_ERROR_MEMORY : KT_ERROR_FORMAT, "%s: its kernels cannot be loaded: %s", path, why);
}

static kt_status damaged(const char *path) {
  return kt_fail(KT_ERROR_FORMAT, "%s: damaged: bad checksum of its kernels; copy it again, or build it again", path);
}

/* Finds a kernel, whose name may be as long as a chain of fused operators is. */
static kt_status find_kernel(void *handle, const char *name, const char *path, void **found) {
  static const char prefix[] = "__tvm_ffi_";
  size_t size = sizeof prefix + strlen(name);
  char *symbol = malloc(size);
  if (symbol == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for the name of kernel %.200s", name);
  snprintf(symbol, size, "%s%s", prefix, name);
  *found = dlsym(handle, symbol);
  free(symbol);
  return *found != NULL ? KT_OK : kt_fail(KT_ERROR_FORMAT, "%s: has no kernel %.200s", path, name);
}

static kt_status load_kernels(int descriptor, const kt_plan *plan, const char *path, kt_library *library) {
  library->handle = load(descriptor, library);
  if (library->handle == NULL) return not_loaded(path, errno);
  set_slots(library->handle);
  kt_status status = KT_OK;
  for (uint32_t i = 0; i < plan->header.kernel_count && status == KT_OK; i++) {
    void *found = NULL;
    status = find_kernel(library->handle, plan->text + plan->kernels[i], path, &found);
    memcpy(&library->kernels[i], &found, sizeof found);
  }
  return status;
}

kt_status kt_library_load(kt_bytes content, const kt_plan *plan, const char *path, kt_library *library) {
  const kt_plan_header *header = &plan->header;
  if (content.nbytes != header->library_bytes) return damaged(path);
  dlerror();
  int descriptor = write_out(content);
  if (descriptor < 0) return not_loaded(path, errno);
  if (!holds_kernels(descriptor, header)) {
    close(descriptor);
    return damaged(path);
  }
  library->kernels = calloc(header->kernel_count + 1, sizeof *library->kernels);
  if (library->kernels == NULL) {
    close(descriptor);
    return kt_fail(KT_ERROR_MEMORY, "no memory for %u kernels", header->kernel_count);
  }
  kt_loader_lock();
  kt_status status = load_kernels(descriptor, plan, path, library);
  kt_loader_unlock();
  if (status != KT_OK) kt_library_unload(library);
  return status;
}

void kt_library_unload(kt_library *library) {
  if (library->handle != NULL) {
    kt_loader_lock();
    dlclose(library->handle);
    kt_loader_unlock();
    if (is_open(library)) close(library->descriptor);
  }
  free(library->kernels);
  *library = (kt_library){0};
}
