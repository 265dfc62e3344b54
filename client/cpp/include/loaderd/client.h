// SPDX-License-Identifier: Apache-2.0
/* loaderd's client: the C interface, usable from any language. Stable: functions and the fields of
 * structs are only ever added, at their ends; LOADERD_ABI_VERSION rises when one is.
 *
 * A session survives its daemon: where the daemon dies, restarts or is replaced, loaderd_next waits
 * for it (reconnect_ms), opens the same job there with the same samples in the same order, and goes
 * on with the batch that it would have given. Batches that are held stay as they are.
 *
 * A session is one connection to the daemon: one descriptor, no thread. Calls on one session from
 * several threads are serialised inside; loaderd_release may be called from any thread at any time,
 * also from finalizers. After fork(2) every call in the child returns LOADERD_FORKED and
 * loaderd_release does nothing; batches that the child inherited stay readable while the parent's
 * session lives.
 */
#ifndef LOADERD_CLIENT_H_
#define LOADERD_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOADERD_ABI_VERSION 4
#define LOADERD_EXPORT __attribute__((visibility("default")))

/* Values 0 to 16 are gRPC's status codes. */
typedef enum loaderd_code {
  LOADERD_OK = 0,
  LOADERD_CANCELLED = 1,
  LOADERD_UNKNOWN = 2,
  LOADERD_INVALID_ARGUMENT = 3,
  LOADERD_DEADLINE_EXCEEDED = 4, /* nothing came within timeout_ms; call again to go on waiting */
  LOADERD_NOT_FOUND = 5,
  LOADERD_ALREADY_EXISTS = 6,
  LOADERD_PERMISSION_DENIED = 7,
  LOADERD_RESOURCE_EXHAUSTED = 8,
  LOADERD_FAILED_PRECONDITION = 9,
  LOADERD_ABORTED = 10,
  LOADERD_OUT_OF_RANGE = 11,
  LOADERD_UNIMPLEMENTED = 12,
  LOADERD_INTERNAL = 13,
  LOADERD_UNAVAILABLE = 14,
  LOADERD_DATA_LOSS = 15, /* loaderd_next: a bad sample under policy "fail"; the next call delivers
                             the following batch */
  LOADERD_UNAUTHENTICATED = 16,
  LOADERD_END_OF_EPOCH = 100,
  LOADERD_INTERRUPTED = 101, /* a signal came (EINTR); call again to go on waiting */
  LOADERD_FORKED = 102,
  LOADERD_STORAGE_GONE = 103 /* loaderd_next: as LOADERD_DATA_LOSS, but many reads in a row failed
                                by the storage, whatever the policy */
} loaderd_code;

typedef struct loaderd_session loaderd_session;

typedef enum loaderd_delivery {
  LOADERD_MAPPED = 0,
  LOADERD_INLINE = 1,
  LOADERD_MAPPED_OR_INLINE = 2
} loaderd_delivery;

typedef struct loaderd_open_options {
  size_t struct_size; /* sizeof(loaderd_open_options) */
  const char* socket; /* NULL: LOADERD_SOCKET, else the system's daemon, else the user's, started if
                         there is none */
  int64_t timeout_ms; /* to reach a daemon that answers; < 0: 60,000. Indexing a dataset does not
                         count. */
  int delivery; /* loaderd_delivery; LOADERD_MAPPED_OR_INLINE falls back where the segment cannot be
                   mapped */
  int no_start; /* 1: never start a user daemon */
  const char* daemon; /* executable to start; NULL: LOADERD_DAEMON, else beside this library, else
                         in PATH */
  const char* client; /* shown by loaderctl; NULL: the process's name */
  void (*log)(const char* line); /* told what open does besides (a daemon started, a fallback
                                    taken), and what becomes of a daemon that has gone: it may be
                                    called until loaderd_close. NULL: standard error */
  int (*waiting)(void* arg,
                 const char* what); /* called about ten times a second while open waits; non-zero
                                       ends it with LOADERD_CANCELLED; may be NULL */
  void* waiting_arg;
  const char* expected_order_fingerprint; /* loaderd_opened.order_fingerprint of an earlier session,
                                             to go on with exactly its samples in its order although
                                             the data may have changed; where the daemon has them no
                                             more, open is LOADERD_FAILED_PRECONDITION. NULL or "":
                                             the data as they are */
  int64_t reconnect_ms; /* how long a session whose daemon has gone waits for one that goes on in its
                           place; < 0: 60,000; 0: not at all */
} loaderd_open_options;

typedef struct loaderd_field {
  const char* name;  /* "images" */
  const char* dtype; /* numpy's name, or "bfloat16" */
  uint32_t ndim;
  const int64_t* shape; /* shape[0] is the batch's capacity */
  const int64_t* stride_bytes;
  uint64_t offset; /* from loaderd_batch.data */
} loaderd_field;

/* What the daemon answered. Valid until loaderd_close. */
typedef struct loaderd_opened {
  const char* session;
  const char* socket; /* of the daemon that serves it */
  uint32_t num_fields;
  const loaderd_field* fields; /* the dataset's, then "index" (int64) and "pad" (bool) */
  uint64_t num_samples;        /* of the dataset */
  uint64_t num_batches;        /* of an epoch of this rank; 0 for explicit order */
  uint64_t epoch_samples;
  uint64_t slot_bytes;
  uint32_t slot_count;
  int delivery; /* LOADERD_MAPPED or LOADERD_INLINE */
  const char* job_fingerprint;
  int plain_loop_copies; /* 1: so few slots that a loop which keeps its last batch copies some */
  const char* order_fingerprint; /* of the dataset: a hash of its names in order; "" from a daemon
                                    that tells none */
} loaderd_opened;

typedef struct loaderd_bad_sample {
  int64_t index;
  const char* reason;
  int64_t substitute; /* index whose data stands in, or -1 */
} loaderd_bad_sample;

/* One batch. Yours until loaderd_release; `data` may be changed in place. */
typedef struct loaderd_batch {
  void* data; /* the fields begin at their offsets; 64-byte aligned */
  uint64_t epoch;
  uint64_t step;
  uint32_t count; /* samples: valid rows of every field */
  uint32_t bad_count;
  const loaderd_bad_sample* bad;
  int copied; /* 1: not in the segment but in memory of its own */
} loaderd_batch;

LOADERD_EXPORT uint32_t loaderd_abi_version(void);
/* Text of the last error on this thread; valid until the next call on it. Never NULL. */
LOADERD_EXPORT const char* loaderd_error(void);

/* `job_json`: the JSON form of loaderd.v1.JobSpec. Blocks until the dataset is indexed. On success
 * *session is to be closed. */
LOADERD_EXPORT loaderd_code loaderd_open(const char* job_json, const loaderd_open_options* options,
                                         loaderd_session** session);
LOADERD_EXPORT const loaderd_opened* loaderd_opened_of(const loaderd_session* session);

/* Delivery begins at batch `first_batch` of `epoch`. goes_on: the next epoch will be asked for
 * after this one. */
LOADERD_EXPORT loaderd_code loaderd_start_epoch(loaderd_session* session, uint64_t epoch,
                                                uint64_t first_batch, int goes_on);
/* Explicit order: the samples of batch `batch`, in batch order from first_batch on, ahead of need;
 * NULL and 0 indices end the epoch. */
LOADERD_EXPORT loaderd_code loaderd_send_indices(loaderd_session* session, uint64_t batch,
                                                 const int64_t* indices, size_t count);
LOADERD_EXPORT loaderd_code loaderd_end_indices(loaderd_session* session);

/* The next batch, in order. timeout_ms < 0 waits for ever, 0 polls. LOADERD_END_OF_EPOCH after the
 * last one. */
LOADERD_EXPORT loaderd_code loaderd_next(loaderd_session* session, int64_t timeout_ms,
                                         const loaderd_batch** batch);
/* Gives a batch back. NULL is allowed. The batch may outlive its session's loaderd_close. */
LOADERD_EXPORT void loaderd_release(const loaderd_batch* batch);
/* Ends the session. Its connection and mapping stay until the last batch is released. NULL is
 * allowed. */
LOADERD_EXPORT void loaderd_close(loaderd_session* session);

/* Entries of a folder that were left out, or taken though they look odd. */
typedef struct loaderd_entry_note {
  const char* kind; /* "hidden entries", "dangling links", ... */
  uint64_t count;
  const char* const* first; /* at most 5 of their names, relative to the folder, printable */
  uint32_t num_first;
  int taken; /* 1: they are classes or samples all the same */
} loaderd_entry_note;

/* What a dataset holds. `dataset_json`: the JSON form of loaderd.v1.DatasetSpec. To be freed with
 * loaderd_free_description. */
typedef struct loaderd_description {
  uint64_t num_samples;
  uint64_t num_classes;
  const char* const* class_names; /* in class order; bytes as the file system has them */
  const char* order_fingerprint;
  uint32_t num_notes;
  const loaderd_entry_note* notes;
} loaderd_description;
LOADERD_EXPORT loaderd_code loaderd_describe(const char* dataset_json,
                                             const loaderd_open_options* options,
                                             const loaderd_description** description);
LOADERD_EXPORT void loaderd_free_description(const loaderd_description* description);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* LOADERD_CLIENT_H_ */
