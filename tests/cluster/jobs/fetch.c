/* An image that fetches, as docs/cluster.md asks for it: plain HTTP by an address, a file or a directory.
   program [NAME...]   STORAGE_URI is http://ADDRESS:PORT/PATH. With NAMEs the target is a directory, and each of its
   files is PATH/NAME; without one it is the file PATH. Ends with 1 and one line on stdout when something is amiss. */
#define _GNU_SOURCE  /* memmem, nftw */
#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char* what, const char* detail) {
  printf("%s: %s\n", what, detail);
  exit(1);
}

static const char* set(const char* name) {
  const char* text = getenv(name);
  if (!text) fail(name, "is not set");
  return text;
}

static char* joined(const char* folder, const char* name) {
  char* path;
  if (asprintf(&path, "%s/%s", folder, name) < 0) exit(1);
  return path;
}

static int remove_one(const char* path, const struct stat* found, int kind, struct FTW* place) {
  (void)found, (void)kind, (void)place;
  return remove(path);
}

static void remove_tree(const char* path) {
  if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) fail(path, strerror(errno));
}

static void make_parents(const char* path) {
  char* copy = strdup(path);
  for (char* at = strchr(copy + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = 0;
    if (mkdir(copy, 0777) != 0 && errno != EEXIST) fail(copy, strerror(errno));
    *at = '/';
  }
  free(copy);
}

static int is_there(const char* marker, const char* uri) {
  char text[4200] = "";
  FILE* file = fopen(marker, "r");
  if (!file) return 0;
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  return length == strlen(uri) && memcmp(text, uri, length) == 0;
}

static int opened(const char* host_and_port) {
  struct sockaddr_in server = {.sin_family = AF_INET};
  char host[64];
  int port;
  if (sscanf(host_and_port, "%63[0-9.]:%d", host, &port) != 2) fail(host_and_port, "expected ADDRESS:PORT");
  server.sin_port = htons((unsigned short)port);
  inet_pton(AF_INET, host, &server.sin_addr);
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(connection, (struct sockaddr*)&server, sizeof server) != 0) fail(host_and_port, strerror(errno));
  return connection;
}

/* The whole answer, with a 0 behind it. */
static char* answered(const char* uri, size_t* length) {
  const char* at = uri + strlen("http://");
  const int connection = opened(at);
  dprintf(connection, "GET %s HTTP/1.0\r\n\r\n", strchr(at, '/'));
  size_t room = 1 << 16;
  char* text = malloc(room);
  ssize_t got;
  for (*length = 0; (got = read(connection, text + *length, room - *length - 1)) > 0;) {
    *length += (size_t)got;
    if (room - *length < 2 && !(text = realloc(text, room *= 2))) exit(1);
  }
  if (got < 0) fail(uri, strerror(errno));
  close(connection);
  text[*length] = 0;
  return text;
}

static void fetch(const char* uri, const char* path) {
  size_t length;
  int code = 0;
  char* text = answered(uri, &length);
  char* body = memmem(text, length, "\r\n\r\n", 4);
  if (!body || sscanf(text, "HTTP/%*s %d", &code) != 1) fail(uri, "no answer");
  body += 4;
  if (code != 200) {
    *strchrnul(text, '\r') = 0;
    fail(uri, text);
  }
  const char* told = strcasestr(text, "\r\nContent-Length:");
  const size_t size = length - (size_t)(body - text);
  if (!told || strtoul(told + 17, NULL, 10) != size) fail(uri, "the answer was cut off");
  FILE* file = fopen(path, "w");
  if (!file || fwrite(body, 1, size, file) != size || fclose(file) != 0) fail(path, strerror(errno));
  free(text);
}

int main(int count, char** words) {
  const char *uri = set("STORAGE_URI"), *target = set("TARGET"), *staging = set("STAGING"), *marker = set("MARKER");
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (is_there(marker, uri)) {
    printf("%s is there\n", target);
    return 0;
  }
  remove_tree(marker);
  remove_tree(staging);
  make_parents(target);
  if (count == 1) fetch(uri, staging);
  if (count > 1 && mkdir(staging, 0777) != 0) fail(staging, strerror(errno));
  for (int i = 1; i < count; ++i) fetch(joined(uri, words[i]), joined(staging, words[i]));
  remove_tree(target);
  if (rename(staging, target) != 0) fail(target, strerror(errno));
  FILE* file = fopen(marker, "w");
  if (!file || fputs(uri, file) < 0 || fclose(file) != 0) fail(marker, strerror(errno));
  printf("%s is fetched\n", target);
  return 0;
}
