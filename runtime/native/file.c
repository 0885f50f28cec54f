/* A `.kt` file: a zip whose members are stored plainly, each at a multiple of KT_PAGE.  Members are found by the zip's
 * central directory.  The file is mapped, and watched for changes in place, or copied. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_MAGIC 0x06054b50u
#define END_SIZE 22
#define LOCATOR_MAGIC 0x07064b50u
#define LOCATOR_SIZE 20
#define END64_MAGIC 0x06064b50u
#define END64_SIZE 56
#define ENTRY_MAGIC 0x02014b50u
#define ENTRY_SIZE 46
#define LOCAL_MAGIC 0x04034b50u
#define LOCAL_SIZE 30
#define ZIP64_FIELD 1
#define UNKNOWN 0xffffffffu
#define MOST_BYTES (16u << 20) /* of the directory, which is looked through for each member */

#ifndef F_GET_SEALS /* the C library has these names from 2.27 on */
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#define F_SEAL_WRITE 8
#endif

static uint16_t u16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static uint32_t u32(const uint8_t *at) { return u16(at) | (uint32_t)u16(at + 2) << 16; }
static uint64_t u64(const uint8_t *at) { return u32(at) | (uint64_t)u32(at + 4) << 32; }

/* Opens a regular file; `descriptor` and `about` receive what is needed of it. */
static kt_status open_file(const char *path, const char *name, int *descriptor, struct stat *about) {
  *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* else a pipe waits for a writer */
  if (*descriptor < 0)
    return kt_fail(errno == EMFILE || errno == ENFILE ? KT_ERROR_MEMORY : KT_ERROR_FILE, "%s: %s", name, strerror(errno));
  kt_status status = KT_OK;
  if (fstat(*descriptor, about) != 0 || !S_ISREG(about->st_mode))
    status = kt_fail(KT_ERROR_FILE, "%s: not a regular file", name);
  else if (about->st_size < END_SIZE)
    status = kt_fail(KT_ERROR_FORMAT, "%s: not a Kintune executable, or truncated", name);
  if (status != KT_OK) close(*descriptor);
  return status;
}

static kt_status not_mapped(const char *name, int error) {
  return kt_fail(error == ENOMEM ? KT_ERROR_MEMORY : KT_ERROR_FILE, "%s: cannot be mapped: %s", name, strerror(error));
}

/* Whether it is a file in memory whose content nobody can change. */
static bool is_sealed(int descriptor) {
  int seals = fcntl(descriptor, F_GET_SEALS), wanted = F_SEAL_WRITE | F_SEAL_SHRINK;
  return seals >= 0 && (seals & wanted) == wanted;
}

kt_status kt_file_map(const char *path, const char *name, kt_file *file) {
  int descriptor;
  struct stat about;
  kt_status status = open_file(path, name, &descriptor, &about);
  if (status != KT_OK) return status;
  size_t nbytes = (size_t)about.st_size;
  /* private: what another process writes to the file later may show, what kernels write never gets there */
  void *data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (data == MAP_FAILED) {
    status = not_mapped(name, errno);
    close(descriptor);
    return status;
  }
  *file = (kt_file){{data, nbytes}, true, NULL};
  bool sealed = is_sealed(descriptor);
  if (!sealed) file->watch = kt_watch_begin(file->whole, descriptor, &about);
  if (file->watch != NULL) return KT_OK;
  close(descriptor);
  if (sealed) return KT_OK;
  kt_file_unmap(file);
  return kt_fail(KT_ERROR_MEMORY, "no memory");
}

kt_status kt_file_copy(kt_bytes content, const char *name, kt_file *file) {
  void *data = mmap(NULL, content.nbytes + !content.nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return kt_fail(KT_ERROR_MEMORY, "%s: no memory for a copy of %zu bytes", name, content.nbytes);
  if (content.data != NULL) memcpy(data, content.data, content.nbytes);
  *file = (kt_file){{data, content.nbytes}, true, NULL};
  return KT_OK;
}

kt_status kt_file_read(const char *path, const char *name, kt_file *file) {
  int descriptor;
  struct stat about;
  kt_status status = open_file(path, name, &descriptor, &about);
  if (status != KT_OK) return status;
  status = kt_file_copy((kt_bytes){NULL, (size_t)about.st_size}, name, file);
  size_t done = 0;
  while (status == KT_OK && done < file->whole.nbytes) {
    ssize_t got = read(descriptor, (uint8_t *)file->whole.data + done, file->whole.nbytes - done);
    if (got > 0) done += (size_t)got;
    else if (got == 0) status = kt_fail(KT_ERROR_FILE, "%s: was cut while it was read; open it again", name);
    else if (errno != EINTR) status = kt_fail(KT_ERROR_FILE, "%s: cannot be read: %s", name, strerror(errno));
    if (status != KT_OK) kt_file_unmap(file);
  }
  close(descriptor);
  return status;
}

void kt_file_unmap(kt_file *file) {
  if (file->mapped && file->watch != NULL) kt_watch_end(file->watch);
  if (file->mapped) munmap((void *)file->whole.data, file->whole.nbytes);
  *file = (kt_file){{NULL, 0}, false, NULL};
}

void kt_file_expect(const kt_file *file, kt_bytes part) {
  size_t start = (size_t)(part.data - file->whole.data), before = start % (size_t)sysconf(_SC_PAGESIZE);
  if (file->mapped && part.nbytes) madvise((void *)(part.data - before), part.nbytes + before, MADV_WILLNEED);
}

typedef struct {
  const uint8_t *entries;
  uint64_t nbytes;
} directory;

/* False where there is no directory, or it does not lie within the file. */
static bool find_directory(kt_bytes whole, directory *found) {
  if (whole.nbytes < END_SIZE) return false;
  const uint8_t *end = whole.data + whole.nbytes - END_SIZE; /* no comment follows: we write none */
  if (u32(end) != END_MAGIC || u16(end + 20) != 0) return false;
  uint64_t size = u32(end + 12), offset = u32(end + 16), limit = whole.nbytes - END_SIZE;
  if (size == UNKNOWN || offset == UNKNOWN || u16(end + 10) == 0xffff) {
    if (whole.nbytes < END_SIZE + LOCATOR_SIZE + END64_SIZE) return false;
    const uint8_t *locator = end - LOCATOR_SIZE;
    if (u32(locator) != LOCATOR_MAGIC || u64(locator + 8) > whole.nbytes - END_SIZE - LOCATOR_SIZE - END64_SIZE)
      return false;
    const uint8_t *end64 = whole.data + u64(locator + 8);
    if (u32(end64) != END64_MAGIC) return false;
    size = u64(end64 + 40);
    offset = u64(end64 + 48);
  }
  if (offset > limit || size > limit - offset || size > MOST_BYTES) return false;
  *found = (directory){whole.data + offset, size};
  return true;
}

/* 1 if the member was found, 0 if there is none of that name, -1 if the file is damaged. */
static int find_member(kt_bytes whole, const char *name, kt_bytes *member) {
  directory listing;
  if (!find_directory(whole, &listing)) return -1;
  size_t length = strlen(name);
  const uint8_t *at = listing.entries;
  uint64_t left = listing.nbytes;
  while (left >= ENTRY_SIZE) {
    if (u32(at) != ENTRY_MAGIC) return -1;
    uint64_t name_bytes = u16(at + 28), extra_bytes = u16(at + 30), entry = ENTRY_SIZE + name_bytes + extra_bytes;
    entry += u16(at + 32);
    if (entry > left) return -1;
    if (name_bytes != length || memcmp(at + ENTRY_SIZE, name, length) != 0) {
      at += entry;
      left -= entry;
      continue;
    }
    uint64_t packed = u32(at + 20), size = u32(at + 24), offset = u32(at + 42);
    const uint8_t *extra = at + ENTRY_SIZE + name_bytes;
    while (extra_bytes >= 4) { /* the zip64 field has those of the numbers that do not fit 32 bits, in this order */
      uint64_t field = 4 + (uint64_t)u16(extra + 2);
      if (field > extra_bytes) return -1;
      if (u16(extra) == ZIP64_FIELD) {
        const uint8_t *number = extra + 4, *stop = extra + field;
        uint64_t *wanted[] = {&size, &packed, &offset};
        for (int i = 0; i < 3; i++)
          if (*wanted[i] == UNKNOWN) {
            if (number + 8 > stop) return -1;
            *wanted[i] = u64(number);
            number += 8;
          }
      }
      extra += field;
      extra_bytes -= field;
    }
    if (u16(at + 10) != 0 || packed != size) return -1; /* not stored plainly */
    if (offset > whole.nbytes || whole.nbytes - offset < LOCAL_SIZE) return -1;
    const uint8_t *local = whole.data + offset;
    if (u32(local) != LOCAL_MAGIC) return -1;
    uint64_t start = offset + LOCAL_SIZE + u16(local + 26) + u16(local + 28);
    if (start > whole.nbytes || size > whole.nbytes - start) return -1;
    *member = (kt_bytes){whole.data + start, (size_t)size};
    return 1;
  }
  return 0;
}

bool kt_file_has(const kt_file *file, const char *name) {
  kt_bytes member;
  return find_member(file->whole, name, &member) == 1;
}

kt_status kt_file_member(const kt_file *file, const char *path, const char *name, kt_bytes *member) {
  int found = find_member(file->whole, name, member);
  if (found < 0) return kt_fail(KT_ERROR_FORMAT, "%s: not a Kintune executable, or truncated or damaged", path);
  if (found == 0) return kt_fail(KT_ERROR_FORMAT, "%s: has no %s; build it again with `kintune compile`", path, name);
  if (member->nbytes && (size_t)(member->data - file->whole.data) % KT_PAGE != 0)
    return kt_fail(KT_ERROR_FORMAT, "%s: damaged: %s is not at a page", path, name);
  return KT_OK;
}
