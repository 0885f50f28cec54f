/* Whether a `.kt` file was signed: Ed25519 over the SHA-256 digest of its content, by the system's libcrypto, which is
 * loaded when that is asked for.  `kintune_runtime/signature.py` has the format. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define PLACE 128 /* of the signature: in the padding before the first member */
#define ED25519 1087
#define DIGEST 32

static const char MAGIC[8] = {'K', 'T', 'S', 'I', 'G', 'N', '1', 0};
static const char PURPOSE[] = "Kintune: content with this SHA-256 digest\n";

enum { SIGNATURE = 64, RECORD = sizeof MAGIC + SIGNATURE };

/* Functions of OpenSSL, since 1.1.1. */
static struct {
  void *(*new_raw_public_key)(int type, void *engine, const uint8_t *key, size_t nbytes);
  void (*free_key)(void *key);
  void *(*new_context)(void);
  void (*free_context)(void *context);
  const void *(*sha256)(void);
  int (*digest_init)(void *context, const void *type, void *engine);
  int (*digest_update)(void *context, const void *data, size_t nbytes);
  int (*digest_final)(void *context, uint8_t *digest, unsigned *nbytes);
  int (*verify_init)(void *context, void **key_context, const void *type, void *engine, void *key);
  int (*verify)(void *context, const uint8_t *signature, size_t size, const uint8_t *data, size_t nbytes);
} crypto;

static char lacking[256]; /* why it cannot be used; "" if it can */

static void find_functions(void) {
  static const struct {
    const char *name;
    void *function;
  } needed[] = {
      {"EVP_PKEY_new_raw_public_key", &crypto.new_raw_public_key}, {"EVP_PKEY_free", &crypto.free_key},
      {"EVP_MD_CTX_new", &crypto.new_context},                     {"EVP_MD_CTX_free", &crypto.free_context},
      {"EVP_sha256", &crypto.sha256},                              {"EVP_DigestInit_ex", &crypto.digest_init},
      {"EVP_DigestUpdate", &crypto.digest_update},                 {"EVP_DigestFinal_ex", &crypto.digest_final},
      {"EVP_DigestVerifyInit", &crypto.verify_init},               {"EVP_DigestVerify", &crypto.verify},
  };
  static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"};
  void *library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    strcpy(lacking, "there is no libcrypto");
    return;
  }
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    void *found = dlsym(library, needed[i].name);
    if (found == NULL) strcpy(lacking, "this libcrypto is older than 1.1.1");
    memcpy(needed[i].function, &found, sizeof found);
  }
}

static void load(void) {
  kt_loader_lock();
  find_functions();
  kt_loader_unlock();
}

/* The digest of the content, in which the record counts as zeros. */
static bool find_digest(kt_bytes content, uint8_t digest[DIGEST]) {
  static const uint8_t zeros[RECORD];
  unsigned nbytes = DIGEST;
  void *context = crypto.new_context();
  if (context == NULL) return false;
  bool found = crypto.digest_init(context, crypto.sha256(), NULL) == 1 &&
               crypto.digest_update(context, content.data, PLACE) == 1 &&
               crypto.digest_update(context, zeros, RECORD) == 1 &&
               crypto.digest_update(context, content.data + PLACE + RECORD, content.nbytes - PLACE - RECORD) == 1 &&
               crypto.digest_final(context, digest, &nbytes) == 1;
  crypto.free_context(context);
  return found && nbytes == DIGEST;
}

static bool is_signed(const uint8_t *signature, const uint8_t *key, const uint8_t *message, size_t nbytes) {
  void *public_key = crypto.new_raw_public_key(ED25519, NULL, key, 32), *context = crypto.new_context();
  bool right = public_key != NULL && context != NULL &&
               crypto.verify_init(context, NULL, NULL, NULL, public_key) == 1 &&
               crypto.verify(context, signature, SIGNATURE, message, nbytes) == 1;
  if (context != NULL) crypto.free_context(context);
  if (public_key != NULL) crypto.free_key(public_key);
  return right;
}

kt_status kt_signature_check(kt_bytes content, const uint8_t *key, const char *name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  if (*lacking) return kt_fail(KT_ERROR_UNSUPPORTED, "%s: its signature cannot be checked: %s", name, lacking);
  if (content.nbytes < KT_PAGE || memcmp(content.data + PLACE, MAGIC, sizeof MAGIC) != 0)
    return kt_fail(KT_ERROR_UNTRUSTED, "%s: is not signed; `kintune sign` signs it", name);
  uint8_t message[sizeof PURPOSE - 1 + DIGEST];
  memcpy(message, PURPOSE, sizeof PURPOSE - 1);
  if (!find_digest(content, message + sizeof PURPOSE - 1))
    return kt_fail(KT_ERROR_MEMORY, "%s: its signature cannot be checked: libcrypto fails", name);
  if (!is_signed(content.data + PLACE + sizeof MAGIC, key, message, sizeof message))
    return kt_fail(KT_ERROR_UNTRUSTED, "%s: was altered since it was signed, or signed with another key than the trusted"
                   " one", name);
  return KT_OK;
}
