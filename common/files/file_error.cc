#include "common/files/file_error.h"

#include <cerrno>
#include <system_error>

namespace dsj {
namespace {

bool passes(int number) {
  switch (number) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOLCK:
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ESTALE:
    case ETIMEDOUT:
    case ENOTCONN:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
      return true;
    default:
      return false;
  }
}

/// EIO, and Linux's errors for a checksum of a file system or a device.
bool is_disk_fault(int number) {
  return number == EIO || number == EUCLEAN || number == EBADMSG || number == EREMOTEIO ||
         number == ENODATA || number == EILSEQ;
}

}  // namespace

Error file_error(const std::string& operation, const std::string& path, int number) {
  Error error{ErrorKind::Environment, operation + ": " + std::generic_category().message(number),
              path, ""};
  if (number == ENOENT || number == ENOTDIR) error.kind = ErrorKind::BadInput;
  if (passes(number)) error.kind = ErrorKind::Transient;
  if (is_disk_fault(number)) {
    error.cause = Error::Cause::Disk;
    error.hint = "the disk cannot be read or written there: check it";
  }
  if (number == ENOSPC || number == EDQUOT)
    error.hint = "free space there, or write to another volume";
  if (number == EACCES || number == EPERM) error.hint = "check the owner and the mode of the path";
  if (number == EMFILE || number == ENFILE)
    error.hint = "raise the limit of open files (ulimit -n)";
  return error;
}

}  // namespace dsj
