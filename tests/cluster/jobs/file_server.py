"""Files over HTTP from this machine, for what fetches in a pod: it counts, refuses and holds back as it is told."""
import http.server
import os
import threading
import time


class FileServer:
    """Serves a folder on a free port of `address` while the block runs.

    asked: the paths, in the order of the answers. hold(path): requests for it wait until release(path). refuse(path): the
    next answer for it is 503; refused: when, by time.monotonic()."""

    def __init__(self, address, folder):
        self.asked, self.refused = [], None
        self._folder, self._lock, self._refuse, self._held = folder, threading.Lock(), set(), {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802: the base class's name
                outer._answer(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{address}:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        for path in list(self._held):
            self.release(path)
        self._server.shutdown()
        self._server.server_close()

    def refuse(self, path):
        self._refuse.add(path)

    def hold(self, path):
        self._held[path] = threading.Event()

    def release(self, path):
        self._held[path].set()

    def _answer(self, request):
        path = request.path
        if path in self._held:
            self._held[path].wait()
        with self._lock:
            self.asked.append(path)
            if path in self._refuse:
                self._refuse.remove(path)
                self.refused = time.monotonic()
                return request.send_error(503, "Busy")
        try:
            with open(os.path.join(self._folder, path.lstrip("/")), "rb") as file:
                content = file.read()
        except OSError:
            return request.send_error(404)
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
        return None
