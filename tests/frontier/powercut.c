/* Preloaded into a process: journals what it writes to the files whose path begins with
 * $POWERCUT_PREFIX, to $POWERCUT_JOURNAL, so that a test can rebuild what a disk may hold
 * after a power cut. Shared memory (-shm) is left out: it does not outlive the machine.
 *
 * A record is native: char kind, int64 offset, uint32 path length, uint32 data length, path,
 * data. Kinds: w(rite), t(runcate; offset is the size), s(ync), u(nlink), r(ename; data is
 * the new path). The lock is held over the real call, so the order is the one of the kernel.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef pwrite64
#undef ftruncate64

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static const char *prefix;

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POWERCUT_JOURNAL");
    prefix = getenv("POWERCUT_PREFIX");
    if (path && prefix)
        journal = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int counts(const char *path) {
    size_t length = strlen(path);
    return journal >= 0 && !strncmp(path, prefix, strlen(prefix)) &&
           !(length > 4 && !strcmp(path + length - 4, "-shm"));
}

static int named(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = journal < 0 ? -1 : readlink(link, path, 4095);
    if (length < 0)
        return 0;
    path[length] = 0;
    return counts(path);
}

static void put(const void *data, size_t size) {
    REAL(write);
    while (size) {
        ssize_t done = real(journal, data, size);
        if (done <= 0)
            abort(); /* a journal with a hole would prove nothing */
        data = (const char *)data + done;
        size -= done;
    }
}

static void note(char kind, const char *path, int64_t offset, const void *data, uint32_t size) {
    uint32_t length = strlen(path);
    put(&kind, 1);
    put(&offset, sizeof offset);
    put(&length, sizeof length);
    put(&size, sizeof size);
    put(path, length);
    put(data, size);
}

#define LOGGED(type, call, kind, offset, data, size)                                          \
    char path[4096];                                                                          \
    if (!named(fd, path))                                                                     \
        return call;                                                                          \
    pthread_mutex_lock(&turn);                                                                \
    int64_t at = (offset);                                                                    \
    type result = call;                                                                       \
    if (result >= 0)                                                                          \
        note(kind, path, at, data, size);                                                     \
    pthread_mutex_unlock(&turn);                                                              \
    return result

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    LOGGED(ssize_t, real(fd, data, size), 'w', lseek(fd, 0, SEEK_CUR), data, result);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
    REAL(pwrite);
    LOGGED(ssize_t, real(fd, data, size, where), 'w', where, data, result);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    REAL(pwrite64);
    LOGGED(ssize_t, real(fd, data, size, where), 'w', where, data, result);
}
int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    LOGGED(int, real(fd, size), 't', size, "", 0);
}
int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    LOGGED(int, real(fd, size), 't', size, "", 0);
}
int fsync(int fd) {
    REAL(fsync);
    LOGGED(int, real(fd), 's', 0, "", 0);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    LOGGED(int, real(fd), 's', 0, "", 0);
}
int unlink(const char *path) {
    REAL(unlink);
    if (!counts(path))
        return real(path);
    pthread_mutex_lock(&turn);
    int result = real(path);
    if (result >= 0)
        note('u', path, 0, "", 0);
    pthread_mutex_unlock(&turn);
    return result;
}
int rename(const char *from, const char *to) {
    REAL(rename);
    if (!counts(from) && !counts(to))
        return real(from, to);
    pthread_mutex_lock(&turn);
    int result = real(from, to);
    if (result >= 0)
        note('r', from, 0, to, strlen(to));
    pthread_mutex_unlock(&turn);
    return result;
}
